from dataclasses import replace

import numpy as np
import pytest

from bench.protocols.bits import bits
from bench.protocols.costs import Costs, measured_acceptance, measured_costs, sibling_factor
from bench.protocols.grid import grid_point
from bench.protocols.plan import NO_DRAFT, Cell
from bench.protocols.rounds import Round, levels
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.link.state import profile_csi
from tests.unit.bench.protocols.made_rounds import CELL, response, timing

WIRE = WireFormat(vocab_size=1000)
TREE = DraftPlan(ProtocolName.TOKEN_IDS, 1, (2,))


def costs(acceptance: float, verify_s: float = 0.06) -> Costs:
    responses = [response("token_ids", *[timing(2, 1), timing(3, 1), timing(0, verify_s=0.05)] * 10)]
    found = measured_costs(responses, levels(responses), WIRE, greedy=False)
    view = replace(found.acceptance, means=np.full_like(found.acceptance.means, acceptance))
    return replace(found, acceptance=view, rows_s=(0.05, verify_s, verify_s))


def test_acceptance_is_the_share_of_tokens_tested() -> None:
    plan = DraftPlan(ProtocolName.TOKEN_IDS, 2)
    rounds = [Round(timing(2, accepted), plan) for accepted in (0, 1, 2, 2) * 20]
    view = measured_acceptance(rounds, SamplingParams(), WIRE)
    assert view.token_acceptance(AcceptanceRule.SHARED_NOISE, 0) == pytest.approx(3 / 4)
    assert view.token_acceptance(AcceptanceRule.SHARED_NOISE, 1) == pytest.approx(2 / 3)


@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0])
def test_the_factor_of_later_siblings_is_found_again(factor: float) -> None:
    first, layers = 0.5, 400
    accepted = round(layers * (1.0 - (1.0 - first) * (1.0 - first * factor)))
    found = sibling_factor([(2, number < accepted) for number in range(layers)], first)
    assert found == pytest.approx(factor, abs=0.01)


def test_a_tree_is_worth_what_its_siblings_add() -> None:
    known = costs(0.5)
    factors = np.full_like(known.acceptance.sibling_factors, 0.4)
    factors[:, 0] = 1.0
    known = replace(known, acceptance=replace(known.acceptance, sibling_factors=factors))
    expected = known.expected(TREE, profile_csi(CELL.profile))
    assert expected.tokens == pytest.approx(1.0 + 1.0 - 0.5 * 0.8)


def test_a_round_is_the_sum_of_its_parts() -> None:
    known, csi = costs(0.5), profile_csi(CELL.profile)
    plan = DraftPlan(ProtocolName.TOKEN_IDS, 2)
    expected = known.expected(plan, csi)
    assert expected.tokens == pytest.approx(1.75)
    assert expected.seconds == pytest.approx(known.draft_s(plan) + 0.06 + 0.01 + expected.link_s)
    assert 0.05 < expected.link_s < 0.051
    assert known.expected(None, csi).seconds == pytest.approx(0.06)


def test_a_row_down_after_a_rejection_is_charged() -> None:
    csi = profile_csi(CELL.profile)
    surely = costs(1.0).expected(DraftPlan(ProtocolName.DSSD, 1), csi).link_s
    half = costs(0.5).expected(DraftPlan(ProtocolName.DSSD, 1), csi).link_s
    assert half - surely == pytest.approx(0.5 * (1000 * 32 + 10) / 1e6, rel=0.01)


def test_verification_is_interpolated_and_goes_on_with_its_slope() -> None:
    known = replace(costs(0.5), rows=(1, 3), rows_s=(0.05, 0.07))
    assert known.verify_s(2) == pytest.approx(0.06)
    assert known.verify_s(5) == pytest.approx(0.09)


@pytest.mark.parametrize(("acceptance", "best"), [(0.95, ProtocolName.TOKEN_IDS), (0.01, None)])
def test_cheapest_comes_near_the_best_plan_of_the_grid(acceptance: float, best: ProtocolName | None) -> None:
    # Verification costs what the service's own model says, so that its choice is the only question.
    known = replace(costs(acceptance), rows=(1, 17), rows_s=(0.0495, 0.1215))
    point = grid_point(Cell(20.0, 5.0, 1.0), known, 4, (ProtocolName.TOKEN_IDS, ProtocolName.DSD))
    assert (None if point.best_plan is None else point.best_plan.protocol) == best
    assert point.best_s == min(point.fixed_s.values())
    assert set(point.fixed_s) == {NO_DRAFT, "token_ids", "dsd"}
    assert 1.0 <= point.ratio < 1.1
    assert sum(share for _, share in point.chosen) == pytest.approx(1.0)


def test_bits_are_told_apart_and_add_up() -> None:
    found = bits([response("token_ids", timing(2, 1), timing(2, 1), timing(0))], WIRE, 3.0)
    assert found.both.mean == pytest.approx(10_000 / 4)  # rounds without a draft are left out
    assert found.envelope + found.ids + found.distribution + found.rest == pytest.approx(found.both.mean)
    assert found.drafted == pytest.approx(1.0)
    assert found.entropy_limit == pytest.approx((4 * 3.0 + 2 * np.log2(1000)) / 4)
    assert found.distribution == 0.0
