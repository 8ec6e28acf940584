"""Windows that mind the verifier: the cost reckoned by hand, its limits under load, and promises."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.cost import LinearCostModel
from outrider.contracts.drafting import DraftPlan
from outrider.scheduling.ledger import Ledger
from outrider.selection.cheapest import Cheapest
from outrider.selection.cost_aware import CostAware, cost_per_token, keeps_promise
from outrider.selection.estimates import Estimates, estimate
from outrider.selection.plans import candidate_plans
from outrider.selection.situation import (
    ChoiceReason,
    DrafterView,
    Estimate,
    RoundChoice,
    RoundSituation,
    SpeedPromise,
    VerifierView,
    longest_window,
)
from tests.unit.selection.simulated_rounds import World, link
from tests.unit.selection.test_estimates import constant, knowing
from tests.unit.selection.test_policies import COMPUTE_BOUND, READ_BOUND, idle, situation, window

CHAINS = ("dssd_candidates",)
LOADS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)  # batches waited
K_MAX, STEP_S, FIXED_S = 16, 60e-3, 50e-3


def chains(model: LinearCostModel, waited: float, acceptance: float, blocks: float = 16.0) -> RoundSituation:
    """Chains over a link without bits; batches of no drafts so far."""
    known = knowing(World(link(100, 5), acceptance))
    cached = known.position - 1
    batch_s = model.seconds_per_batch + blocks * _block_s(model, 1, cached)
    return replace(
        known,
        acceptance=constant(known.acceptance, acceptance),
        drafter=DrafterView(None, STEP_S, FIXED_S),
        verifier=VerifierView(model, waited * batch_s, blocks, 0.0),
        protocols=CHAINS,
    )


def _block_s(model: LinearCostModel, rows: int, cached: int) -> float:
    return model.seconds_per_token * rows + model.seconds_per_cached_token * cached


def by_hand(model: LinearCostModel, waited: float, acceptance: float, blocks: float = 16.0) -> list[float]:
    """Cost per token of windows 0..K_MAX, from the formulas alone."""
    cached = 299
    batch_s = [model.seconds_per_batch + blocks * _block_s(model, 1 + k, cached) for k in range(K_MAX + 1)]
    work = 1.0 - model.seconds_per_batch / batch_s[0]
    load = 1.0 - (1.0 - min(1.0, 2.0 * waited) * work) / max(1.0, waited)
    costs = []
    for k, seconds in enumerate(batch_s):
        tokens = (1.0 - acceptance ** (k + 1)) / (1.0 - acceptance)
        own_s = (FIXED_S + k * STEP_S if k else 0.0) + (1.0 + waited) * seconds
        costs.append(((1.0 - load) * own_s + load * seconds) / tokens)
    return costs


@pytest.mark.parametrize("model", [COMPUTE_BOUND, READ_BOUND])
@pytest.mark.parametrize("waited", LOADS)
@pytest.mark.parametrize("acceptance", [0.5, 0.8, 0.95])
def test_the_cost_is_the_formula_s(model: LinearCostModel, waited: float, acceptance: float) -> None:
    told, expected = chains(model, waited, acceptance), by_hand(model, waited, acceptance)
    plans = candidate_plans(CHAINS, K_MAX, False, ())
    assert cost_per_token(told, estimate(told, plans)) == pytest.approx(expected)
    assert window(CostAware().choose(told, None)) == expected.index(min(expected))


def test_windows_grow_with_the_load_where_reading_dominates() -> None:
    windows = [window(CostAware().choose(chains(READ_BOUND, waited, 0.8), None)) for waited in LOADS]
    assert windows == sorted(windows)
    # Saturated, T(K) / E(K) alone: blocks' reading is the same for every window and E grows to the end.
    assert windows[0] < windows[3] < windows[-1] == K_MAX


def test_windows_shrink_with_the_load_where_computing_dominates() -> None:
    model = LinearCostModel(5e-3, 0.0, 0.0, 45e-3)
    # As many blocks per batch as the load brings: alone, then sharing.
    loads = ((0.0, 1.0), (0.5, 4.0), (0.5, 16.0), (1.0, 64.0), (10.0, 256.0))
    fast = DrafterView(None, 2e-3, 5e-3)
    windows = [
        window(CostAware().choose(replace(chains(model, waited, 0.8, blocks), drafter=fast), None))
        for waited, blocks in loads
    ]
    assert windows == sorted(windows, reverse=True)
    # T(K) / E(K) = (1 + K) (1 - b) / (1 - b^(K+1)) block rows: smallest at K = 0 for every b < 1.
    assert windows[0] > 2
    assert windows[-1] == 0


def test_trees_widen_where_rows_cost_nothing() -> None:
    def nodes(waited: float) -> int:
        told = replace(chains(READ_BOUND, waited, 0.6), protocols=("token_ids",), k_max=4)
        plan = CostAware().choose(told, None).chosen.plan
        return 0 if plan is None else plan.nodes

    found = [nodes(waited) for waited in LOADS]
    assert found == sorted(found)
    assert found[0] < found[-1]


situations = st.builds(
    lambda acceptance, step_s, rtt_ms, blocks, position: replace(
        situation(acceptance, rtt_ms=rtt_ms),
        drafter=DrafterView(link(20, rtt_ms), step_s, 2e-3),
        verifier=VerifierView(LinearCostModel(1e-3, 0.0, 5e-6, 30e-3), 0.0, blocks, 1e-3),
        position=position,
    ),
    st.floats(0.05, 0.99),
    st.floats(1e-3, 0.1),
    st.floats(0.0, 100.0),
    st.floats(1.0, 64.0),
    st.integers(10, 4000),
)
promises = st.builds(
    SpeedPromise, st.sampled_from([0.0, 2.0, 4.0, 8.0, 40.0]), st.floats(-0.5, 1.0) | st.just(float("inf"))
)


@given(situations)
def test_an_idle_verifier_is_cheapest(told: RoundSituation) -> None:
    assert CostAware().choose(told, None) == Cheapest().choose(told, None)


@given(situations, st.floats(0.0, 2.0), promises)
def test_a_promise_is_kept_if_any_plan_keeps_it(told: RoundSituation, queue_s: float, promise: SpeedPromise) -> None:
    told = replace(told, promise=promise, verifier=replace(told.verifier, queue_s=queue_s))
    choice, found = CostAware().choose(told, None), estimates_of(told)
    keeps = keeps_promise(promise, found)
    if not keeps.any():
        assert choice == CostAware().choose(replace(told, promise=None), None), "as if nothing were promised"
        return
    index = found.plans.index[choice.chosen.plan]
    assert keeps[index]
    costs = cost_per_token(told, found)
    assert choice.reason is ChoiceReason.EXPLORING or costs[index] == costs.min()


def estimates_of(told: RoundSituation) -> Estimates:
    return estimate(
        told, candidate_plans(told.protocols, longest_window(told), told.window is not None, told.expansion)
    )


@pytest.mark.parametrize(
    ("tokens_per_s", "slack_s", "expected"),
    [
        (3.0, float("inf"), 15),  # nothing binds: the verifier's choice
        (3.0, 0.0, 15),
        (3.0, -0.2, 11),  # the longest with 0.77 + 0.0624 K + 0.2 <= E(K) / 3
        (3.0, -0.3, 8),
        (3.0, -0.4, 15),  # none keeps it: as if nothing were promised
        (5.0, 0.25, 7),
        (5.0, 0.0, 15),  # nor this
        (0.0, float("inf"), 15),  # best effort
    ],
)
def test_credit_is_spent_on_the_verifier(tokens_per_s: float, slack_s: float, expected: int) -> None:
    told = replace(chains(READ_BOUND, 2.0, 0.8), promise=SpeedPromise(tokens_per_s, slack_s))
    assert window(CostAware().choose(told, None)) == expected


def test_nothing_is_owed_before_the_first_token() -> None:
    told, ledger = chains(READ_BOUND, 2.0, 0.8), Ledger(4.0)
    promise = SpeedPromise(ledger.tokens_per_s, ledger.slack_s(100.0))
    assert CostAware().choose(replace(told, promise=promise), None) == CostAware().choose(told, None)


def test_the_last_plan_is_not_kept_if_it_breaks_the_promise() -> None:
    told = chains(READ_BOUND, 2.0, 0.8)
    last = replace(CostAware().choose(told, None), reason=ChoiceReason.CHEAPEST)
    assert CostAware().choose(told, last).chosen.plan == last.chosen.plan
    assert window(CostAware().choose(replace(told, promise=SpeedPromise(3.0, -0.3)), last)) < window(last)


def test_no_try_that_would_break_a_promise() -> None:
    told = World(link(20, 20), 0.2).situation(idle(400, 0.1))
    tried = CostAware().choose(told, None)
    assert tried.reason is ChoiceReason.EXPLORING
    none = estimates_of(told).at(0)
    assert none.plan is None
    held = CostAware().choose(replace(told, promise=SpeedPromise(1.0 / none.round_s, 0.0)), None)
    assert (held.chosen.plan, held.reason) == (None, ChoiceReason.CHEAPEST)
    assert held.runner_up is not None, "the best of those that break it"


def test_a_plan_that_is_gone_is_not_missed() -> None:
    told = chains(READ_BOUND, 2.0, 0.8)
    gone = RoundChoice(Estimate(DraftPlan("dsd", 40), 1.0, 1.0, 1.0), None, ChoiceReason.CHEAPEST)
    assert CostAware().choose(told, gone).chosen.plan is not None
