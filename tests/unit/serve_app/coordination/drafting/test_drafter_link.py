"""A generation's way to a drafter: real draft engines behind an in-memory fleet; losses, nonsense, and what is left."""

import asyncio
from collections.abc import Callable

import pytest

from outrider.contracts.drafting import Draft, DraftPlan
from outrider.contracts.errors import (
    DrafterBrokenError,
    DrafterLostError,
    DrafterSilentError,
    DraftingFailedError,
    OutriderError,
)
from outrider.contracts.requests import GenerationRequest, SamplingParams
from outrider.contracts.verifying import Verified
from outrider.rounds.events import AskDrafter, Exchange
from outrider.rounds.generation import Generation
from outrider.rounds.states import RoundEvent
from serve_app.coordination.drafting.drafter_book import DrafterBook, ExchangeOutcome
from serve_app.coordination.drafting.drafter_link import DrafterLink
from serve_app.coordination.drafting.link_services import LinkServices
from tests.unit.engines.conftest import tiny_llama, torch_drafter
from tests.unit.engines.reference import tiny_alone
from tests.unit.serve_app.coordination.in_memory import (
    EDGE,
    FIRST,
    GREEDY,
    NONSENSE,
    PROMPT,
    SAMPLED,
    SECOND,
    SETTINGS,
    EngineTransport,
    Gate,
    MemoryFleet,
    until,
)
from tests.unit.virtual_clock import now_s, on_loop


def transport(blocks: int = 200) -> EngineTransport:
    return EngineTransport(torch_drafter(tiny_llama(), blocks=blocks))


def book() -> DrafterBook:
    return DrafterBook([EDGE])


def link_to(
    fleet: MemoryFleet, params: SamplingParams = GREEDY, noted: DrafterBook | None = None
) -> tuple[Generation, DrafterLink]:
    request = GenerationRequest("g", PROMPT, params, max_tokens=100, request_id="r")
    generation = Generation(request, eos_token_ids=(), max_context_tokens=256)
    return generation, DrafterLink(generation, LinkServices(fleet, noted or book(), SETTINGS, now_s))


async def ready(
    fleet: MemoryFleet, params: SamplingParams = GREEDY, noted: DrafterBook | None = None
) -> tuple[Generation, DrafterLink]:
    generation, link = link_to(fleet, params, noted)
    link.start()
    await until(lambda: link.ready)
    return generation, link


def commit(generation: Generation, *token_ids: int) -> None:
    """What the verifier decided meanwhile."""
    for token_id in token_ids:
        number = generation.begin_round(drafting=False)
        generation.round_happened(number, RoundEvent.ENQUEUED)
        generation.round_happened(number, RoundEvent.DISPATCHED)
        generation.commit(Verified(generation.name, number, (), token_id))


async def drafted(generation: Generation, link: DrafterLink, window: int = 4) -> Exchange | None:
    number = generation.begin_round(drafting=True)
    asked = AskDrafter(number, DraftPlan("token_ids", window), None, 0.0, must_use=False, expected_s=0.0)
    return (await link.draft(asked)).exchange


def tokens(exchange: Exchange) -> tuple[int, ...]:
    assert isinstance(exchange.answer, Draft)
    return exchange.answer.token_ids


def truth(generation: Generation, window: int = 4) -> tuple[int, ...]:
    """What the draft model says after what is committed, alone."""
    tokens = [*PROMPT, *generation.output_ids]
    return tuple(tiny_alone(tokens, generation.request.params, window))


async def assert_drafts_well(generation: Generation, link: DrafterLink) -> None:
    exchange = await drafted(generation, link)
    assert exchange is not None
    assert tokens(exchange) == truth(generation)


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
        assert tokens(exchange) == truth(generation, window)
        commit(generation, *tokens(exchange)[:accepted], 9)
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
    exchange = await drafted(generation, link)
    assert exchange is not None
    assert (exchange.draft_s, exchange.link_s > 0.0) == (0.0, True)
    fleet.transports[FIRST].drafter_s = 7.0  # no drafter works longer than it is waited for
    exchange = await drafted(generation, link)
    assert exchange is not None
    assert (exchange.draft_s > 0.0, exchange.link_s) == (True, 0.0)


@on_loop
async def test_the_sizes_of_messages_are_counted() -> None:
    fleet = MemoryFleet(transport())
    generation, link = await ready(fleet)
    before = generation.stats
    exchange = await drafted(generation, link)
    assert exchange is not None
    assert min(exchange.up_bits, exchange.down_bits) > 0
    assert generation.stats.payload_up_bits - before.payload_up_bits == exchange.up_bits
    assert generation.stats.payload_down_bits - before.payload_down_bits == exchange.down_bits


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (DrafterSilentError("late"), ExchangeOutcome.SILENT),
        (DrafterLostError("gone"), ExchangeOutcome.GONE),
        (DrafterBrokenError("nonsense"), ExchangeOutcome.BROKEN),
        (DraftingFailedError("at this one"), ExchangeOutcome.BROKEN),
    ],
    ids=lambda each: str(getattr(each, "value", type(each).__name__)),
)
@on_loop
async def test_what_came_of_messages_is_counted_by_group(error: OutriderError, outcome: ExchangeOutcome) -> None:
    fleet, noted = MemoryFleet(transport()), book()
    generation, link = await ready(fleet, noted=noted)
    await assert_drafts_well(generation, link)
    assert noted.take_exchanges() == {("edge", ExchangeOutcome.ANSWERED): 2}, "the prompt is one"
    fleet.transports[FIRST].lost["draft"] = error
    assert await drafted(generation, link) is None
    assert noted.take_exchanges() == {("edge", outcome): 1}
    assert noted.take_exchanges() == {}


@on_loop
async def test_nonsense_is_no_answer() -> None:
    fleet, noted = MemoryFleet(transport()), book()
    generation, link = await ready(fleet, noted=noted)
    noted.take_exchanges()
    fleet.transports[FIRST].changes["draft"] = NONSENSE["zeros"]
    assert await drafted(generation, link) is None
    assert noted.take_exchanges() == {("edge", ExchangeOutcome.BROKEN): 1}


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
    first.restarted(torch_drafter(tiny_llama()))
    assert await drafted(generation, link) is None
    await until(lambda: link.ready)
    assert (fleet.reported, fleet.faults, link.losses) == ([], {}, 0)
    assert [opening.output_ids for opening in first.opened] == [(), (9, 10)]
    await assert_drafts_well(generation, link)


@on_loop
async def test_a_drafter_that_forgets_every_time_is_reported() -> None:
    fleet = MemoryFleet(transport())
    generation, link = await ready(fleet)
    first = fleet.transports[FIRST]
    while not fleet.faults:
        first.restarted(torch_drafter(tiny_llama()))
        assert await drafted(generation, link) is None
        await until(lambda: link.ready or bool(fleet.faults))
    assert "forgets" in fleet.faults[FIRST]
    assert len(first.opened) == 6
    link.close()


@pytest.mark.parametrize("step", ["prefill", "draft"])
@pytest.mark.parametrize("change", NONSENSE.values(), ids=NONSENSE.keys())
@on_loop
async def test_an_answer_that_was_not_asked_for_is_dropped_and_reported(
    change: Callable[[bytes], bytes], step: str
) -> None:
    fleet = MemoryFleet(transport(), transport())
    first = fleet.transports[FIRST]
    if step == "draft":
        generation, link = await ready(fleet)
        first.changes[step] = change
        assert await drafted(generation, link) is None
    else:
        first.changes[step] = change
        generation, link = await ready(fleet)
    assert (list(fleet.faults), fleet.reported, link.losses) == ([FIRST], [], 1)
    assert fleet.faults[FIRST].startswith("drafter drafter-edge-0 sent unreadable data: ")
    assert first.empty
    await until(lambda: link.ready)
    await assert_drafts_well(generation, link)
    assert fleet.table.loads() == {SECOND: 1}


@on_loop
async def test_a_drafter_that_denies_what_it_was_just_given_is_broken() -> None:
    fleet = MemoryFleet(transport(), transport())
    fleet.transports[FIRST].changes["prefill"] = lambda _: b""
    generation, link = await ready(fleet)
    assert fleet.faults == {FIRST: "drafter drafter-edge-0 does not hold the generation just given"}
    await assert_drafts_well(generation, link)


@pytest.mark.parametrize("step", ["open", "prefill", "draft"])
@pytest.mark.parametrize(
    "error", [DrafterLostError("no answer"), DrafterBrokenError("no reply")], ids=["lost", "broken"]
)
@on_loop
async def test_a_drafter_that_fails_keeps_nothing_and_is_reported_as_what_it_is(
    error: OutriderError, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = MemoryFleet(transport(), transport())
    fleet.transports[FIRST].lost[step] = error
    generation, link = await ready(fleet)
    if step == "draft":
        assert await drafted(generation, link) is None
        await until(lambda: link.ready)
    assert fleet.transports[FIRST].empty
    if isinstance(error, DrafterBrokenError):
        assert (fleet.reported, fleet.faults) == ([], {FIRST: "no reply"})
    else:
        assert (fleet.reported, fleet.faults) == ([FIRST], {})
    assert link.losses == 1
    await assert_drafts_well(generation, link)
    given_up = [vars(record)["fields"] for record in caplog.records if record.message == "drafter_given_up"]
    named = {"request_id": "r", "generation": "g", "drafter": "drafter-edge-0"}
    assert given_up == [{**named, "reason": str(error), "correction_owed": False}]


@on_loop
async def test_a_drafter_that_is_too_small_is_not_asked_again_and_not_reported() -> None:
    fleet = MemoryFleet(transport(blocks=1))
    _, link = link_to(fleet)
    link.start()
    await until(lambda: len(fleet.excluded) >= 4)
    assert len(fleet.transports[FIRST].opened) == 1
    assert fleet.excluded == [frozenset(), *[frozenset({FIRST})] * (len(fleet.excluded) - 1)]
    assert (fleet.reported, fleet.faults, link.losses) == ([], {}, 0)
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
    elif state in ("open", "prefill"):
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


STATES = ("not started", "leasing", "open", "prefill", "none to be had", "ready", "after a round", "replacing")


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


@on_loop
async def test_a_drafter_that_catches_up_is_not_taken_for_slow() -> None:
    fleet = MemoryFleet(drafter := transport())
    generation, link = await ready(fleet)
    for behind, drafter_s in ((1, 2e-5), (60, 8e-5), (1, 2e-5)):
        commit(generation, *[7] * behind)
        drafter.drafter_s = drafter_s
        assert await drafted(generation, link, 2) is not None
        view = link.drafter.view if link.drafter else None
        assert view is not None
        assert view.step_s == 1e-5
    link.close()


@on_loop
async def test_a_drafter_that_fails_at_this_generation_ends_its_drafting() -> None:
    """With a word to the fleet, and none to other drafters."""
    first, second = transport(), transport()
    fleet = MemoryFleet(first, second)
    generation, link = await ready(fleet)
    first.lost["draft"] = DraftingFailedError("drafting for g fails: nan")
    assert await drafted(generation, link) is None
    assert fleet.witnesses == [(FIRST, "g")]
    await asyncio.sleep(10.0)
    assert (link.ready, link.drafter, link.losses, second.opened) == (False, None, 1, [])
    link.close()
    await until(lambda: fleet.empty)


@on_loop
async def test_a_generation_that_loses_one_drafter_after_the_other_goes_on_alone() -> None:
    drafters = [transport() for _ in range(9)]
    fleet = MemoryFleet(*drafters)
    for each in drafters:
        each.lost["prefill"] = DrafterLostError("gone")
    _, link = link_to(fleet)
    link.start()
    await asyncio.sleep(60.0)
    assert len(fleet.reported) == link.losses == SETTINGS.most_losses
    assert sum(len(each.opened) for each in drafters) == SETTINGS.most_losses
    link.close()
    await until(lambda: fleet.empty)


@on_loop
async def test_an_error_nobody_thought_of_ends_drafting_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    only = transport()
    fleet = MemoryFleet(only)
    only.lost["prefill"] = ZeroDivisionError("no such thing")  # type: ignore[assignment]  # it is no error of ours
    _, link = link_to(fleet)
    link.start()
    await until(lambda: any(record.message == "drafting_ended" for record in caplog.records))
    assert link.drafter is None
    link.close()
    await until(lambda: fleet.empty)
