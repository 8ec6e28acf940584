import pytest

from lab.bench.stops.bound import Round
from lab.bench.stops.frontier import Ending, Pace, frontier, walked

_PACE = Pace(step_s=0.1, pass_s=0.4, row_s=0.01)


def test_a_token_that_is_not_sent_was_drafted() -> None:
    told = (0.9, 0.8, 0.5, 0.9)  # survivals 0.9, 0.72, 0.36, 0.324
    assert Ending(4).lengths(told) == (4, 4)
    assert Ending(2).lengths(told) == (2, 2)
    assert Ending(4, send_above=0.5, go_on_above=0.6).lengths(told) == (3, 2)
    assert Ending(4, send_above=0.1, go_on_above=0.4).lengths(told) == (3, 3)
    assert Ending(4, send_above=0.95, go_on_above=0.95).lengths(told) == (1, 0)


def test_rounds_follow_one_another_along_a_response() -> None:
    drafts = [
        Round((0.9, 0.3), (True, False)),
        Round((0.5, 0.5), (False, False)),
        Round((0.2, 0.5), (False, True)),
        Round((0.9, 0.9), (True, True)),
    ]
    reached = walked([drafts], Ending(2), _PACE)  # from 0 to 2, to 3, and past the end
    assert reached.tokens_per_round == pytest.approx((2 + 1 + 3) / 3)
    assert reached.tokens_per_s == pytest.approx(6 / (3 * (0.2 + 0.4 + 0.03)))
    assert reached.wasted_s_per_token == pytest.approx(0.1 * (1 + 2 + 0) / 6)


def test_who_knows_wastes_nothing_and_is_faster_than_any_window() -> None:
    knows = [[Round((1.0, 1.0, 0.0, 1.0), (True, True, False, True)), *[Round((0.0,) * 4, (False,) * 4)] * 3] * 5]
    found = frontier(knows, (1, 2, 4), 4, _PACE)
    assert found.fastest.tokens_per_s > max(one.tokens_per_s for one in found.windows)
    assert all(one is not None for one in found.sparing)


def test_no_pair_of_prices_may_be_as_fast_as_a_window() -> None:
    misled = [[Round((0.0,) * 2, (True,) * 2)] * 6]
    assert frontier(misled, (2,), 2, _PACE).sparing[0] is not None, "prices of 0 are a window"
    assert frontier(misled, (2,), 1, _PACE).sparing == (None,)
