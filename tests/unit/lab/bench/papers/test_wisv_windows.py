import pytest

from lab.bench.papers.wisv.published import TABLE_1
from lab.bench.papers.wisv.rounds import Method
from lab.bench.papers.wisv.windows import LONGEST, best_speed, speed


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("bonus", [False, True])
def test_the_best_window_is_the_best_of_all(method: Method, bonus: bool) -> None:
    best = best_speed(method, 20e6, bonus=bonus)
    every = [speed(method, 20e6, window, bonus=bonus) for window in range(1, LONGEST + 1)]
    assert best in every
    assert best.tokens_per_s == max(one.tokens_per_s for one in every)
    assert best.tokens_per_s == pytest.approx(best.aal_tokens / best.round_s)
    # A pass as long as this makes both ways equally fast.
    assert best.aal_tokens / (best.round_s + best.worth_pass_s) == pytest.approx(1.0 / best.worth_pass_s)


def test_greedy_with_its_bonus_token_beats_every_printed_row_at_its_own_window() -> None:
    most = max(row.tokens_per_s for row in TABLE_1)
    assert best_speed(Method.SD_GREEDY, 20e6, bonus=True).tokens_per_s > most
    assert best_speed(Method.SD_GREEDY, 20e6, bonus=False).tokens_per_s < most


def test_a_window_of_one_without_bonus_is_never_worth_a_pass() -> None:
    assert speed(Method.SD_GREEDY, 20e6, 1, bonus=False).worth_pass_s == float("inf")
