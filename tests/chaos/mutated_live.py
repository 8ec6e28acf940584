"""Mutated messages and bodies for a service that runs, beside streams that are to notice nothing."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from threading import Event
from typing import Any

import httpx
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.errors import OutriderError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.session.session import CoordinatorSession
from tests.chaos.clients import body_of, told_by
from tests.chaos.judging import judged
from tests.chaos.mutating import mutated_body, mutated_bytes
from tests.chaos.references import Alone
from tests.chaos.schedules import Schedule, Stream, StreamKind
from tests.cluster.served import MODEL, PLAIN, Service

_PROMPT = (5, 17, 8, 30, 2)
_BATCH = 100
_WITHIN_S = 60.0
_SENDERS = 8
_READ_BYTES, _READ_S = (
    65_536,
    5.0,
)  # of an answer, which may be to a request for very many tokens; then its client leaves
_BODIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/completions", {"prompt": "Once upon a time", "stop": ["\n", "end"], "logprobs": 2, "echo": False}),
    ("/v1/completions", {"prompt": [5, 17, 42], "n": 2, "logit_bias": {"17": -3.0}, "stream": True}),
    (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
            ],
            "logprobs": True,
            "top_logprobs": 3,
        },
    ),
    (
        "/v1/chat/completions",
        {
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "List four fruits."}],
            "outrider": {"window": 4, "slo_class": ["speed_2", "best_effort"], "lookup": 3, "explain": True},
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
)
_COMMON = {
    "model": MODEL,
    "max_tokens": 2,
    "temperature": 0.7,
    "top_p": 0.9,
    "seed": 1,
    "min_p": 0.1,
    "user": "someone",
}


@dataclass(slots=True)
class Tried:
    """What became of what was sent: by kind, and what is wrong."""

    kinds: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def number(self) -> int:
        """How many were sent."""
        return sum(self.kinds.values())


def orders(service: Service, seed: int, number: int) -> Tried:
    """Mutated orders for each device by turns; after each batch it understands a sound one."""
    rng, tried = Random(f"orders {seed}"), Tried()
    names = [drafter["name"] for drafter in service.drafters("ready")]
    while tried.number < number and not tried.wrong:
        name = names[(tried.number // _BATCH) % len(names)]
        try:
            _batch(service.drafter(name), rng, tried)
        except (RayActorError, GetTimeoutError, AssertionError) as error:
            tried.wrong.append(f"{name} after {tried.number} mutated orders: {error!r:.300}")
    return tried


def _batch(device: Any, rng: Random, tried: Tried) -> None:
    generation = f"mutated-{rng.getrandbits(64):x}"
    card = ray.get(device.card.remote(), timeout=_WITHIN_S)
    terms = DraftTerms(WireFormat(card.vocab_size))
    opening = OpenGeneration(generation, _PROMPT, SamplingParams(temperature=0.0))
    ray.get(device.open.remote(opening, terms), timeout=_WITHIN_S)
    request = DraftRequest(
        generation, 0, len(_PROMPT), (), extend_prefix_hash(EMPTY_PREFIX_HASH, _PROMPT), DraftPlan("token_ids", 3)
    )
    order = CoordinatorSession(terms.wire, generation).encode_order(request)
    odd: list[object] = [None, "text", 7, [1, 2], b""]
    sent = [rng.choice(odd) if rng.random() < 0.03 else mutated_bytes(rng, order, order[::-1]) for _ in range(_BATCH)]
    for reference in [device.exchange.remote(generation, one) for one in sent]:
        try:
            answer = ray.get(reference, timeout=_WITHIN_S)
            tried.kinds["answered" if answer.data else "asked for the generation anew"] += 1
        except RayTaskError as error:
            ours = isinstance(error.cause, OutriderError)
            tried.kinds["refused" if ours else f"refused as {type(error.cause).__name__}"] += 1
    session = CoordinatorSession(terms.wire, generation)
    ray.get(device.open.remote(opening, terms), timeout=_WITHIN_S)
    answer = ray.get(device.exchange.remote(generation, session.encode_order(request)), timeout=_WITHIN_S)
    assert isinstance(session.decode_answer(answer.data, request), Draft), "a sound order is drafted for"
    ray.get(device.close.remote(generation), timeout=_WITHIN_S)


def bodies(url: str, seed: int, number: int) -> Tried:
    """Mutated request bodies, several at a time: each is answered, refused in OpenAI's form, or left by its client."""
    tried = Tried()
    rng = Random(f"bodies {seed}")
    planned = []
    for _ in range(number):
        path, own = rng.choice(_BODIES)
        planned.append((path, mutated_body(rng, _COMMON | own)))
    limits = httpx.Limits(max_connections=_SENDERS)
    with (
        httpx.Client(base_url=url, timeout=_WITHIN_S, limits=limits, verify=PLAIN) as client,
        ThreadPoolExecutor(_SENDERS) as pool,
    ):
        for (path, body), (kind, wrong) in zip(
            planned, pool.map(lambda one: _sent(client, *one), planned), strict=True
        ):
            tried.kinds[kind] += 1
            if wrong:
                tried.wrong.append(f"{path} {body[:300]!r}: {wrong}")
    return tried


def _sent(client: httpx.Client, path: str, body: bytes) -> tuple[str, str]:
    """What became of a body; what is wrong with that."""
    headers = {"content-type": "application/json"}
    timeout = httpx.Timeout(_WITHIN_S, read=_READ_S)
    try:
        with client.stream("POST", path, content=body, headers=headers, timeout=timeout) as response:
            content, began_s = b"", time.monotonic()
            for part in response.iter_bytes():
                content += part
                if len(content) > _READ_BYTES or time.monotonic() > began_s + _READ_S:
                    break
            status = response.status_code
    except httpx.ReadTimeout:
        return "left", ""
    except httpx.TransportError as error:
        return "broken", repr(error)
    if status < httpx.codes.BAD_REQUEST:
        return str(status), f"an error event {content[-300:]!r}" if b'"error"' in content[-600:] else ""
    if status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return str(status), f"{status} {content[:300]!r}"
    try:
        formed = {"message", "type", "param", "code"} <= httpx.Response(status, content=content).json()["error"].keys()
    except (ValueError, LookupError, TypeError, AttributeError):
        formed = False
    return str(status), "" if formed else f"not in OpenAI's form: {content[:300]!r}"


@contextmanager
def beside(url: str, alone: Alone, clients: int, tokens: int) -> Iterator[Callable[[], Tried]]:
    """Greedy streams one after the other while the block is open; calling what is yielded ends and judges them."""
    over, tried = Event(), Tried()

    def client(number: int) -> None:
        asked = 0
        while not over.is_set():
            stream = Stream(number + asked, StreamKind.GREEDY, number, tokens)
            told = told_by(url, stream, body_of(stream, alone.prompt(stream), None), lambda _: None)
            schedule = Schedule(0, (stream,), ())
            tried.wrong += judged(schedule, {stream.number: told}, {stream.number: alone.expected(stream)}, {}, ())
            tried.kinds[str(told.end)] += 1
            asked += clients

    for number in range(clients):
        alone.expected(Stream(number, StreamKind.GREEDY, number, tokens))  # known before anything is measured by it
    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(client, number) for number in range(clients)]

        def ended() -> Tried:
            over.set()
            for each in running:
                each.result()
            return tried

        try:
            yield ended
        finally:
            over.set()
