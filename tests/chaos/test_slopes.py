"""A leak shows as a slope; loading does not, and a short life says nothing."""

import pytest

from tests.chaos.slopes import Sample, slopes, table, worst

MIB = 2**20


def lived(kind: str, process: int, seconds: int, mib_per_h: float, loading_mib: int = 0) -> list[Sample]:
    found = []
    for at_s in range(0, seconds, 5):
        loading = loading_mib * min(at_s, 50) / 50
        found.append(Sample(float(at_s), process, kind, int((100 + loading + mib_per_h * at_s / 3600) * MIB)))
    return found


def test_a_leak_is_found_beside_what_is_flat() -> None:
    leaks, flat = slopes([*lived("verifier", 1, 1200, 30.0, loading_mib=500), *lived("ingress", 2, 1200, 0.0)])
    found = {each.kind: each.mib_per_h for each in (leaks, flat)}
    assert found == {"verifier": pytest.approx(30.0, abs=0.1), "ingress": pytest.approx(0.0, abs=0.01)}


def test_who_was_just_started_has_no_slope() -> None:
    (young,) = slopes(lived("drafter", 3, 150, 900.0))
    assert young.mib_per_h is None
    assert worst([young]) == {}


def test_the_worst_of_a_kind_counts() -> None:
    found = slopes([*lived("drafter", 4, 900, 1.0), *lived("drafter", 5, 900, 9.0)])
    assert worst(found) == {"drafter": pytest.approx(9.0, abs=0.1)}
    assert len(table(found).splitlines()) == 3
