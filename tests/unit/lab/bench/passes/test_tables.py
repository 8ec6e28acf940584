import pytest

from lab.bench.harness.statistics import Spread
from lab.bench.passes.run import Measured, fastest, figures, over_bound, ratios, show_passes
from lab.bench.passes.shapes import ModelBytes, PassShape

SIZES = ModelBytes(weights=1000, kv_token=10)
ONE, WIDE = PassShape(1, 1), PassShape(2, 3)
SECONDS = {
    "torch": {WIDE: [2.6, 5.2], ONE: [1.0, 2.0]},
    "any rows": {WIDE: [2.0, 5.2], ONE: [1.0, 2.0]},
    "plain": {WIDE: [9.0, 9.0], ONE: [0.5, 0.5]},
}
MEASURED = Measured(10, SIZES, SECONDS, [1000.0, 500.0])


def test_a_pass_reads_weights_once_and_the_kv_of_every_sequence() -> None:
    assert SIZES.of_pass(PassShape(2, 3), 10) == 1000 + 3 * 10 * 10
    assert SIZES.of_pass(PassShape(8, 3), 10) == SIZES.of_pass(PassShape(1, 3), 10)


def test_ratios_are_of_the_same_turn() -> None:
    assert ratios([1.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == Spread(2.0, 1.0, 3.0)
    # Half as fast a memory in the second turn: twice the bound.
    assert over_bound([2.0, 4.0], 1000, [1000.0, 500.0]) == Spread(2.0, 2.0, 2.0)


def test_figures_of_a_point() -> None:
    found = figures(MEASURED)[0]
    assert (found["shape"], found["rows"], found["bytes"]) == ("2x3", 6, 1300)
    assert found["over_bound"] == Spread(2.0, 2.0, 2.0)
    assert (found["fastest_inexact"], found["tax"]) == ("any rows", Spread(1.15, 1.0, 1.3))
    assert fastest(SECONDS, ONE) == "plain"


def test_what_was_not_measured_is_left_open(capsys: pytest.CaptureFixture[str]) -> None:
    alone = Measured(10, SIZES, {"torch": SECONDS["torch"]}, [1000.0, 500.0])
    found = figures(alone)[0]
    assert (found["fastest_inexact"], found["tax"], found["inexact_ms"]) == (None, None, None)
    show_passes("passes", [found])
    shown = capsys.readouterr().out
    assert "2.00 [2.00-2.00]" in shown
    assert "2x3" in shown
