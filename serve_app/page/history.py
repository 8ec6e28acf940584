"""Keeps a service's figures of the last ten minutes, one sample for each status read. Pure.

Rates are over the time between two reads of the fleet's status.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields

from actors.coordinator.activity import activity_between
from actors.messages import DrafterState, FleetStatus

MOST_SAMPLES = 300
KEPT_S = 600.0
MOST_GAP_S = 30.0  # after a longer gap between two reads no rate is computed


@dataclass(frozen=True, slots=True)
class Sample:
    """Figures of one read; None where there is nothing to compute a figure from.

    Attributes:
        at_s: Unix time.
        accepted_fraction: of the drafted tokens that were verified since the previous read.
        verifiers_busy: mean share of that time that verifiers computed.
        kv_used: share of all verifiers' KV blocks that responses hold.
    """

    at_s: float
    tokens_per_s: float | None
    rounds_per_s: float | None
    accepted_fraction: float | None
    verifiers_busy: float | None
    kv_used: float | None
    running: int
    queued: int
    drafters_ready: int


class History:
    """Samples, bounded by number and age. All times are Unix times, in order."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._last: tuple[float, FleetStatus] | None = None

    def looked(self, status: FleetStatus, now_s: float) -> None:
        self._samples.append(sample_of(status, now_s, self._last))
        self._last = now_s, status
        while self._samples[0].at_s < now_s - KEPT_S:
            self._samples.popleft()

    def columns(self, after_s: float) -> dict[str, list[float | int | None]]:
        """Return the figures of all samples after ``after_s``, oldest first, by field name."""
        samples = [sample for sample in self if sample.at_s > after_s]
        return {field.name: [getattr(sample, field.name) for sample in samples] for field in fields(Sample)}

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._samples)


def sample_of(status: FleetStatus, now_s: float, before: tuple[float, FleetStatus] | None) -> Sample:
    """Compute a sample; ``before`` is the previous read, with its time."""
    coordinators = status.coordinators
    tokens_per_s = rounds_per_s = accepted_fraction = busy = None
    if before is not None and 0.0 < now_s - before[0] <= MOST_GAP_S:
        did = activity_between(before[1].coordinators, coordinators, now_s - before[0])
        idle = [min(1.0, idle_s / did.span_s) for idle_s in did.verifier_idle_s.values()]
        busy = 1.0 - sum(idle) / len(idle) if idle else None
        tokens_per_s, rounds_per_s, accepted_fraction = did.tokens_per_s(), did.rounds_per_s(), did.accepted_fraction()
    total = sum(each.kv.total_blocks for each in coordinators if each.kv is not None)
    used = sum(each.kv.used_blocks for each in coordinators if each.kv is not None)
    return Sample(
        now_s,
        tokens_per_s,
        rounds_per_s,
        accepted_fraction,
        busy,
        kv_used=used / total if total else None,
        running=sum(each.generations for each in coordinators),
        queued=sum(each.queued_generations for each in coordinators),
        drafters_ready=sum(each.state is DrafterState.READY for each in status.drafters),
    )
