"""A generation's way to a drafter: real draft engines behind an in-memory fleet; losses, nonsense, and what is left."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec

import pytest

from actors.lease_table import LeaseTable
from actors.messages import DrafterId, DraftReply, ModelCard
from outrider.engines.base import AcceptanceRule, Draft, DraftRequest, NeedsPrefix, OpenGeneration, Verified
from outrider.engines.torch_drafter import TorchDrafter
from outrider.errors import DrafterLostError, OutriderError
from outrider.generation import Generation, RoundEvent
from outrider.types import GenerationId, GenerationRequest, SamplingParams
from serve_app.drafter_link import DrafterLink, DrafterPort, Exchange, LinkSettings
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_drafter
from tests.unit.engines.reference import target_alone

P = ParamSpec("P")
GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.9, seed=3)
PROMPT = (5, 17, 42, 8, 61, 30, 2)
FIRST, SECOND = DrafterId("edge", 0), DrafterId("edge", 1)
TARGET, ANOTHER_TARGET = "target", "another target"  # their token map hashes
SETTINGS = LinkSettings(
    draft_deadline_s=1.0, prefill_deadline_s=1.0, retry_s=0.001, vocab_size=VOCAB, token_map_hash=TARGET
)


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on a loop of its own, within bounds."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until a condition holds; the test's own bound ends a wait in vain."""
    while not condition():  # noqa: ASYNC110 (what is awaited is product state, which has no event)
        await asyncio.sleep(0.001)


class Gate:
    """Where answers can be held back."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def wait(self) -> None:
        """Be held until the gate is opened."""
        self.reached.set()
        await self.opened.wait()


class EngineTransport:
    """A real draft engine in this process. An answer can be held back, lost or changed on its way."""

    def __init__(self, engine: TorchDrafter, made_for: str = TARGET) -> None:
        self.engine = engine
        self.gates: dict[str, Gate] = {}  # by step: card, open, prefill, draft
        self.lost: dict[str, OutriderError] = {}  # by step: the request arrives, its answer does not
        self.change: Callable[[Draft], Draft] | None = None
        self.opened: list[OpenGeneration] = []
        self.drafted: list[DraftRequest] = []
        self.drafter_s = 0.0
        self._made_for = made_for
        self._answers: dict[tuple[GenerationId, int], Draft | NeedsPrefix] = {}

    async def card(self, deadline_s: float) -> ModelCard:  # noqa: ARG002 (interface)
        """Who it is."""
        await self._on_the_way("card")
        return ModelCard("tiny", "hash", self._made_for, VOCAB, (), self.engine.max_context_tokens)

    async def open(self, request: OpenGeneration, deadline_s: float) -> None:  # noqa: ARG002 (interface)
        """Hold a generation."""
        self.opened.append(request)
        self.engine.open(request)
        await self._on_the_way("open")

    async def draft(self, request: DraftRequest, deadline_s: float) -> DraftReply:  # noqa: ARG002 (interface)
        """Exchange one round; others' exchanges go on between two steps of the engine."""
        key = (request.generation, request.round)
        self.engine.submit(request)
        while key not in self._answers:
            if not self.engine.busy:
                raise DrafterLostError(f"round {key} was closed")
            self._answers |= {(answer.generation, answer.round): answer for answer in self.engine.step()}
            await asyncio.sleep(0)
        answer = self._answers.pop(key)
        if request.window:
            self.drafted.append(request)
        await self._on_the_way("draft" if request.window else "prefill")
        if self.change is not None and request.window and isinstance(answer, Draft):
            answer = self.change(answer)
        return DraftReply(answer, self.drafter_s)

    def close(self, generation: GenerationId) -> None:
        """Forget a generation."""
        self.engine.close(generation)

    @property
    def empty(self) -> bool:
        """Whether it holds nothing."""
        usage = self.engine.usage()
        return (usage.generations, usage.used_blocks) == (0, 0)

    async def _on_the_way(self, step: str) -> None:
        if step in self.gates:
            await self.gates[step].wait()
        if step in self.lost:
            raise self.lost[step]


class MemoryFleet:
    """The fleet's own lease table, without the fleet's probes: who is reported lost stays out until ``back``."""

    def __init__(self, *transports: EngineTransport) -> None:
        self.table = LeaseTable()
        self.transports: dict[DrafterId, EngineTransport] = {}
        self.gate: Gate | None = None
        self.leased: set[GenerationId] = set()
        self.excluded: list[frozenset[DrafterId]] = []  # of every call
        self.reported: list[DrafterId] = []
        for transport in transports:
            self.add(transport)

    def add(self, transport: EngineTransport) -> None:
        """One more drafter is up."""
        drafter = DrafterId("edge", len(self.transports))
        self.transports[drafter] = transport
        self.table.add(drafter, capacity=8)
        self.back(drafter)

    def back(self, drafter: DrafterId) -> None:
        """The drafter was probed or restarted, and answers."""
        self.table.mark_ready(drafter)

    async def lease(self, generation: GenerationId, exclude: frozenset[DrafterId]) -> DrafterPort | None:
        """As ``FleetActor``: what was asked for is done, even if nobody waits for the answer any more."""
        self.excluded.append(exclude)
        drafter = self.table.lease(generation, exclude)
        if drafter is not None:
            self.leased.add(generation)
        if self.gate is not None:
            await self.gate.wait()
        return None if drafter is None else DrafterPort(drafter, self.transports[drafter])

    def release(self, generation: GenerationId) -> None:
        """End the lease."""
        self.table.release(generation)
        self.leased.discard(generation)

    def report_lost(self, drafter: DrafterId) -> None:
        """No new leases on it."""
        self.reported.append(drafter)
        self.table.mark_suspect(drafter)

    @property
    def empty(self) -> bool:
        """Whether nothing is leased, nor held by a drafter."""
        return not self.leased and all(transport.empty for transport in self.transports.values())


def transport(blocks: int = 200, made_for: str = TARGET) -> EngineTransport:
    return EngineTransport(torch_drafter(tiny_llama(), blocks=blocks), made_for)


def link_to(fleet: MemoryFleet, params: SamplingParams = GREEDY) -> tuple[Generation, DrafterLink]:
    request = GenerationRequest("g", PROMPT, params, max_tokens=100)
    generation = Generation(request, eos_token_ids=(), max_context_tokens=256)
    rule = AcceptanceRule.GREEDY if params.greedy else AcceptanceRule.SHARED_NOISE
    return generation, DrafterLink(generation, fleet, SETTINGS, rule)


async def ready(fleet: MemoryFleet, params: SamplingParams = GREEDY) -> tuple[Generation, DrafterLink]:
    generation, link = link_to(fleet, params)
    link.start()
    await until(lambda: link.ready)
    return generation, link


def commit(generation: Generation, *token_ids: int) -> None:
    """What the verifier decided meanwhile."""
    for token_id in token_ids:
        number = generation.begin_round(drafting=False)
        generation.round_happened(number, RoundEvent.ENQUEUED)
        generation.round_happened(number, RoundEvent.DISPATCHED)
        generation.commit(Verified(generation.name, number, (), token_id), ())


async def drafted(generation: Generation, link: DrafterLink, window: int = 4) -> Exchange | None:
    return await link.draft(generation.begin_round(drafting=True), window, lambda: 0.0)


def truth(generation: Generation, window: int = 4) -> tuple[int, ...]:
    """What the draft model says after what is committed, alone."""
    tokens = [*PROMPT, *generation.output_ids]
    return tuple(target_alone(tiny_llama(), tokens, generation.request.params, window))


async def assert_drafts_well(generation: Generation, link: DrafterLink) -> None:
    exchange = await drafted(generation, link)
    assert exchange is not None
    assert exchange.draft.token_ids == truth(generation)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@on_loop
async def test_ready_once_leased_opened_and_prefilled_and_fed_from_then_on(params: SamplingParams) -> None:
    fleet = MemoryFleet(transport())
    generation, link = link_to(fleet, params)
    assert not link.ready
    link.start()
    assert not link.ready
    await until(lambda: link.ready)
    for window, accepted in ((3, 2), (1, 0), (5, 5), (2, 1)):
        exchange = await drafted(generation, link, window)
        assert exchange is not None
        assert exchange.draft.token_ids == truth(generation, window)
        commit(generation, *exchange.draft.token_ids[:accepted], 9)
    fed = [(request.feedback_position, request.feedback) for request in fleet.transports[FIRST].drafted[1:]]
    starts = [len(PROMPT), len(PROMPT) + 3, len(PROMPT) + 4]
    ends = [*starts[1:], len(PROMPT) + 10]
    assert fed == [
        (start, tuple(generation.output_ids[start - len(PROMPT) : end - len(PROMPT)]))
        for start, end in zip(starts, ends, strict=True)
    ], "only what is new travels"


@on_loop
async def test_an_exchange_tells_the_drafters_time_from_the_links() -> None:
    fleet = MemoryFleet(transport())
    generation, link = await ready(fleet)
    for drafter_s, expected in ((0.25, (0.25, 0.75)), (7.0, (1.0, 0.0))):
        fleet.transports[FIRST].drafter_s = drafter_s
        clock = iter((10.0, 11.0))
        exchange = await link.draft(generation.begin_round(drafting=True), 2, clock.__next__)
        assert exchange is not None
        assert (exchange.draft_s, exchange.link_s) == expected


@on_loop
async def test_without_a_drafter_it_asks_until_there_is_one() -> None:
    fleet = MemoryFleet()
    generation, link = link_to(fleet)
    link.start()
    await until(lambda: len(fleet.excluded) >= 3)
    assert not link.ready
    fleet.add(transport())
    await until(lambda: link.ready)
    await assert_drafts_well(generation, link)


@on_loop
async def test_a_lost_drafter_is_replaced_from_the_tokens_committed_meanwhile() -> None:
    fleet = MemoryFleet(transport(), transport())
    first, second = fleet.transports.values()
    generation, link = await ready(fleet)
    commit(generation, 9)
    first.lost["draft"] = DrafterLostError("gone")
    second.gates = {"open": Gate(), "prefill": Gate()}
    assert await drafted(generation, link) is None
    assert not link.ready
    assert fleet.reported == [FIRST]
    assert first.empty
    await second.gates["open"].reached.wait()
    commit(generation, 12, 44)
    second.gates["open"].opened.set()
    await second.gates["prefill"].reached.wait()
    commit(generation, 3)
    second.gates["prefill"].opened.set()
    await until(lambda: link.ready)
    assert [opening.output_ids for opening in second.opened] == [(9,)], "what came later travels as feedback"
    await assert_drafts_well(generation, link)
    assert fleet.table.loads() == {SECOND: 1}


@on_loop
async def test_a_drafter_that_comes_back_after_its_loss_is_used_again() -> None:
    fleet = MemoryFleet(transport())
    first = fleet.transports[FIRST]
    generation, link = await ready(fleet)
    first.lost["draft"] = DrafterLostError("gone")
    assert await drafted(generation, link) is None
    asked = len(fleet.excluded)
    await until(lambda: len(fleet.excluded) >= asked + 2)
    assert not link.ready
    first.lost.clear()
    fleet.back(FIRST)
    await until(lambda: link.ready)
    await assert_drafts_well(generation, link)


@on_loop
async def test_a_drafter_that_forgot_the_prefix_is_opened_again() -> None:
    fleet = MemoryFleet(transport())
    first = fleet.transports[FIRST]
    generation, link = await ready(fleet)
    await assert_drafts_well(generation, link)
    commit(generation, 9, 10)
    first.engine = torch_drafter(tiny_llama())  # it restarted
    assert await drafted(generation, link) is None
    await until(lambda: link.ready)
    assert fleet.reported == []
    assert [opening.output_ids for opening in first.opened] == [(), (9, 10)]
    await assert_drafts_well(generation, link)


NONSENSE: dict[str, Callable[[Draft], Draft]] = {
    "another generation": lambda draft: replace(draft, generation="h"),
    "another round": lambda draft: replace(draft, round=draft.round + 1),
    "another position": lambda draft: replace(draft, position=draft.position - 1),
    "too many tokens": lambda draft: replace(draft, token_ids=(*draft.token_ids, 1)),
    "an id behind the vocabulary": lambda draft: replace(draft, token_ids=(*draft.token_ids[:-1], VOCAB)),
    "a negative id": lambda draft: replace(draft, token_ids=(-1, *draft.token_ids[1:])),
}


@pytest.mark.parametrize("change", NONSENSE.values(), ids=NONSENSE.keys())
@on_loop
async def test_an_answer_that_was_not_asked_for_is_dropped_and_reported(change: Callable[[Draft], Draft]) -> None:
    fleet = MemoryFleet(transport(), transport())
    generation, link = await ready(fleet)
    fleet.transports[FIRST].change = change
    assert await drafted(generation, link) is None
    assert fleet.reported == [FIRST]
    assert fleet.transports[FIRST].empty
    await until(lambda: link.ready)
    await assert_drafts_well(generation, link)
    assert fleet.table.loads() == {SECOND: 1}


@on_loop
async def test_a_drafter_made_for_another_target_is_passed_over() -> None:
    fleet = MemoryFleet(transport(made_for=ANOTHER_TARGET), transport())
    generation, link = await ready(fleet)
    assert fleet.transports[FIRST].opened == []
    await assert_drafts_well(generation, link)
    assert fleet.table.loads() == {SECOND: 1}


@pytest.mark.parametrize("step", ["card", "open", "prefill"])
@on_loop
async def test_a_drafter_that_cannot_be_made_ready_keeps_nothing(step: str) -> None:
    fleet = MemoryFleet(transport(), transport())
    fleet.transports[FIRST].lost[step] = DrafterLostError("no answer")
    generation, link = await ready(fleet)
    assert fleet.transports[FIRST].empty
    assert fleet.reported == [FIRST]
    await assert_drafts_well(generation, link)


@on_loop
async def test_a_drafter_that_is_too_small_is_not_asked_again_and_not_reported() -> None:
    fleet = MemoryFleet(transport(blocks=1))
    _, link = link_to(fleet)
    link.start()
    await until(lambda: len(fleet.excluded) >= 4)
    assert len(fleet.transports[FIRST].opened) == 1
    assert fleet.excluded == [frozenset(), *[frozenset({FIRST})] * (len(fleet.excluded) - 1)]
    assert fleet.reported == []
    fleet.add(transport())
    await until(lambda: link.ready)
    assert fleet.table.loads() == {FIRST: 0, SECOND: 1}


async def reach(state: str, fleet: MemoryFleet, generation: Generation, link: DrafterLink) -> None:
    """Bring a link into a state."""
    first = fleet.transports[FIRST]
    if state == "not started":
        return
    if state == "leasing":
        fleet.gate = Gate()
        link.start()
        await fleet.gate.reached.wait()
    elif state in ("card", "open", "prefill"):
        first.gates[state] = Gate()
        link.start()
        await first.gates[state].reached.wait()
    elif state == "none to be had":
        fleet.report_lost(FIRST)
        link.start()
        await until(lambda: len(fleet.excluded) >= 2)
    else:
        link.start()
        await until(lambda: link.ready)
    if state in ("after a round", "replacing"):
        await assert_drafts_well(generation, link)
    if state == "replacing":
        fleet.add(transport())
        first.lost["draft"], fleet.gate = DrafterLostError("gone"), Gate()
        assert await drafted(generation, link) is None
        await fleet.gate.reached.wait()


STATES = ("not started", "leasing", "card", "open", "prefill", "none to be had", "ready", "after a round", "replacing")


@pytest.mark.parametrize("state", STATES)
@on_loop
async def test_closing_leaves_nothing_behind(state: str) -> None:
    fleet = MemoryFleet(transport())
    generation, link = link_to(fleet)
    await reach(state, fleet, generation, link)
    assert fleet.empty is (state in ("not started", "none to be had"))
    link.close()
    assert fleet.empty
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    assert fleet.empty, "nothing is leased or opened afterwards"
