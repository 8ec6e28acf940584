import pytest

from bench.engines_figures import (
    BARE,
    AloneSample,
    RoundCell,
    RoundSample,
    ServedSample,
    Spread,
    alone_figures,
    request_tokens_per_s,
    request_tpot_s,
    rotated,
    round_figures,
    served_figures,
    spread,
)
from bench.engines_plan import QUICK, WHOLE
from bench.engines_tables import print_alone, print_rounds, print_served
from bench.load_report import Answer, Event, Usage, summarise

CELL = RoundCell(4, 8, 500, warm=True)
COLD = RoundCell(4, 8, 500, warm=False)
SAMPLES = [
    RoundSample(CELL, "vllm greedy", 0.11),
    RoundSample(CELL, BARE, 0.10),
    RoundSample(CELL, BARE, 0.20),
    RoundSample(CELL, "vllm greedy", 0.24),
    RoundSample(CELL, "vllm greedy", 0.13),
    RoundSample(CELL, BARE, 0.10),
    RoundSample(CELL, "torch greedy", None, "RuntimeError: no"),
    RoundSample(COLD, "torch greedy", 2.0),
]
ANSWERS = (
    Answer("/", 0.0, 0.0, 2.0, "completed", (Event(1.0, 4, 1), Event(2.0, 8, 5)), Usage(3, 5, accepted=3, rejected=1)),
    Answer("/", 0.0, 1.0, 4.0, "completed", (Event(2.0, 4, 1), Event(4.0, 8, 9)), Usage(3, 9, accepted=6, rejected=2)),
    Answer("/", 0.0, 0.0, 3.0, "timeout"),
)


def test_a_cells_figures_are_medians_and_ratios_of_the_same_repeat() -> None:
    warm, cold = round_figures(SAMPLES)
    assert warm.cell == CELL
    assert warm.milliseconds == {"vllm greedy": Spread(130.0, 110.0, 240.0), BARE: Spread(100.0, 100.0, 200.0)}
    assert warm.over_bare == {"vllm greedy": pytest.approx(1.2)}  # of 1.1, 1.2 and 1.3, not 130 over 100
    assert warm.failures == {"torch greedy": "RuntimeError: no"}
    assert cold.milliseconds == {"torch greedy": Spread(2000.0, 2000.0, 2000.0)}
    assert cold.over_bare == {}


def test_every_arm_comes_first_in_turn() -> None:
    assert [rotated("abc", repeat) for repeat in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]
    assert rotated((), 3) == []
    assert spread([]) is None


def test_a_service_is_summed_up_over_repeats() -> None:
    summary = summarise(0.0, 0.0, ANSWERS)
    tokens_per_s, tpot_s = request_tokens_per_s(ANSWERS), request_tpot_s(ANSWERS)
    assert tokens_per_s == pytest.approx((5 / 2 + 9 / 3) / 2)
    assert tpot_s == pytest.approx((1.0 / 4 + 2.0 / 8) / 2)
    good = ServedSample("torch", 2, summary, tokens_per_s, tpot_s, summary.acceptance, "timeout: ")
    [found, lost] = served_figures([good, good, ServedSample("vllm", 2, None, failure="did not start")])
    assert found.tokens_per_s == Spread(3.5, 3.5, 3.5)  # 14 tokens until the last answer's end
    assert found.acceptance == pytest.approx(9 / 12)
    assert (found.unanswered, found.failure) == (2, "timeout: ")
    assert (lost.tokens_per_s, lost.failure) == (None, "did not start")


def test_nothing_completed_is_nothing_measured() -> None:
    summary = summarise(0.0, 0.0, ANSWERS[2:])
    [found] = served_figures([ServedSample("torch", 1, summary, request_tokens_per_s(ANSWERS[2:]))])
    assert (found.tokens_per_s, found.ttft_ms, found.client_tokens_per_s, found.unanswered) == (None, None, None, 1)


def test_an_engine_that_once_said_something_else_is_not_exact() -> None:
    samples = [AloneSample("torch", 1, 2, speed, 0.5, exact) for speed, exact in ((10.0, True), (12.0, False))]
    [found] = alone_figures(samples)
    assert found.tokens_per_s == Spread(11.0, 10.0, 12.0)
    assert not found.exact


def test_tables_show_what_was_measured_and_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    print_rounds(round_figures(SAMPLES))
    print_alone(alone_figures([AloneSample("torch", 1, 2, 10.0, 0.5, exact=True)]))
    print_served("service", served_figures([ServedSample("vllm", 2, None, failure="did not start")]))
    shown = capsys.readouterr().out
    assert "130.0 [110.0-240.0]" in shown
    assert "1.200" in shown
    assert "FAILED torch greedy: RuntimeError: no" in shown
    assert "FAILED vllm: did not start" in shown


def test_the_whole_grid_has_every_size_and_leaves_out_only_what_takes_minutes() -> None:
    warm = WHOLE.warm()
    assert len(warm) == len(set(warm)) == 4 * 4 * 3
    assert {(cell.generations, cell.prefix) for cell in WHOLE.cold()} == {
        *((generations, 100) for generations in (1, 4, 8, 16)),
        *((generations, 500) for generations in (1, 4)),
        (1, 2000),
    }
    assert len(QUICK.warm()) < len(warm) / 4
    assert {cell.draft for cell in QUICK.cold()} == {16}
