import pytest

from lab.bench.harness.samples import Spread
from lab.bench.load.report import COMPLETED, Answer, Event, Usage
from lab.bench.routing.command import show
from lab.bench.routing.figures import Run, Work, balance, figures, run_of
from outrider.config.reading import load_config


def answer(first_s: float, cached: int, ended_s: float) -> Answer:
    events = (Event(1.0 + first_s, 0, 0), Event(1.0 + first_s, 3, 1), Event(ended_s, 3, 4))
    return Answer("", 1.0, 1.0, ended_s, COMPLETED, events, Usage(prompt=40, output=4, cached=cached))


def run(rule: str, turn: int, tokens: tuple[int, ...]) -> Run:
    work = {str(number): Work(each, 0.5 * each) for number, each in enumerate(tokens)}
    return run_of(rule, 2, turn, [answer(0.5, 30, 2.0), answer(1.5, 0, 4.0)], work)


def test_a_run_sums_up_what_was_answered_and_counts_what_was_not() -> None:
    lost = Answer("", 1.0, 1.0, 5.0, "http_503", detail="gone")
    found = run_of("a", 2, 0, [answer(0.5, 30, 2.0), lost, answer(1.5, 0, 4.0)], {}, 3)
    assert (found.prompt_tokens, found.cached_tokens, found.output_tokens) == (80, 30, 8)
    assert found.ttft_s == pytest.approx((0.5, 1.5))
    assert (found.elapsed_s, found.failures, found.failure, found.resumed) == (5.0, 1, "http_503: gone", 3)


def test_balance_is_the_busiest_over_the_mean() -> None:
    assert balance([3, 3, 3]) == 1.0
    assert balance([6, 0, 0]) == 3.0
    assert balance([6, 4, 2]) == 1.5
    assert balance([0, 0]) == balance([]) == 1.0


def test_turns_of_a_rule_come_together() -> None:
    found = figures([run("a", 0, (4, 4)), run("b", 0, (8, 0)), run("a", 1, (6, 2))])
    assert [one.rule for one in found] == ["a", "b"]
    a, b = found
    assert (a.responses, b.responses) == (4, 2)
    assert a.found == 30 / 80
    assert (a.balance, b.balance) == (Spread(1.25, 1.0, 1.5), Spread(2.0, 2.0, 2.0))
    assert a.busy_balance == a.balance
    assert a.ttft_s[50] == pytest.approx(1.0)
    assert a.tokens_per_s == Spread(2.0, 2.0, 2.0)


def test_the_table_has_a_row_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    show(figures([run("a", 0, (4, 4)), run_of("b", 3, 0, [Answer("", 0.0, 0.0, 1.0, "timeout")], {})]), load_config())
    shown = capsys.readouterr().out
    assert "2, a" in shown
    assert "37.5 %" in shown
    assert "3, b" in shown
