"""Drafters that are not what they should be: refused by the handshake, or dropped for nonsense; responses go on."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
import ray

from outrider.contracts.drafting import Draft, DraftRequest, DraftTerms
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import ScalarDraft, WireFormat
from outrider.contracts.verifying import OpenGeneration
from outrider.session.session import DrafterSession
from outrider.versions import VERSIONS, VersionRange
from outrider.wire.bits import BitWriter
from outrider.wire.envelope import MessageKind, seal
from outrider.wire.replies import Answer, DrafterCard, DrafterHoldings, plain, plain_failure
from tests.cluster.served import Service, eventually

IMPOSTORS = ("drafter-embedded-0", "drafter-embedded-1", "drafter-embedded-2")
_WITHIN_S = 240.0
_TOKENS, _WINDOW = 32, 4
_WIDER_VOCAB = 2**16  # of ids as wide as the target's

SPOILT = {  # how an impostor's answers are spoilt, and what is said of it
    "damaged": "the checksum of message BLOCK",
    "truncated": "it is truncated",
    "another_version": "needs messages of version",
    "earlier_answer": "needs an answer to round",
    "megabyte_of_zeros": "needs a reply of at most",
    "text": "needs a reply in plain bytes",
    "refusal": "failed: MessageError('no')",
    "wider_vocabulary": "do both sides use the same vocabulary?",
    "more_than_asked": f"needs a chain of at most {_WINDOW} tokens, found {_WINDOW + 1}",
}
NEWER = VersionRange(100, 101)
FAULTY: dict[str, dict[str, Any]] = {  # cards that fail the handshake
    "protocol version": {"versions": replace(VERSIONS, protocol=NEWER)},
    "model": {"model_hash": "f" * 64},
    "token map": {"token_map_hash": "f" * 64},
    "noise version": {"versions": replace(VERSIONS, noise=NEWER)},
}
# By twos and threes.
STAGES: tuple[tuple[str, ...], ...] = (("model", "text", "more_than_asked"),)
_REST = [kind for kind in (*FAULTY, *SPOILT) if kind not in chain(*STAGES)]
LATER = tuple(pytest.param(tuple(_REST[i : i + 3]), marks=pytest.mark.long) for i in range(0, len(_REST), 3))


@dataclass(frozen=True)
class Nonsense:
    """What an impostor says of itself and how it spoils its answers."""

    card: object
    kind: str = "refusal"


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

    async def prove(self) -> None:
        """Pretend to have."""

    async def reply(self, method: str, *arguments: Any) -> Any:
        """As a drafter does, but for one kind of nonsense."""
        try:
            answer = await getattr(self, method)(*arguments)
            return answer if answer == "hello" else plain(answer)
        except Exception as error:  # noqa: BLE001 (told to whoever asked)
            return plain_failure(error)

    async def held(self) -> DrafterHoldings:
        """Nothing, and figures that no link has."""
        return DrafterHoldings((), 2**64 - 1, 7)

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

    async def forget(self, generations: Sequence[str]) -> None:
        """Agree to everything."""

    async def probe(self, _sent: bytes, reply_bytes: int) -> Answer:
        """Let itself be measured."""
        return Answer(bytes(reply_bytes), 0.0)

    async def exchange(self, generation: str, order: bytes) -> Any:
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
            "wider_vocabulary": lambda: wider,
            "more_than_asked": lambda: more_than_asked(request, held.wire),
        }
        if self._nonsense.kind == "refusal":
            raise MessageError("no")
        if self._nonsense.kind == "text":
            return "hello"
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
    return seal(MessageKind.BLOCK, request.round, writer.to_bytes(), request.prefix_hash)


@pytest.fixture(scope="module")
def genuine(service: Service) -> Iterator[DrafterCard]:
    """A genuine drafter's card. In the end the fleet has put genuine drafters back by itself."""
    eventually(lambda: in_state(service, IMPOSTORS, "ready"), _WITHIN_S)
    yield ray.get(service.drafter(IMPOSTORS[0]).card.remote(), timeout=60)
    eventually(lambda: in_state(service, IMPOSTORS, "ready"), _WITHIN_S)
    eventually(lambda: helped(complete(service)), _WITHIN_S)
    service.check_released()


@pytest.fixture(scope="module")
def undisturbed(service: Service) -> str:
    """What is answered with the help of genuine drafters."""
    answers: list[Any] = []

    def answered() -> bool:
        answers.append(complete(service))
        return helped(answers[-1])

    eventually(answered, _WITHIN_S)
    return str(answers[-1]["choices"][0]["text"])


def helped(answer: Any) -> bool:
    """Whether drafters had a part in a response; in one as short as these, not always."""
    return bool(answer["usage"]["outrider"]["accepted_tokens"] > 0)


def complete(service: Service) -> Any:
    """A response whose drafts are accepted in part."""
    options = {"protocol": "dssd", "window": _WINDOW}
    return service.complete("Story number 1:", max_tokens=_TOKENS, temperature=0, outrider=options)


def in_state(service: Service, names: Sequence[str], *states: str) -> bool:
    """Whether each of these drafters is in one of these states."""
    found = {drafter["name"]: drafter["state"] for drafter in service.drafters()}
    return all(found.get(name) in states for name in names)


def usurp(service: Service, name: str, nonsense: Nonsense) -> None:
    """Put an impostor in a drafter's place while the fleet does not look: it is ready, or refused for a while."""

    def moved_in() -> bool:
        actor: Any = ray.remote(Impostor).options(
            name=name, namespace=service.config.cluster.namespace, lifetime="detached", num_cpus=0, get_if_exists=True
        )
        try:
            if ray.get(actor.remote(nonsense).nonsense.remote(), timeout=60) == nonsense:
                return True
        except (ray.exceptions.RayError, AttributeError):  # a dead one whose name is not free yet, or a genuine one
            pass
        with contextlib.suppress(ValueError):
            ray.kill(service.drafter(name), no_restart=True)
        return False

    eventually(lambda: in_state(service, [name], "ready", "refused"), _WITHIN_S)
    eventually(moved_in, _WITHIN_S)


@pytest.mark.parametrize("kinds", [*STAGES, *LATER], ids=", ".join)
def test_strangers_are_refused_with_the_reason_and_the_responses_go_on(
    service: Service, genuine: DrafterCard, undisturbed: str, kinds: tuple[str, ...]
) -> None:
    """The next ones wait where the last ones were thrown out: the fleet tries each drafter again after a while.

    Who is slow to move in may be taken for a drafter that hangs: the fleet puts a genuine one in its place, and it has
    to move in again.
    """
    reasons = dict(zip(IMPOSTORS, (SPOILT.get(kind, f"needs {kind}") for kind in kinds), strict=False))
    impostors = {
        name: Nonsense(replace(genuine, **FAULTY[kind])) if kind in FAULTY else Nonsense(genuine, kind)
        for name, kind in zip(IMPOSTORS, kinds, strict=False)
    }
    told_before = len(service.events("drafter_refused"))

    def missing() -> list[str]:
        told = service.events("drafter_refused")[told_before:]
        found = {name for each in told if (name := each["drafter"]) in reasons and reasons[name] in each["reason"]}
        return [name for name in reasons if name not in found]

    for name, nonsense in impostors.items():
        usurp(service, name, nonsense)
    eventually(lambda: in_state(service, missing(), "ready"), _WITHIN_S)
    with ThreadPoolExecutor(6) as pool:
        give_up_at_s = time.monotonic() + _WITHIN_S
        while missing():
            assert time.monotonic() < give_up_at_s, missing()
            answers = pool.map(lambda _: complete(service), range(6))
            assert {answer["choices"][0]["text"] for answer in answers} == {undisturbed}
            for name in missing():
                usurp(service, name, impostors[name])
