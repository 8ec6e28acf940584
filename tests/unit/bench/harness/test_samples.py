import pytest

from bench.harness.samples import Sample, Spread, figures, ratios, rotated


def timed(cell: str, arm: str, ms: float) -> Sample[str]:
    return Sample(cell, arm, {"ms": ms})


SAMPLES = [
    timed("warm", "vllm", 110.0),
    timed("warm", "bare", 100.0),
    timed("warm", "bare", 200.0),
    timed("warm", "vllm", 240.0),
    timed("warm", "vllm", 130.0),
    timed("warm", "bare", 100.0),
    Sample("warm", "torch", {}, "RuntimeError: no"),
    timed("cold", "torch", 2000.0),
]


def test_figures_are_medians_over_repeats() -> None:
    found = {(one.cell, one.arm): one for one in figures(SAMPLES)}
    assert list(found) == [("warm", "vllm"), ("warm", "bare"), ("warm", "torch"), ("cold", "torch")]
    assert found["warm", "vllm"].values == {"ms": Spread(130.0, 110.0, 240.0)}
    assert (found["warm", "torch"].values, found["warm", "torch"].failure) == ({}, "RuntimeError: no")
    assert str(found["cold", "torch"].values["ms"]) == "2000.0 [2000.0-2000.0]"


def test_ratios_are_of_the_same_repeat() -> None:
    """Of 1.1, 1.2 and 1.3: not 130 over 100."""
    assert ratios(SAMPLES, "ms", "bare") == {("warm", "vllm"): pytest.approx(1.2)}


def test_a_value_that_is_missing_once_counts_where_it_is_not() -> None:
    [found] = figures(
        [Sample(1, "a", {"ms": 1.0, "share": 0.5}), Sample(1, "a", {"ms": 3.0}, "late"), Sample(1, "a", {})]
    )
    assert found.values == {"ms": Spread(2.0, 1.0, 3.0), "share": Spread(0.5, 0.5, 0.5)}
    assert found.failure == "late"


def test_every_arm_comes_first_in_turn() -> None:
    assert [rotated("abc", repeat) for repeat in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]
    assert rotated((), 3) == []
