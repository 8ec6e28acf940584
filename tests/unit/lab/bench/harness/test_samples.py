from lab.bench.harness.statistics import Sample, Spread, figures, rotated


def test_figures_are_medians_over_repeats() -> None:
    samples = [Sample(1, "vllm", {"ms": ms}) for ms in (110.0, 240.0, 130.0)]
    failed, slow = Sample(1, "torch", {}, "RuntimeError: no"), Sample(4, "torch", {"ms": 2000.0})
    found = {(one.clients, one.arm): one for one in figures([*samples, failed, slow])}
    assert list(found) == [(1, "vllm"), (1, "torch"), (4, "torch")]
    assert found[1, "vllm"].values == {"ms": Spread(130.0, 110.0, 240.0)}
    assert (found[1, "torch"].values, found[1, "torch"].failure) == ({}, "RuntimeError: no")
    assert str(found[4, "torch"].values["ms"]) == "2000.0 [2000.0-2000.0]"


def test_a_value_that_is_missing_once_counts_where_it_is_not() -> None:
    [found] = figures(
        [Sample(1, "a", {"ms": 1.0, "share": 0.5}), Sample(1, "a", {"ms": 3.0}, "late"), Sample(1, "a", {})]
    )
    assert found.values == {"ms": Spread(2.0, 1.0, 3.0), "share": Spread(0.5, 0.5, 0.5)}
    assert found.failure == "late"


def test_every_arm_comes_first_in_turn() -> None:
    assert [rotated("abc", repeat) for repeat in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]
    assert rotated((), 3) == []
