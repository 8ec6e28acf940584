"""Estimates against the same costs reckoned one plan at a time, and their limits under load."""

from dataclasses import replace

import numpy as np
import pytest

from lab.simulation.acceptance_models import expected_tokens
from outrider.contracts.cost import VerifyCost
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.protocols.dssd import row_bits
from outrider.protocols.payload import expected_support
from outrider.protocols.registry import PROTOCOLS
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.acceptance_view import AcceptanceView
from outrider.selection.estimates import estimate, estimate_without_draft
from outrider.selection.plans import NO_DRAFT, PlanSet, candidate_plans
from outrider.selection.situation import RoundSituation, VerifierView
from tests.unit.selection.simulated_rounds import SERVER, VOCAB, WIRE, World, link, shape, true_candidates
from tests.unit.selection.test_acceptance import sibling_acceptance

ALL = candidate_plans(tuple(PROTOCOLS), 16, False, ())
TRUE_FACTORS = [0.4**sibling for sibling in range(16)]


def knowing(world: World) -> RoundSituation:
    """The situation of a generation that knows its acceptance exactly."""
    told = world.situation(AcceptanceBook().generation())
    view = told.acceptance
    means, factors = view.means.copy(), view.sibling_factors.copy()
    for row, rule in enumerate(AcceptanceRule):
        means[row] = [world.acceptance(rule, depth) for depth in range(means.shape[1])]
        factors[row] = TRUE_FACTORS
    return replace(told, acceptance=replace(view, means=means, sibling_factors=factors))


def constant(view: AcceptanceView, mean: float) -> AcceptanceView:
    """Known for sure."""
    means = view.means.copy()
    means[:] = mean
    return replace(view, means=means, deviations=np.zeros_like(means))


@pytest.mark.parametrize("world", [World(link(1, 50), 0.6), World(link(100, 5), 0.9, batch_blocks=3.5)])
def test_agree_with_the_costs_of_one_plan_at_a_time(world: World) -> None:
    situation, candidates = knowing(world), true_candidates(world)
    found = estimate(situation, ALL)
    for index, plan in enumerate(ALL.plans):
        one = found.at(index)
        assert one.plan == plan
        assert one.expected_tokens == pytest.approx(world.tokens(plan)[0]), plan
        assert one.round_s == pytest.approx(world.round_s(plan, candidates)), plan
        assert one.seconds_per_token == pytest.approx(one.round_s / one.expected_tokens)
        if plan is not None:
            rule = PROTOCOLS[plan.protocol].rule(situation.params, WIRE)
            layers = [sibling_acceptance(situation.acceptance, rule, depth, k) for depth, k in enumerate(shape(plan))]
            assert one.expected_tokens == pytest.approx(expected_tokens(layers))


def test_an_unmeasured_link_is_free() -> None:
    situation = knowing(World(link(1, 50), 0.6))
    assert situation.drafter is not None
    free = replace(situation, drafter=replace(situation.drafter, csi=None))
    fast = replace(situation, drafter=replace(situation.drafter, csi=link(1e9, 0)))
    assert estimate(free, ALL).round_s == pytest.approx(estimate(fast, ALL).round_s, rel=1e-6)


def test_truncated_requests_send_short_rows() -> None:
    assert expected_support(SamplingParams(), VOCAB) == VOCAB
    assert expected_support(SamplingParams(top_k=40), VOCAB) == 40
    assert expected_support(SamplingParams(top_k=40, top_p=0.9), VOCAB) == 40
    assert expected_support(SamplingParams(top_p=0.9), VOCAB) < VOCAB
    assert expected_support(SamplingParams(temperature=0.0), VOCAB) == 1
    assert row_bits(WIRE, 40) < row_bits(WIRE, VOCAB) / 100
    plans = PlanSet((DraftPlan("dssd", 4),))
    world = World(link(10, 20), 0.6)
    whole_s = estimate(knowing(world), plans).round_s[0]
    assert estimate(knowing(replace(world, params=SamplingParams(top_k=40))), plans).round_s[0] < whole_s - 0.1


def test_a_greedy_request_s_corrections_need_no_row() -> None:
    world = World(link(1, 0), 0.6, params=SamplingParams(temperature=0.0))
    plans = PlanSet((DraftPlan("dssd", 4), DraftPlan("token_ids", 4)))
    dssd_s, ids_s = estimate(knowing(world), plans).round_s
    assert dssd_s - ids_s < 150 / 1e6, "no more than four scalars"


@pytest.mark.parametrize("window", [1, 4, 16])
def test_waiting_counts_in_batches(window: int) -> None:
    situation = knowing(World(link(20, 20), 0.6))
    plans = PlanSet((None, DraftPlan("token_ids", window)))
    batch_s = [SERVER.predict_s([VerifyCost(rows, 299)] * 8) for rows in (1, window + 1)]
    idle = replace(situation, verifier=VerifierView(SERVER, 0.0, 8.0, 0.0))
    for last, waited_s in ((None, batch_s[0]), (plans.plans[1], batch_s[1])):
        loaded = replace(situation, verifier=VerifierView(SERVER, 10.0 * waited_s, 8.0, 0.0))
        extra = estimate(loaded, plans, last).round_s - estimate(idle, plans, last).round_s
        assert extra == pytest.approx([10.0 * batch_s[0], 10.0 * batch_s[1]])


@pytest.mark.parametrize("blocks", [1, 6])
def test_verifier_seconds_are_the_marginal_ones_and_a_share_of_the_constant(blocks: int) -> None:
    situation = knowing(World(link(20, 20), 0.6, batch_blocks=float(blocks)))
    found = estimate(situation, ALL)
    others = [VerifyCost(3, 299)] * (blocks - 1)
    for index, plan in enumerate(ALL.plans):
        block = VerifyCost(1 if plan is None else plan.nodes + 1, 299)
        marginal_s = SERVER.predict_s([*others, block]) - SERVER.predict_s(others)
        expected_s = marginal_s + SERVER.seconds_per_batch / blocks
        assert found.verifier_s_per_token[index] * found.expected_tokens[index] == pytest.approx(expected_s), plan


@pytest.mark.parametrize("last_plan", [None, DraftPlan("token_ids", 5)])
@pytest.mark.parametrize("verifier", [VerifierView(SERVER, 0.0, 1.0, 0.0), VerifierView(SERVER, 0.7, 6.0, 0.01)])
def test_a_round_without_a_draft_is_the_same_by_itself(verifier: VerifierView, last_plan: DraftPlan | None) -> None:
    situation = replace(knowing(World(link(20, 20), 0.6)), verifier=verifier)
    assert estimate_without_draft(situation, last_plan) == estimate(situation, NO_DRAFT, last_plan).at(0)


def test_no_draft_without_a_drafter() -> None:
    situation = replace(knowing(World(link(20, 20), 0.6)), drafter=None)
    assert estimate(situation, NO_DRAFT).expected_tokens[0] == 1.0
    with pytest.raises(ParameterError, match="no draft where there is no drafter"):
        estimate(situation, ALL)
