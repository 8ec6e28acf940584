import pytest

from lab.bench.protocols.figures import compare, figures, plan_name, seconds
from lab.bench.protocols.plan import CHEAPEST, NO_DRAFT
from outrider.contracts.drafting import DraftPlan
from tests.unit.lab.bench.protocols.made_rounds import CELL, PAIR, response, timing


def test_figures_are_per_committed_token() -> None:
    responses = [response("token_ids", timing(2, 1), timing(2, 2), prompt=prompt) for prompt in range(3)]
    found = figures(responses, seconds(responses))
    assert found.tokens == 15
    assert found.up_bits.mean == pytest.approx(8000 / 5)
    assert found.down_bits.mean == pytest.approx(2000 / 5)
    assert found.rounds.mean == pytest.approx(2 / 5)
    assert found.wall_s.mean == pytest.approx(0.78 / 5)
    assert found.accepted_fraction is not None
    assert found.accepted_len is not None
    assert found.accepted_fraction.mean == pytest.approx(3 / 4)
    assert found.accepted_len.mean == pytest.approx(3 / 2)
    assert found.plans == ((PAIR, 1.0),)


def test_seconds_that_no_timing_tells_of_count_where_rounds_came_to_nothing() -> None:
    plain = response("dssd", timing())
    lost = response("dssd_candidates", timing(), row_requests=1)
    slow = response("dssd_candidates", timing(), row_requests=1)
    object.__setattr__(slow, "elapsed_s", slow.elapsed_s + 0.2)
    of = seconds([plain, lost, slow])
    assert of[id(lost)].charged_s == pytest.approx(of[id(plain)].charged_s)
    assert of[id(slow)].charged_s - of[id(plain)].charged_s == pytest.approx(0.2)


def test_cheapest_is_compared_with_the_best_fixed_method() -> None:
    responses = [
        one
        for prompt in range(3)
        for one in (
            response(NO_DRAFT, timing(0), prompt=prompt),
            response("tslt", timing(protocol="tslt"), prompt=prompt),
            response(CHEAPEST, timing(0), timing(), prompt=prompt),
        )
    ]
    found = compare(CELL, responses, seconds(responses))
    assert found.best == NO_DRAFT
    assert found.best_s == pytest.approx(0.07)
    assert found.cheapest_s == pytest.approx((0.07 + 0.145) / 3)
    assert found.ratio.low <= found.ratio.mean <= found.ratio.high
    assert found.within_tenth


def test_plans_have_short_names() -> None:
    assert plan_name(None) == "no_draft"
    assert plan_name(PAIR) == "token_ids 2"
    assert plan_name(DraftPlan("tslt_tree", 2, (3, 1))) == "tslt_tree <3,1>"
