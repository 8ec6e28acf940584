"""Drafts that are ordered while the verifier goes on by itself: whenever they come, the target's own tokens."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from actors.messages import StepReply
from outrider.contracts.cost import VerifyCost
from outrider.contracts.drafting import Draft
from outrider.contracts.errors import DrafterLostError
from outrider.contracts.requests import FinishReason, GenerationChunk, GenerationRequest, SamplingParams
from outrider.contracts.slo import LedgerRecord, SloClass
from outrider.contracts.verifying import RATIO_RULES, Block
from outrider.rounds.events import DrafterAnswered, Join, OrderAhead
from outrider.rounds.machine import RoundMachine
from outrider.rounds.promise_tracker import VerifyTerms
from outrider.rounds.states import RoundEvent
from outrider.selection.fixed import Fixed
from outrider.selection.situation import RoundChoice, RoundSituation
from serve_app.coordination.credit import Credit
from tests.unit.engines.conftest import tiny_llama, torch_drafter
from tests.unit.serve_app.api.in_memory_service import (
    ENGINE_S,
    LENGTH,
    LONG_PROMPT,
    PARAMS,
    Service,
    drafter,
    request_for,
    tokens_of,
    truth_of,
)
from tests.unit.serve_app.coordination.hand_driven import Picky
from tests.unit.serve_app.coordination.in_memory import FIRST, GREEDY, LINK_S, SAMPLED, EngineTransport, Gate, until
from tests.unit.virtual_clock import now_s, on_loop


@dataclass
class Ahead:
    """Policy ``fixed`` where an exchange is known to take many rounds of the verifier alone."""

    without_draft_s: float = ENGINE_S
    exchange_s: float = 8 * ENGINE_S

    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        """As ``Fixed``."""
        choice = Fixed().choose(situation, previous)
        if choice.chosen.plan is None:
            return choice
        chosen = replace(choice.chosen, without_draft_s=self.without_draft_s, exchange_s=self.exchange_s, load=0.0)
        return replace(choice, chosen=chosen)


def serving(*drafters: EngineTransport, **settings: object) -> Service:
    service = Service(*drafters, **settings)  # type: ignore[arg-type]
    service.rules = replace(service.rules, policy=Ahead())
    return service


def slow(seed: int, most_s: float = 12 * ENGINE_S, device: EngineTransport | None = None) -> EngineTransport:
    """A device of random delays."""
    rng, made = random.Random(seed), device or drafter()

    def delay_s(draft: Draft) -> float:
        return rng.choice([0.0, rng.random() * most_s, most_s]) if draft.token_ids else 0.0

    made.delay_s = delay_s
    return made


def check(service: Service, request: GenerationRequest, chunks: list[GenerationChunk]) -> None:
    """Tokens, and that everything is counted once."""
    assert tokens_of(chunks) == truth_of(request)[: len(tokens_of(chunks))]
    stats, timings = chunks[-1].stats, service.timings
    assert [chunk.stats.rounds for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert len(timings) == stats.rounds
    assert sum(timing.committed_tokens for timing in timings) == len(tokens_of(chunks))
    assert sum(timing.drafted_tokens for timing in timings) == stats.drafted_tokens
    assert sum(timing.trimmed_tokens for timing in timings) == stats.trimmed_tokens
    assert sum(timing.accepted_tokens for timing in timings) == stats.accepted_tokens
    assert stats.inexact_rounds == 0
    for timing in timings:
        assert timing.accepted_tokens + timing.trimmed_tokens <= timing.drafted_tokens
        assert timing.orchestration_s == pytest.approx(0.0, abs=ENGINE_S), "its parts are no more than its time"


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("seed", range(3))
@on_loop
async def test_the_stream_is_what_the_target_alone_says(params: SamplingParams, seed: int) -> None:
    device = slow(seed)
    service, request = serving(device), replace(request_for(params=params, window=(2, 5, 6)[seed]), max_tokens=100)
    chunks = await service.response(request)
    assert len(tokens_of(chunks)) == 100
    check(service, request, chunks)
    drafted = [timing for timing in service.timings if timing.drafted_tokens]
    assert len(drafted) > 3
    assert any(timing.beside_s > 0.0 for timing in drafted)
    assert sum(timing.total_s for timing in service.timings) <= now_s(), "no second is counted twice"
    await service.idle()


@pytest.mark.parametrize("wait_s", [0.0, 2.5 * ENGINE_S, 6.5 * ENGINE_S], ids=["at once", "soon", "late"])
@on_loop
async def test_a_right_draft_brings_what_is_left_of_it_and_the_autonomous_run_the_rest(wait_s: float) -> None:
    """Nobody waits for a device: an exchange brings as many tokens as steps or the draft, and one more."""
    device = EngineTransport(torch_drafter(tiny_llama()))
    device.delay_s = lambda draft: wait_s if draft.token_ids else 0.0
    service, request = serving(device), replace(request_for(window=4), max_tokens=81)
    chunks = await service.response(request)
    check(service, request, chunks)
    drafted = [timing for timing in service.timings if timing.drafted_tokens]
    in_the_middle = drafted[2:-2]
    assert all(timing.accepted_tokens + timing.trimmed_tokens == 4 for timing in in_the_middle), "it was right"
    assert all(timing.committed_tokens == timing.accepted_tokens + 1 for timing in in_the_middle)
    gaps = [timing.total_s for timing in service.timings[8:]]
    assert max(gaps) < 2.1 * ENGINE_S, "something is committed with every step"
    if wait_s > 4 * ENGINE_S:
        assert all(timing.trimmed_tokens == 4 for timing in in_the_middle), "the stretch was first"
    else:
        assert sum(timing.accepted_tokens for timing in in_the_middle) >= len(in_the_middle)


@pytest.mark.parametrize("blocks", [200, 40], ids=["roomy", "scarce"])
@pytest.mark.parametrize("seed", range(2))
@on_loop
async def test_concurrent_responses_stay_exact_whatever_is_lost(blocks: int, seed: int) -> None:
    """More than a step has room for: drafts wait, autonomous runs are held back; now and then all is lost."""
    rng = random.Random(100 * seed + blocks)
    requests = [
        replace(
            request_for(f"g{i}", LONG_PROMPT[: rng.randint(1, 60)], params, rng.choice([0, 1, 3, 5, None])),
            max_tokens=rng.randint(8, 40),
        )
        for i, params in enumerate([*PARAMS.values()] * 3)
    ]
    service = serving(slow(seed), slow(seed + 50), blocks=blocks)
    service.verifier.dies_before = (9, 20, 41) if seed % 2 else ()
    service.verifier.answer_lost = (31,)
    service.verifier.forgets_before = (55,)
    responses = await asyncio.gather(*(service.response(request) for request in requests))
    for request, chunks in zip(requests, responses, strict=True):
        assert tokens_of(chunks) == truth_of(request), request
        assert chunks[-1].stats.inexact_rounds == 0
    assert any(timing.beside_s for timing in service.timings)
    assert max(len(call.blocks) for call in service.verifier.calls) <= 4
    await service.idle()


@pytest.mark.parametrize("trouble", ["dies_before", "dies_after", "answer_lost", "forgets_before"])
@pytest.mark.parametrize("first", [9, 12, 13])
@on_loop
async def test_a_verifier_that_is_lost_beside_a_draft_changes_nothing(trouble: str, first: int) -> None:
    service, request = serving(slow(first)), replace(request_for(params=SAMPLED, window=4), max_tokens=50)
    setattr(service.verifier, trouble, (first, first + 9))
    chunks = await service.response(request)
    assert tokens_of(chunks) == truth_of(request)
    await service.idle()


@on_loop
async def test_a_device_that_is_lost_beside_a_autonomous_run_costs_nothing_but_its_draft() -> None:
    service, request = serving(slow(1), slow(2)), replace(request_for(params=SAMPLED, window=4), max_tokens=60)
    service.fleet.transports[FIRST].lost["draft"] = DrafterLostError("gone")
    chunks = await service.response(request)
    check(service, request, chunks)
    assert service.fleet.reported == [FIRST]
    assert any(timing.beside_s for timing in service.timings), "the other one drafts"
    await service.idle()


@on_loop
async def test_a_device_that_does_not_answer_holds_nothing_up() -> None:
    service, request = serving(slow(1), slow(2)), replace(request_for(window=4), max_tokens=150)
    device = service.fleet.transports[FIRST]
    device.gates["draft"] = Gate()
    making = asyncio.create_task(service.response(request))
    await device.gates["draft"].reached.wait()
    chunks = await making
    check(service, request, chunks)
    await service.idle()


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@on_loop
async def test_it_ends_while_a_draft_is_out(params: SamplingParams) -> None:
    """With an end token, a stop string or its last token inside the autonomous run; the device is released."""
    request = replace(request_for(params=params, window=4), max_tokens=40)
    truth = truth_of(request)
    ends = [i for i in range(8, 30) if truth[i] not in truth[:i]][:4]
    assert ends
    for end in ends:
        for changed, eos, reason in [
            (request, (truth[end],), FinishReason.STOP),
            (replace(request, stop=(f"w{truth[end]}",)), (), FinishReason.STOP),
            (replace(request, max_tokens=end + 1), (), FinishReason.LENGTH),
        ]:
            device = drafter()
            device.delay_s = lambda draft: 0.7 if draft.token_ids else 0.0
            service = serving(device, eos_token_ids=eos)
            chunks = await service.response(changed)
            if any(f"w{truth[end]}" in f"w{token}" for token in truth[:end]) and changed.stop:
                continue
            assert tokens_of(chunks) == truth[: end + 1]
            assert chunks[-1].finish_reason is reason
            assert (chunks[-1].stats.drafted_tokens, device.answers[-1].token_ids != ()) == (0, True), "it was out"
            await service.idle()


@on_loop
async def test_an_end_token_in_a_late_draft_is_the_last() -> None:
    request = replace(request_for(params=SAMPLED, window=5), max_tokens=60)
    truth = truth_of(request)
    for end in [i for i in range(9, 40) if truth[i] not in truth[:i]]:
        service = serving(
            slow(end, 6 * ENGINE_S, EngineTransport(torch_drafter(tiny_llama()))), eos_token_ids=(truth[end],)
        )
        chunks = await service.response(request)
        assert tokens_of(chunks) == truth[: end + 1]
        assert chunks[-1].finish_reason is FinishReason.STOP
        await service.idle()


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@on_loop
async def test_min_tokens_and_log_probabilities(params: SamplingParams) -> None:
    request = replace(request_for(params=params, window=4), min_tokens=12, logprobs=2)
    end = truth_of(request)[3]
    withheld = replace(params, withheld_ids=(end,), withheld_until=len(request.prompt_ids) + request.min_tokens)
    truth = truth_of(replace(request, params=withheld))
    for seed in range(3):
        chunks = await serving(slow(seed), eos_token_ids=(end,)).response(request)
        assert tokens_of(chunks) == truth[: truth.index(end) + 1 if end in truth else LENGTH]
        assert [[entry.token_id for entry in chunk.logprobs] for chunk in chunks] == [[*c.token_ids] for c in chunks]


@on_loop
async def test_a_response_that_nobody_reads_stops_beside_its_drafts_and_breaks_no_promise() -> None:
    service, grant, window = serving(slow(5)), 32, 4
    slo = SloClass("fast", tokens_per_s=0.1)
    request = replace(request_for(window=window), max_tokens=120, ignore_eos=True, slo=slo)
    chunks, credit = list[GenerationChunk](), Credit(10)

    def put(chunk: GenerationChunk) -> None:
        chunks.append(chunk)
        credit.sent(len(chunk.token_ids))

    making, sent = asyncio.create_task(service.make(request, put, credit)), 0
    for _ in range(30):
        await asyncio.sleep(100.0)
        before, sent = sent, len(tokens_of(chunks))
        assert sent - before <= 10 + grant + window + 1
        if making.done():
            break
        credit.read(sent)
    await making
    assert tokens_of(chunks) == truth_of(request)
    assert (chunks[-1].ledger or LedgerRecord()).times_behind == 0
    await service.idle()


@pytest.mark.parametrize("gate", ["draft", "verifier"])
@on_loop
async def test_a_client_that_leaves_beside_a_draft_leaves_nothing_behind(gate: str) -> None:
    service, held = serving(slow(1)), Gate()
    if gate == "draft":
        service.fleet.transports[FIRST].gates["draft"] = held
    else:
        service.verifier.gates[14] = held
    stream = asyncio.create_task(service.response(replace(request_for(window=4), max_tokens=150)))
    await held.reached.wait()
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    held.opened.set()
    await service.idle()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    assert service.fleet.empty


@pytest.mark.parametrize("protocol", ["dsd", "tslt", "tslt_tree", "dssd", "dssd_candidates", "token_ids"])
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@on_loop
async def test_no_block_that_a_ratio_rule_decides_is_ever_ordered_ahead(
    protocol: str, params: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered, decide = list[object](), RoundMachine.step

    def step(self: RoundMachine, event: object, now_s: float) -> object:
        effects = decide(self, event, now_s)  # type: ignore[arg-type]
        ordered.extend(effect for effect in effects if isinstance(effect, OrderAhead | Join))
        assert not (isinstance(event, DrafterAnswered) and self.generation.correction_by is not None and ordered)
        return effects

    monkeypatch.setattr(RoundMachine, "step", step)
    service = serving(slow(2))
    request = replace(request_for(params=params, window=3), protocol=protocol, reproducible=False, max_tokens=40)
    chunks = await service.response(request)
    assert len(tokens_of(chunks)) == 40
    late = (params.greedy and protocol != "tslt_tree") or protocol == "token_ids"
    if protocol != "tslt_tree":
        assert bool(ordered) == late
    for effect in ordered:
        assert not isinstance(effect, OrderAhead) or not effect.asked.must_use
        assert not isinstance(effect, Join) or effect.block.rule not in RATIO_RULES
    if late or params.greedy:
        assert tokens_of(chunks) == truth_of(request)
    await service.idle()


@pytest.mark.parametrize("steps", range(1, 5))
@on_loop
async def test_a_draft_may_come_at_the_moment_in_which_its_autonomous_run_ends(steps: int) -> None:
    """For want of a reader; whichever of both is heard first."""
    device = drafter()
    device.delay_s = lambda draft: steps * ENGINE_S - LINK_S if draft.token_ids else 0.0
    service, request = serving(device), replace(request_for(window=3), max_tokens=90)
    credit, tokens = Credit(4), list[int]()

    def put(chunk: GenerationChunk) -> None:
        tokens.extend(chunk.token_ids)
        credit.sent(len(chunk.token_ids))

    making = asyncio.create_task(service.make(request, put, credit))
    while not making.done():
        await asyncio.sleep(3.7 * ENGINE_S)
        credit.read(len(tokens))
    await making
    assert tokens == truth_of(request)
    await service.idle()


@pytest.mark.parametrize(("steps", "most"), [(2, 1.01), (5, 1.01), (9, 0.6)])
@on_loop
async def test_an_exchange_brings_its_steps_or_its_draft_and_one_more(steps: int, most: float) -> None:
    """Of four tokens that are right: in no more time than if the verifier stood still, in less if they are few."""
    took_s = list[float]()
    for ahead in (False, True):
        device = EngineTransport(torch_drafter(tiny_llama()))
        device.delay_s = lambda draft: (steps - 0.5) * ENGINE_S if draft.token_ids else 0.0
        service = serving(device)
        speculation = replace(service.rules.speculation, drafts_ahead=ahead)
        service.rules = replace(service.rules, speculation=speculation, policy=Ahead(exchange_s=steps * ENGINE_S))
        began_at_s, request = now_s(), replace(request_for(window=4), max_tokens=200)
        assert tokens_of(await service.response(request)) == truth_of(request)
        took_s.append(now_s() - began_at_s)
        await service.idle()
    waited, went_on = took_s
    assert went_on < most * waited
    assert went_on < 215 * ENGINE_S, "never less than a token a step"


def without_room(service: Service, policy: Picky) -> list[int]:
    """The first block of g0 that joins its autonomous run finds no room; returns the next step's number then."""
    waits, join = list[int](), service.services.batcher.join

    def joins(block: Block, cost: VerifyCost, observe: Callable[[RoundEvent], object], terms: VerifyTerms) -> None:
        if not waits:
            policy.unwanted = {block.generation}
            waits.append(service.verifier.made)
        join(block, cost, observe, terms)

    service.services.batcher.join = joins  # type: ignore[assignment, method-assign]
    return waits


async def answered(service: Service, tokens: int) -> None:
    """Two responses, of which the first drafts; an error in a callback counts."""
    errors = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    requests = [
        replace(request_for("g0", window=4), max_tokens=tokens),
        replace(request_for("g1", window=0), max_tokens=40),
    ]
    async with asyncio.timeout(100.0):
        responses = await asyncio.gather(*map(service.response, requests))
    assert [tokens_of(chunks) for chunks in responses] == [truth_of(request) for request in requests]
    assert not errors


def slow_for_drafts() -> EngineTransport:
    device = drafter()
    device.delay_s = lambda draft: 3.5 * ENGINE_S if draft.token_ids else 0.0
    return device


@on_loop
async def test_a_autonomous_run_that_is_lost_while_its_draft_waits_for_room_takes_it_along() -> None:
    policy = Picky()
    service = serving(slow_for_drafts(), scheduling=policy)
    waits = without_room(service, policy)

    class Forgets(set[int]):
        def __contains__(self, number: object) -> bool:
            if not waits or number != waits[0]:
                return False
            policy.unwanted = set()
            return True

    service.verifier.forgets_before = Forgets()
    await answered(service, 40)
    assert waits


@pytest.mark.parametrize("tokens", [6, 7, 8, 9, 10, 11])
@on_loop
async def test_a_response_that_ends_while_its_draft_waits_for_room_takes_it_along(tokens: int) -> None:
    """In the very turn of the loop in which somebody else's block is given to the verifier."""
    policy = Picky()
    service = serving(slow_for_drafts(), scheduling=policy)
    waits, batcher = without_room(service, policy), service.services.batcher
    settle = batcher._settle  # noqa: SLF001 (when a step is told)

    def settles(reply: StepReply) -> None:
        if waits and reply.outcomes and policy.unwanted:
            policy.unwanted = set()
            batcher._send_soon()  # noqa: SLF001 (what a block that arrives does)
        settle(reply)

    batcher._settle = settles  # type: ignore[method-assign]  # noqa: SLF001
    await answered(service, tokens)
