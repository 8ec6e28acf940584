"""Whether memory stays flat: the slope of each process's memory over its life. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_WARM_UP_S = 60.0  # of a process's life, in which it loads what it needs
_LEAST_S = 120.0  # of samples behind that, or a slope says nothing


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory of its own of one process."""

    at_s: float
    process: int
    kind: str
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Slope:
    """Of one process, by least squares; ``mib_per_h`` is None where it did not live long enough."""

    kind: str
    process: int
    lived_s: float
    first_mib: float
    last_mib: float
    mib_per_h: float | None


def slopes(samples: Sequence[Sample]) -> list[Slope]:
    """Of each process, kind by kind."""
    by_process: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        by_process.setdefault((sample.kind, sample.process), []).append(sample)
    return [_slope(kind, process, mine) for (kind, process), mine in sorted(by_process.items())]


def _slope(kind: str, process: int, samples: Sequence[Sample]) -> Slope:
    began_s, ended_s = samples[0].at_s, samples[-1].at_s
    warm = [sample for sample in samples if sample.at_s >= began_s + _WARM_UP_S]
    long_enough = len(warm) > 2 and warm[-1].at_s - warm[0].at_s >= _LEAST_S
    per_s = _per_second([(sample.at_s, float(sample.rss_bytes)) for sample in warm]) if long_enough else None
    return Slope(
        kind,
        process,
        ended_s - began_s,
        samples[0].rss_bytes / 2**20,
        samples[-1].rss_bytes / 2**20,
        None if per_s is None else per_s * 3600 / 2**20,
    )


def _per_second(points: Sequence[tuple[float, float]]) -> float:
    mean_s = sum(at_s for at_s, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    return sum((at_s - mean_s) * (value - mean) for at_s, value in points) / sum(
        (at_s - mean_s) ** 2 for at_s, _ in points
    )


def table(found: Sequence[Slope]) -> str:
    """To be read: processes by kind, and of those that lived long enough the slopes."""
    lines = [f"{'process':<22}{'lived s':>9}{'first MiB':>11}{'last MiB':>10}{'MiB/h':>9}"]
    for each in found:
        per_h = "-" if each.mib_per_h is None else f"{each.mib_per_h:+.1f}"
        name = f"{each.kind} {each.process}"
        lines.append(f"{name:<22}{each.lived_s:>9.0f}{each.first_mib:>11.0f}{each.last_mib:>10.0f}{per_h:>9}")
    return "\n".join(lines)


def worst(found: Sequence[Slope]) -> Mapping[str, float]:
    """The steepest slope of each kind, in MiB/h."""
    steepest: dict[str, float] = {}
    for each in found:
        if each.mib_per_h is not None:
            steepest[each.kind] = max(each.mib_per_h, steepest.get(each.kind, each.mib_per_h))
    return steepest
