"""The verifier's load: its limits, and what queueing says of elastic batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.selection.verifier_load import verifier_load


@given(st.floats(0.0, 1e6), st.floats(-1.0, 2.0))
def test_a_share(waited: float, work: float) -> None:
    assert 0.0 <= verifier_load(waited, work) <= 1.0


@given(st.floats(0.0, 100.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_grows_with_waiting_and_with_work(waited: float, work: float, more: float, further: float) -> None:
    assert verifier_load(waited + more, work) >= verifier_load(waited, work) - 1e-12
    assert verifier_load(waited, min(work + further, 1.0)) >= verifier_load(waited, work) - 1e-12


@pytest.mark.parametrize(
    ("waited", "work", "load"),
    [
        (0.0, 0.9, 0.0),  # nobody ever waits
        (0.25, 0.8, 0.4),  # busy half of the time
        (0.5, 0.8, 0.8),  # busy always: n m = 1 - c / T
        (1.0, 0.8, 0.8),
        (0.5, 0.0, 0.0),  # blocks cost nothing: one more takes nothing away
        (10.0, 0.8, 0.98),
        (1000.0, 0.0, 0.999),  # batches of a limited size: their constant part is what is short
    ],
)
def test_by_hand(waited: float, work: float, load: float) -> None:
    assert verifier_load(waited, work) == pytest.approx(load)
