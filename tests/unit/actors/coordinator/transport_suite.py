"""What whoever carries messages to a drafter has to do: one suite for every ``DrafterTransport``.

A ``Rig`` is a drafter that runs somewhere, and a transport to it. Its host answers for some generations, and to some
probes, as no honest drafter does.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import pytest

from actors.coordinator.transport import DrafterTransport
from edge.host import DrafterHost
from outrider.contracts.drafting import Draft, DraftAnswer, DraftPlan, DraftRequest, DraftTerms, NeedsPrefix
from outrider.contracts.errors import (
    ContextTooLongError,
    DrafterBrokenError,
    DrafterLostError,
    DrafterSilentError,
    DraftingFailedError,
)
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import GenerationId, SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.session.session import CoordinatorSession
from outrider.versions import VERSIONS
from outrider.wire.replies import Answer, DrafterCard
from tests.unit.engines.reference import target_alone
from tests.unit.engines.table_drafter import TableDrafter, TableModel

VOCAB, LONGEST = 41, 128
CARD = DrafterCard("table", "model", "tokens", VOCAB, (0,), LONGEST)
PROMPT = (5, 17, 8, 30, 2)
PARAMS = SamplingParams(temperature=0.9, top_k=20, seed=3)
TERMS = DraftTerms(WireFormat(VOCAB))
SOON_S, LATE_S = 60.0, 0.3  # deadlines: of what comes, and of what does not
STUCK, POISONED, GIANT = "stuck", "poisoned", "giant"  # generations
LIE, FLOOD = b"lie", b"flood"  # what a probe sends


class SuiteDrafter(TableDrafter):
    """Fails at one generation, and waits in each step while another is drafted for."""

    def __init__(self) -> None:
        super().__init__(TableModel(VOCAB), LONGEST)
        self.may_go_on = threading.Event()

    def step(self, among: Collection[GenerationId] | None = None) -> list[DraftAnswer]:
        """Fail, wait or draft."""
        names = self.started() if among is None else among
        if POISONED in names:
            raise RuntimeError("nan")
        if STUCK in names:
            assert self.may_go_on.wait(SOON_S)
        return super().step(among)


class Lies:
    """A host's answers that are larger than what was asked for."""

    async def exchange(self, generation: GenerationId, order: bytes) -> Answer:
        """A mebibyte, for one generation."""
        if generation == GIANT:
            return Answer(bytes(2**20), 0.0)
        answer: Answer = await super().exchange(generation, order)  # type: ignore[misc]  # of the host beside
        return answer

    async def probe(self, sent: bytes, reply_bytes: int) -> Answer:
        """A byte or a mebibyte more, to some probes."""
        return Answer(bytes(reply_bytes + {LIE: 1, FLOOD: 2**20}.get(sent, 0)), 0.0)


class SuiteHost(Lies, DrafterHost):
    def __init__(self) -> None:
        self.drafter = SuiteDrafter()
        super().__init__(self.drafter, CARD, ThreadPoolExecutor(1))


class Rig(Protocol):
    @property
    def transport(self) -> DrafterTransport: ...

    async def go_on(self) -> None:
        """Let the stuck generation be drafted."""
        ...

    async def lose(self, generation: GenerationId) -> None:
        """Have the drafter forget a generation."""
        ...

    async def end(self) -> None:
        """End the drafter's process, or what stands for it."""
        ...


class Client:
    """A generation's rounds over a transport."""

    def __init__(self, transport: DrafterTransport, name: str = "g") -> None:
        self.transport, self.name, self.tokens = transport, name, [*PROMPT]
        self.session = CoordinatorSession(replace(TERMS.wire, version=transport.message_version), name)
        self.known, self.number = len(PROMPT), 0

    async def open(self) -> None:
        opening = OpenGeneration(self.name, PROMPT, PARAMS, tuple(self.tokens[len(PROMPT) :]))
        await self.transport.open(opening, TERMS, SOON_S)
        self.known = len(self.tokens)

    def order(self) -> tuple[bytes, DraftRequest]:
        feedback, prefix_hash = tuple(self.tokens[self.known :]), extend_prefix_hash(EMPTY_PREFIX_HASH, self.tokens)
        request = DraftRequest(self.name, self.number, self.known, feedback, prefix_hash, DraftPlan("token_ids", 3))
        return self.session.encode_order(request), request

    async def asked(self, deadline_s: float = SOON_S) -> Answer:
        return await self.transport.exchange(self.name, self.order()[0], deadline_s, 4096)

    async def round(self) -> None:
        """Have a block drafted, which is to be what the target says of the tokens; commit some of it."""
        order, request = self.order()
        answer = await self.transport.exchange(self.name, order, SOON_S, 4096)
        draft = self.session.decode_answer(answer.data, request)
        assert isinstance(draft, Draft)
        assert list(draft.token_ids) == target_alone(TableModel(VOCAB), self.tokens, PARAMS, 3, VOCAB)
        self.known, self.number = len(self.tokens), self.number + 1
        self.tokens += [*draft.token_ids[:2], 7]


async def rounds_of_several_generations(rig: Rig) -> None:
    async def three_rounds(name: str) -> None:
        client = Client(rig.transport, name)
        await client.open()
        for _ in range(3):
            await client.round()

    await asyncio.gather(*map(three_rounds, ("a", "b", "ü" * 100)))


async def a_repeated_order_has_the_same_answer(rig: Rig) -> None:
    client = Client(rig.transport)
    await client.open()
    first, second = await client.asked(), await client.asked()
    assert first.data == second.data != b""
    await asyncio.gather(client.asked(LATE_S), client.asked(LATE_S), return_exceptions=True)
    assert (await client.asked()).data == first.data


async def what_is_not_held_is_answered_by_nothing(rig: Rig) -> None:
    assert (await Client(rig.transport).asked()).data == b""


async def a_generation_that_was_lost_is_opened_again(rig: Rig) -> None:
    client = Client(rig.transport)
    await client.open()
    await client.round()
    await rig.lose("g")
    assert (await client.asked()).data == b""
    client.session = CoordinatorSession(TERMS.wire, "g")
    await client.open()
    await client.round()


async def a_generation_opened_twice_goes_on(rig: Rig) -> None:
    client = Client(rig.transport)
    await client.open()
    await client.open()
    await client.round()


async def other_tokens_are_told(rig: Rig) -> None:
    """Those that the order assumes; the generation is as it was."""
    client = Client(rig.transport)
    await client.open()
    strange = Client(rig.transport)
    strange.tokens, strange.known = [*PROMPT, 7, 7], len(PROMPT) + 1
    order, request = strange.order()
    answer = await rig.transport.exchange("g", order, SOON_S)
    assert answer.data == b"" or isinstance(strange.session.decode_answer(answer.data, request), NeedsPrefix)
    await client.round()


async def a_damaged_order_harms_nobody(rig: Rig) -> None:
    client = Client(rig.transport)
    await client.open()
    order = bytearray(client.order()[0])
    order[-1] ^= 1
    assert (await rig.transport.exchange("g", bytes(order), SOON_S)).data == b""
    with pytest.raises(DrafterBrokenError, match="truncated or oversized"):
        await rig.transport.exchange("g", b"", SOON_S)
    await client.round()


async def probes_bring_as_much_as_is_asked_for(rig: Rig) -> None:
    for sent, asked in ((b"", 0), (b"?", 3), (bytes(2**20), 0), (b"", 2**20)):
        assert (await rig.transport.probe(sent, asked, SOON_S)).data == bytes(asked)


async def a_generation_may_be_closed_twice_or_unknown(rig: Rig) -> None:
    client = Client(rig.transport)
    await client.open()
    for name in ("g", "g", "unknown"):
        rig.transport.close(name)
    while True:  # it is not waited for, and an order that it meets is not answered
        with suppress(DrafterSilentError):
            if not (await client.asked(LATE_S)).data:
                break
    await client.open()
    await client.round()


async def one_that_is_too_long_is_told(rig: Rig) -> None:
    with pytest.raises(ContextTooLongError, match=f"a drafter limit of {LONGEST}"):
        await rig.transport.open(OpenGeneration("long", PROMPT * 100, PARAMS), TERMS, SOON_S)


async def one_that_fails_is_told_from_a_drafter_that_does(rig: Rig) -> None:
    good, bad = Client(rig.transport), Client(rig.transport, POISONED)
    await asyncio.gather(good.open(), bad.open())
    with pytest.raises(DraftingFailedError, match="drafting for poisoned fails: RuntimeError: nan"):
        await bad.asked()
    await good.round()


async def what_an_engine_does_not_draft_is_told(rig: Rig) -> None:
    client = Client(rig.transport)
    await client.open()
    request = replace(client.order()[1], plan=DraftPlan("dsd", 3))
    with pytest.raises(DrafterBrokenError, match="UnsupportedBlockError"):
        await rig.transport.exchange("g", client.session.encode_order(request), SOON_S)


async def a_deadline_ends_a_call_and_the_drafter_lives(rig: Rig) -> None:
    client = Client(rig.transport, STUCK)
    await client.open()
    try:
        with pytest.raises(DrafterSilentError, match=r"needs to answer within 0\.3 s"):
            await client.asked(LATE_S)
        assert (await rig.transport.probe(b"?", 1, SOON_S)).data == bytes(1), "meanwhile it shows that it lives"
    finally:
        await rig.go_on()
    await client.round()


async def more_than_was_asked_for_is_not_read(rig: Rig) -> None:
    await Client(rig.transport, GIANT).open()
    with pytest.raises(DrafterBrokenError, match="at most"):
        await rig.transport.exchange(GIANT, b"?", SOON_S, 4096)
    with pytest.raises(DrafterBrokenError, match="at most"):
        await rig.transport.probe(FLOOD, 1, SOON_S)
    with pytest.raises(DrafterBrokenError, match="needs to send 1 bytes, found 2"):
        await rig.transport.probe(LIE, 1, SOON_S)
    await rounds_of_several_generations(rig)


async def one_that_is_gone_is_lost(rig: Rig) -> None:
    client = Client(rig.transport)
    await client.open()
    await rig.end()
    with pytest.raises(DrafterLostError):
        await client.asked(LATE_S)
    with pytest.raises(DrafterLostError):
        await rig.transport.probe(b"?", 1, LATE_S)
    rig.transport.close("g")


async def the_highest_version_of_messages_is_used(rig: Rig) -> None:
    assert rig.transport.message_version == VERSIONS.messages.newest


CHECKS: tuple[Callable[[Rig], Awaitable[None]], ...] = (
    rounds_of_several_generations,
    a_repeated_order_has_the_same_answer,
    what_is_not_held_is_answered_by_nothing,
    a_generation_that_was_lost_is_opened_again,
    a_generation_opened_twice_goes_on,
    other_tokens_are_told,
    a_damaged_order_harms_nobody,
    probes_bring_as_much_as_is_asked_for,
    a_generation_may_be_closed_twice_or_unknown,
    one_that_is_too_long_is_told,
    one_that_fails_is_told_from_a_drafter_that_does,
    what_an_engine_does_not_draft_is_told,
    a_deadline_ends_a_call_and_the_drafter_lives,
    more_than_was_asked_for_is_not_read,
    one_that_is_gone_is_lost,
    the_highest_version_of_messages_is_used,
)


def name_of(check: Callable[[Rig], Awaitable[None]]) -> str:
    return check.__name__


every_check = pytest.mark.parametrize("check", CHECKS, ids=name_of)
