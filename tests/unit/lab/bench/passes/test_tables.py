import pytest

from lab.bench.harness.samples import Spread
from lab.bench.passes.run import Measured, Point
from lab.bench.passes.shapes import ModelBytes, PassShape
from lab.bench.passes.tables import context_figures, fastest, figures, over_bound, ratios, show_context, show_passes

SIZES = ModelBytes(weights=1000, kv_token=10)
SHORT, LONG, WIDE = Point(PassShape(1, 1), 10), Point(PassShape(1, 1), 110), Point(PassShape(2, 3), 10)
SECONDS = {
    "torch": {WIDE: [2.6, 5.2], SHORT: [1.0, 2.0], LONG: [3.0, 6.0]},
    "any rows": {WIDE: [2.0, 5.2], SHORT: [1.0, 2.0], LONG: [2.0, 4.0]},
    "plain": {WIDE: [9.0, 9.0], SHORT: [0.5, 0.5], LONG: [9.0, 9.0]},
}
MEASURED = Measured(SIZES, SECONDS, [1000.0, 500.0])


def test_a_pass_reads_weights_once_and_the_kv_of_every_sequence() -> None:
    assert SIZES.of_pass(PassShape(2, 3), 10) == 1000 + 3 * 10 * 10
    assert SIZES.of_pass(PassShape(8, 3), 10) == SIZES.of_pass(PassShape(1, 3), 10)


def test_ratios_are_of_the_same_turn() -> None:
    assert ratios([1.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == Spread(2.0, 1.0, 3.0)
    # Half as fast a memory in the second turn: twice the bound.
    assert over_bound([2.0, 4.0], 1000, [1000.0, 500.0]) == Spread(2.0, 2.0, 2.0)


def test_figures_of_a_point() -> None:
    [found] = figures(MEASURED, [WIDE])
    assert (found["point"], found["rows"], found["bytes"]) == ("2x3 behind 10", 6, 1300)
    assert found["over_bound"] == Spread(2.0, 2.0, 2.0)
    assert (found["fastest_inexact"], found["tax"]) == ("any rows", Spread(1.15, 1.0, 1.3))
    assert fastest(SECONDS, SHORT) == "plain"


def test_what_attention_takes_is_the_difference() -> None:
    found = {one["arm"]: one["over_kv"] for one in context_figures(MEASURED, SHORT, LONG)}
    assert found["torch"] == Spread(2.0, 2.0, 2.0)
    assert found["any rows"] == Spread(1.0, 1.0, 1.0)


def test_what_was_not_measured_is_left_open(capsys: pytest.CaptureFixture[str]) -> None:
    alone = Measured(SIZES, {"torch": SECONDS["torch"]}, [1000.0, 500.0])
    [found] = figures(alone, [WIDE])
    assert (found["fastest_inexact"], found["tax"], found["inexact_ms"]) == (None, None, None)
    show_passes("passes", [found])
    show_context("context", context_figures(alone, SHORT, LONG))
    shown = capsys.readouterr().out
    assert "2.00 [2.00-2.00]" in shown
    assert "2x3 behind 10" in shown
