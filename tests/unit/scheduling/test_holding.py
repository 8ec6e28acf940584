"""A pass is held where that saves more than it costs, and never for long."""

import pytest

from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.scheduling.holding import hold_s

PASS = LinearCostModel(0.6e-3, 0.0, 0.0, 27e-3)
ROWS = LinearCostModel(10e-3, 0.0, 0.0, 1e-3)
BLOCK = (VerifyCost(5, 100), 0.004)  # and its round took 4 ms before


@pytest.mark.parametrize(
    ("waiting", "coming_s", "held_s", "until_s"),
    [
        (2, [0.001, 0.002], 0.0, 0.0026),  # for both, and a little longer
        (2, [0.001, 0.0045], 0.0, 0.0016),  # the second is too late
        (2, [], 0.0, 0.0),
        (2, [0.004], 0.0, 0.0),  # a tenth of the pass is 3.3 ms
        (2, [0.002], 0.002, 0.0),  # part of it is over
        (2, [0.001], 0.002, 0.0013),
        (0, [0.001], 0.0, 0.0),
    ],
)
def test_for_how_long(waiting: int, coming_s: list[float], held_s: float, until_s: float) -> None:
    found = hold_s([BLOCK] * waiting, coming_s, held_s, PASS)
    assert found == pytest.approx(until_s, abs=2e-4)
    assert found + held_s <= 0.0034


def test_only_where_it_pays() -> None:
    """Fifteen that wait for one lose more than it gains, unless they would meet its pass when they are back."""
    one = [0.002]
    assert hold_s([(VerifyCost(5, 100), 1.0)] * 15, one, 0.0, PASS) == 0.0
    assert hold_s([BLOCK] * 15, one, 0.0, PASS) > 0.0
    assert hold_s([BLOCK] * 2, one, 0.0, ROWS) == 0.0, "a pass costs its rows: nothing is shared"


def test_no_hold_is_longer_than_five_milliseconds() -> None:
    slow = LinearCostModel(0.0, 0.0, 0.0, 1.0)
    assert hold_s([BLOCK], [0.0049], 0.0, slow) == pytest.approx(0.005)
    assert hold_s([BLOCK], [0.0051], 0.0, slow) == 0.0
