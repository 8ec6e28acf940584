import pytest

from outrider.contracts.errors import ParameterError
from outrider.simulation.lengths import Fixed, Lengths, Lognormal, Uniform


def test_quantiles() -> None:
    assert Fixed(7).at(0.99) == 7
    assert [Uniform(3, 5).at(u) for u in (0.0, 0.34, 0.999)] == [3, 4, 5]
    assert Lognormal(100.0, 0.8).at(0.5) == 100
    assert Lognormal(100.0, 0.8).at(0.8413447) == pytest.approx(100 * 2.718281828**0.8, rel=0.01)


@pytest.mark.parametrize("lengths", [Fixed(7), Uniform(3, 9), Lognormal(20.0, 1.0, 5, 200)])
def test_every_quantile_is_in_range_and_they_rise(lengths: Lengths) -> None:
    drawn = [lengths.at(index / 1000) for index in range(1000)]
    assert drawn == sorted(drawn)
    assert drawn[0] >= 1
    assert drawn[-1] <= lengths.most_tokens


def test_refusals() -> None:
    with pytest.raises(ParameterError, match="tokens needs an integer of at least 1, found 0"):
        Fixed(0)
    with pytest.raises(ParameterError, match="most_tokens needs an integer of at least 5, found 4"):
        Uniform(5, 4)
    with pytest.raises(ParameterError, match="median_tokens"):
        Lognormal(0.0, 1.0)
    with pytest.raises(ParameterError, match="sigma"):
        Lognormal(10.0, -1.0)
