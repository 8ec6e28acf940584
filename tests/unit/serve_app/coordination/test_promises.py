"""Promised speeds through round loop, batcher and ledger over real engines: what is owed, kept, and told."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import inf

import pytest

from outrider.contracts.requests import GenerationChunk, GenerationRequest, SamplingParams
from outrider.contracts.slo import BEST_EFFORT, LedgerRecord, SloClass
from outrider.scheduling.attribution import ViolationCause
from outrider.scheduling.ledger import FIRST_TOKEN_S, SLACK_CAP_S, DeadlineRule
from outrider.scheduling.policy import PendingVerification
from tests.unit.engines.conftest import BLOCK_TOKENS
from tests.unit.serve_app.api.in_memory_service import (
    LENGTH,
    PARAMS,
    Service,
    drafter,
    request_for,
    tokens_of,
    truth_of,
)
from tests.unit.serve_app.coordination.hand_driven import Asked
from tests.unit.virtual_clock import on_loop

EASY = SloClass("easy", 1e-3)  # a token in a quarter of an hour
HOPELESS = SloClass("hopeless", 1e12)
CLASSES = (EASY, HOPELESS, BEST_EFFORT)
FREE = SamplingParams(temperature=1.0, seed=11)
SPLIT = replace(request_for(params=FREE, window=3), protocol="dssd", reproducible=False)
REQUESTS = {
    "target alone": request_for(window=0),
    "drafted": request_for(window=5),
    "device draws": SPLIT,
    "device draws, scored": replace(SPLIT, logprobs=1),
}


def last_ledger(chunks: Sequence[GenerationChunk]) -> LedgerRecord:
    ledger = chunks[-1].ledger
    assert ledger is not None
    return ledger


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("slo", CLASSES, ids=lambda slo: slo.name)
@on_loop
async def test_a_class_changes_no_token(slo: SloClass, params: SamplingParams) -> None:
    request = replace(request_for(params=params, window=5), slo=slo)
    assert tokens_of(await Service(drafter()).response(request)) == truth_of(request)


@pytest.mark.parametrize("lost", [(), (2, 5)], ids=["undisturbed", "verifier lost"])
@pytest.mark.parametrize("slo", [HOPELESS, BEST_EFFORT], ids=lambda slo: slo.name)
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
@on_loop
async def test_the_ledger_counts_every_token(request_: GenerationRequest, slo: SloClass, lost: tuple[int, ...]) -> None:
    service = Service(drafter())
    service.verifier.dies_before = lost
    chunks = await service.response(replace(request_, slo=slo))
    ledgers = [chunk.ledger for chunk in chunks if chunk.ledger is not None]
    assert len(ledgers) == len(chunks)
    so_far = list(accumulate(len(chunk.token_ids) for chunk in chunks))
    assert so_far[-1] == LENGTH
    assert [ledger.tokens for ledger in ledgers] == [tokens - so_far[0] for tokens in so_far], "the first ones apart"
    assert all(one.elapsed_s <= two.elapsed_s for one, two in pairwise(ledgers))


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
@on_loop
async def test_a_hopeless_promise_is_late_in_every_round_and_told_with_its_causes(request_: GenerationRequest) -> None:
    service = Service(drafter())
    chunks = await service.response(replace(request_, slo=HOPELESS))
    first, *timings = service.timings
    assert (first.slo_class, first.late, first.behind) == (None, None, False), "pace counts from there"
    assert {timing.slo_class for timing in timings} == {"hopeless"}
    late = [timing.late for timing in timings]
    assert None not in late
    stats = chunks[-1].stats
    assert (stats.late_queue_rounds, stats.late_compute_rounds) == (
        late.count(ViolationCause.QUEUE),
        late.count(ViolationCause.COMPUTE),
    )
    assert [timing.behind for timing in timings] == [timing.committed_tokens > 0 for timing in timings]
    with_tokens = sum(bool(chunk.token_ids) for chunk in chunks)
    assert last_ledger(chunks).times_behind == with_tokens - 1, "once for each time that tokens came"


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
@on_loop
async def test_an_easy_promise_is_kept_in_every_round(request_: GenerationRequest) -> None:
    """Also where all of a block is rejected: the token that a device will draw is that round's."""
    service = Service(drafter())
    chunks = await service.response(replace(request_, slo=EASY))
    judged = service.timings[1:]
    assert {(timing.slo_class, timing.late, timing.behind) for timing in judged} == {("easy", None, False)}
    if request_.protocol == "dssd":
        assert any(timing.drafted_tokens and not timing.committed_tokens for timing in judged), "or this tests nothing"
    stats, ledger = chunks[-1].stats, last_ledger(chunks)
    assert (stats.late_queue_rounds, stats.late_compute_rounds, ledger.times_behind) == (0, 0, 0)
    assert ledger.slack_s == pytest.approx(SLACK_CAP_S), "however early it all came"


@on_loop
async def test_tokens_behind_a_stop_string_do_not_count_for_its_speed() -> None:
    plain = replace(request_for(window=5), slo=EASY)
    truth = truth_of(plain)
    stops = 0
    for position in range(2, len(truth) - 6):
        if any(str(token).startswith(str(truth[position])) for token in truth[:position]):
            continue  # it would stop there
        chunks = await Service(drafter()).response(replace(plain, stop=(f"w{truth[position]}",)))
        tokens = tokens_of(chunks)
        assert tokens == truth[: position + 1]
        assert last_ledger(chunks).tokens == len(tokens) - len(chunks[0].token_ids)
        stops += 1
    assert stops > 3, "or this tests nothing"


@on_loop
async def test_best_effort_is_measured_and_not_judged() -> None:
    service = Service(drafter())
    chunks = await service.response(request_for(window=5))
    assert {(timing.slo_class, timing.late, timing.behind) for timing in service.timings} == {(None, None, False)}
    ledger, stats = last_ledger(chunks), chunks[-1].stats
    assert (ledger.times_behind, ledger.slack_s) == (0, 0.0)
    assert ledger.tokens_per_s is not None
    assert (stats.late_queue_rounds, stats.late_compute_rounds) == (0, 0)


async def rounds_of(request: GenerationRequest, rule: DeadlineRule) -> list[PendingVerification]:
    """A response's rounds in order, as the policy was shown them."""
    seen = Asked()
    service = Service(drafter(), scheduling=seen, deadline_rule=rule)
    await service.response(request)
    rounds = [pending.round for pending in seen.pending]
    assert rounds == sorted(set(rounds)), "each once"
    assert len(service.timings) >= len(rounds) > 4
    return seen.pending


@pytest.mark.parametrize("rule", DeadlineRule)
@pytest.mark.parametrize("slo", CLASSES, ids=lambda slo: slo.name)
@on_loop
async def test_the_policy_learns_what_each_round_is_owed_and_needs(slo: SloClass, rule: DeadlineRule) -> None:
    first, *others = await rounds_of(replace(request_for(window=5), slo=slo), rule)
    if slo.tokens_per_s:
        assert first.arrived_at_s < first.deadline_at_s <= first.arrived_at_s + FIRST_TOKEN_S, "from the request on"
    else:
        assert first.deadline_at_s == inf, "nothing is owed before the first token"
    assert {pending.tokens_per_s for pending in (first, *others)} == {slo.tokens_per_s}
    assert all((pending.deadline_at_s < inf) is (slo.tokens_per_s > 0) for pending in others)
    assert all(1.0 <= pending.expected_tokens <= 6.0 for pending in (first, *others))
    for pending in (first, *others):
        positions = pending.cost.new_tokens + pending.cost.cached_tokens
        assert (pending.memory_blocks - 1) * BLOCK_TOKENS < positions <= pending.memory_blocks * BLOCK_TOKENS


@on_loop
async def test_a_token_that_a_device_drew_is_read_and_needs_memory_as_any_other() -> None:
    """What a round is said to cost is what the engine computes, and reads."""
    service = Service(drafter(), scheduling=(policy := Asked()))
    await service.response(SPLIT)
    assert sum(timing.protocol == "dssd" for timing in service.timings) > 3
    sent = [pending.cost for pending in policy.pending if pending.round > 0]
    done = [cost for [cost] in service.verifier.computed[-len(sent) :]]
    assert sent == done


@on_loop
async def test_a_ledgers_deadline_counts_from_the_last_commit_and_its_credit() -> None:
    _, second, *others = await rounds_of(replace(request_for(window=3), slo=EASY), DeadlineRule.LEDGER)

    def counts_from_s(pending: PendingVerification) -> float:
        return pending.deadline_at_s - pending.expected_tokens / EASY.tokens_per_s

    for before, pending in pairwise((second, *others)):
        # Far ahead by then: from the last commit, which lies between these two, and the most there is of credit.
        assert before.arrived_at_s - 1e-6 <= counts_from_s(pending) - SLACK_CAP_S <= pending.arrived_at_s + 1e-6


@on_loop
async def test_who_is_behind_is_owed_all_since_the_first_token() -> None:
    first, second, *others = await rounds_of(replace(request_for(window=3), slo=HOPELESS), DeadlineRule.LEDGER)
    for pending in (second, *others):
        assert first.arrived_at_s < pending.deadline_at_s <= second.arrived_at_s + 1e-6


@on_loop
async def test_a_rounds_own_deadline_counts_from_its_beginning_whatever_came_before() -> None:
    first, *others = await rounds_of(replace(request_for(window=3), slo=EASY), DeadlineRule.ROUND)
    for before, pending in pairwise((first, *others)):
        began_at_s = pending.deadline_at_s - pending.expected_tokens / EASY.tokens_per_s
        assert before.arrived_at_s - 1e-6 <= began_at_s <= pending.arrived_at_s + 1e-6


@on_loop
async def test_a_resumed_response_owes_what_it_owed() -> None:
    """Half a second behind, of a speed at which tokens are ages apart."""
    record = LedgerRecord(tokens=8, elapsed_s=9.0, slack_s=-0.5, times_behind=3)
    request = replace(request_for(window=0), slo=EASY)
    truth = truth_of(request)
    service = Service(drafter(), scheduling=(seen := Asked()))
    first, *_, last = chunks = await service.response(replace(request, output_ids=tuple(truth[:9]), ledger=record))
    assert tokens_of(chunks) == truth[9:]
    pending = seen.pending[0]
    assert pending.deadline_at_s - 1.0 / EASY.tokens_per_s < pending.arrived_at_s - 0.5 + 1e-6
    assert first.ledger is not None
    assert (first.ledger.tokens, first.ledger.times_behind) == (9, 3), "no first token comes for free"
    assert first.ledger.elapsed_s > 9.0
    assert last.ledger is not None
    assert last.ledger.tokens == LENGTH - 1
