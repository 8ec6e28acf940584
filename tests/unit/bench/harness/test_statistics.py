import numpy as np
import pytest

from bench.harness.statistics import estimate


def test_intervals_redraw_whole_responses() -> None:
    apart = [np.zeros(50), np.ones(50)]
    mixed = [np.tile([0.0, 1.0], 25)] * 2
    assert (estimate(apart).mean, estimate(apart).low, estimate(apart).high) == (0.5, 0.0, 1.0)
    assert (estimate(mixed).mean, estimate(mixed).low, estimate(mixed).high) == (0.5, 0.5, 0.5)
    assert estimate([np.ones(1), np.zeros(3)]).mean == 0.25  # positions count alike, not responses
    with pytest.raises(ValueError, match="at least one position"):
        estimate([np.zeros(0)])
