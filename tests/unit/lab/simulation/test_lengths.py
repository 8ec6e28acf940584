import pytest

from lab.simulation.lengths import Lengths


def test_quantiles() -> None:
    assert Lengths(tokens=7).at(0.99) == 7
    assert [Lengths(least=3, most=5).at(u) for u in (0.0, 0.34, 0.999)] == [3, 4, 5]
    assert Lengths(median=100, sigma=0.8).at(0.5) == 100
    assert Lengths(median=100, sigma=0.8).at(0.8413447) == pytest.approx(100 * 2.718281828**0.8, rel=0.01)


@pytest.mark.parametrize(
    "lengths", [Lengths(tokens=7), Lengths(least=3, most=9), Lengths(median=20, sigma=1, most=200)]
)
def test_every_quantile_is_in_range_and_they_rise(lengths: Lengths) -> None:
    drawn = [lengths.at(index / 1000) for index in range(1000)]
    assert drawn == sorted(drawn)
    assert drawn[0] >= 1
    assert drawn[-1] <= lengths.most_tokens
