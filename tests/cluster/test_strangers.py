"""Drafters that are not what they should be: refused by the handshake, or dropped for nonsense; responses go on."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import ray

from actors.messages import PROTOCOL_VERSION, Answer, ModelCard
from outrider.contracts.drafting import Draft, DraftRequest, DraftTerms
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import ScalarDraft, WireFormat
from outrider.contracts.verifying import OpenGeneration
from outrider.session.session import DrafterSession
from outrider.wire.bits import BitWriter
from outrider.wire.envelope import Kind, seal
from tests.cluster.conftest import Service
from tests.cluster.served import MODEL, eventually

IMPOSTORS = ("drafter-embedded-0", "drafter-embedded-1", "drafter-embedded-2")
_WITHIN_S = 120.0
_TOKENS, _WINDOW = 32, 4
_WIDER_VOCAB = 2**16  # of ids as wide as the target's

SPOILT = {  # how an impostor's answers are spoilt, and what is said of it
    "damaged": "the checksum of message BLOCK",
    "truncated": "it is truncated",
    "another_version": "needs messages of version",
    "earlier_answer": "needs an answer to round",
    "megabyte_of_zeros": "the checksum of message BLOCK",
    "text": "needs to send an Answer, found Answer(data='hello'",
    "refusal": "failed: MessageError('no')",
    "wider_vocabulary": "do both sides use the same vocabulary?",
    "more_than_asked": f"needs a chain of at most {_WINDOW} tokens, found {_WINDOW + 1}",
}


@dataclass(frozen=True)
class Nonsense:
    """What an impostor says of itself and how it spoils its answers."""

    card: object
    kind: str = "silent"


@dataclass
class Held:
    """A generation: both ends of it as an honest drafter has them, and as one with a larger vocabulary has."""

    wire: WireFormat
    honest: DrafterSession
    wider: DrafterSession
    first_answer: bytes | None = None


class Impostor:
    """Runs under a drafter's name. It brings its KV up to date as it should; the blocks it drafts are spoilt."""

    def __init__(self, nonsense: Nonsense) -> None:
        self._nonsense = nonsense
        self._generations: dict[str, Held] = {}

    async def nonsense(self) -> Nonsense:
        """Give itself away."""
        return self._nonsense

    async def card(self) -> object:
        """Who it claims to be."""
        return self._nonsense.card

    async def held(self) -> tuple[str, ...]:
        """Nothing."""
        if self._nonsense.kind == "silent":
            raise RuntimeError("the fleet is to look closer")
        return ()

    async def open(self, request: OpenGeneration, terms: DraftTerms) -> None:
        """Agree to everything."""
        tokens = (*request.prompt_ids, *request.output_ids)
        honest, wider = (
            DrafterSession(wire, request.generation, tokens)
            for wire in (terms.wire, replace(terms.wire, vocab_size=_WIDER_VOCAB))
        )
        self._generations[request.generation] = Held(terms.wire, honest, wider)

    async def close(self, generation: str) -> None:
        """Agree to everything."""

    async def probe(self, _sent: bytes, reply_bytes: int) -> Answer:
        """Let itself be measured."""
        return Answer(bytes(reply_bytes), 0.0)

    async def exchange(self, generation: str, order: bytes) -> Answer:
        """Answer, not quite what was asked."""
        held = self._generations[generation]
        request = held.honest.decode_order(order)
        honest = held.honest.encode_answer(drafted(request, 1, held.wire))
        wider = held.wider.encode_answer(drafted(held.wider.decode_order(order), _WIDER_VOCAB - 1, held.wire))
        if request.plan.window == 0:
            held.first_answer = honest
            return Answer(honest, 0.0)
        spoilt: dict[str, Callable[[], Any]] = {
            "damaged": lambda: bytes((*honest[:3], honest[3] ^ 1, *honest[4:])),
            "truncated": lambda: honest[:3],
            "another_version": lambda: bytes((honest[0] ^ 0xF0, *honest[1:])),
            "earlier_answer": lambda: held.first_answer,
            "megabyte_of_zeros": lambda: honest[:2] + bytes(2**20),
            "text": lambda: "hello",
            "wider_vocabulary": lambda: wider,
            "more_than_asked": lambda: more_than_asked(request, held.wire),
        }
        if self._nonsense.kind == "refusal":
            raise MessageError("no")
        return Answer(spoilt[self._nonsense.kind](), 0.0)


def drafted(request: DraftRequest, token_id: int, wire: WireFormat) -> Draft:
    """One token, said to be certain, if any are asked for."""
    count = min(request.plan.window, 1)
    certain = ScalarDraft(np.full(count, 2**wire.scalar_bits, dtype=np.int64), wire.scalar_bits)
    return Draft(
        generation=request.generation,
        round=request.round,
        position=request.feedback_position + len(request.feedback),
        token_ids=(token_id,) * count,
        distribution=certain if request.plan.protocol == "dssd" else None,
    )


def more_than_asked(request: DraftRequest, wire: WireFormat) -> bytes:
    """A sealed message of a block with a token too many."""
    count = request.plan.window + 1
    writer = BitWriter()
    writer.uint(count, request.plan.window.bit_length())
    writer.ids([1] * count, wire.vocab_size)
    writer.uints([0] * count, wire.scalar_bits)
    return seal(Kind.BLOCK, request.round, writer.to_bytes(), request.prefix_hash)


def card(service: Service) -> ModelCard:
    """A genuine drafter's card."""
    drafter: Any = ray.get_actor(IMPOSTORS[0], namespace=service.config.cluster.namespace)
    genuine: ModelCard = ray.get(drafter.card.remote(), timeout=60)
    return genuine


def usurp(service: Service, nonsense: Sequence[Nonsense]) -> None:
    """Put these impostors in the place of as many drafters."""
    namespace = service.config.cluster.namespace

    def moved_in(name: str, spoilt: Nonsense) -> bool:
        actor: Any = ray.remote(Impostor).options(
            name=name, namespace=namespace, lifetime="detached", num_cpus=0, get_if_exists=True
        )
        try:
            handle = actor.remote(spoilt)
            found: Nonsense = ray.get(handle.nonsense.remote(), timeout=60)
        except (ray.exceptions.RayError, AttributeError):  # a dead one whose name is not free yet, or a genuine one
            with contextlib.suppress(ValueError):
                ray.kill(ray.get_actor(name, namespace=namespace), no_restart=True)
            return False
        return found == spoilt

    for name, spoilt in zip(IMPOSTORS, nonsense, strict=False):
        eventually(lambda name=name, spoilt=spoilt: moved_in(name, spoilt), _WITHIN_S)  # type: ignore[misc]


def drafters(service: Service) -> list[dict[str, Any]]:
    """What the fleet says of its drafters."""
    found: Any = service.get("/status")["drafters"]
    return list(found)


def all_ready(service: Service) -> bool:
    return all(drafter["state"] == "ready" for drafter in drafters(service))


def await_refusals(service: Service, reasons: Mapping[str, str]) -> None:
    """Return once each of these drafters has been refused for its reason: not for long, as it is replaced."""
    missing = dict(reasons)

    def all_told() -> bool:
        for drafter in drafters(service):
            name = drafter["name"]
            if name in missing and drafter["state"] == "refused" and missing[name] in drafter["reason"]:
                del missing[name]
        return not missing

    eventually(all_told, _WITHIN_S)


@pytest.fixture(autouse=True)
def genuine_again(service: Service) -> Iterator[None]:
    """Afterwards the fleet has put genuine drafters back by itself."""
    eventually(lambda: all_ready(service), _WITHIN_S)
    yield
    eventually(lambda: all_ready(service), _WITHIN_S)
    assert complete(service)["usage"]["outrider"]["accepted_tokens"] > 0


def complete(service: Service) -> Any:
    """A response whose drafts are accepted in part."""
    body = {"model": MODEL, "prompt": "Once upon a time there was", "max_tokens": _TOKENS, "temperature": 0}
    options = {"protocol": "dssd", "window": _WINDOW}
    return service.post("/v1/completions", {**body, "outrider": options})


@pytest.mark.parametrize("kinds", [tuple(SPOILT)[i : i + 3] for i in (0, 3, 6)], ids=", ".join)
def test_those_that_answer_nonsense_are_dropped_and_the_responses_go_on(
    service: Service, kinds: tuple[str, ...]
) -> None:
    genuine, undisturbed = card(service), complete(service)["choices"][0]["text"]
    usurp(service, [Nonsense(genuine, kind) for kind in kinds])
    with ThreadPoolExecutor(6) as pool:
        answers = pool.map(lambda _: complete(service), range(6))
        await_refusals(service, dict(zip(IMPOSTORS, [SPOILT[kind] for kind in kinds], strict=True)))
        assert {answer["choices"][0]["text"] for answer in answers} == {undisturbed}


@pytest.mark.parametrize(
    "faults",
    [
        {"needs protocol version": {"protocol_version": PROTOCOL_VERSION + 1}, "needs model": {"model_hash": "f" * 64}},
        {"needs token map": {"token_map_hash": "f" * 64}},
    ],
    ids=", ".join,
)
def test_those_that_fail_the_handshake_are_refused_with_the_reason(
    service: Service, faults: dict[str, dict[str, Any]]
) -> None:
    genuine = card(service)
    usurp(service, [Nonsense(replace(genuine, **change)) for change in faults.values()])
    await_refusals(service, dict(zip(IMPOSTORS, faults, strict=False)))
    assert complete(service)["usage"]["completion_tokens"] == _TOKENS
