"""The last minutes of a service in a few figures, one row for each look at it. Pure.

Rates are of the time between two looks, so a look tells of what happened since the one before it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields

from actors.activity import activity_between
from actors.messages import DrafterState, FleetStatus

MOST_SAMPLES = 300
KEPT_S = 600.0
MOST_GAP_S = 30.0  # nobody looked for so long: what happened meanwhile is nobody's rate now


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. None where nothing happened that a figure could be of.

    Attributes:
        at_s: Unix time.
        accepted_fraction: of the drafted tokens that were judged since the look before.
        verifiers_busy: mean share of the time since then that verifiers computed.
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
    """Bounded by number and age of its samples. All times are Unix times, in order."""

    def __init__(self) -> None:
        """Nobody has looked yet."""
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._last: tuple[float, FleetStatus] | None = None

    def looked(self, status: FleetStatus, now_s: float) -> None:
        """This is how things stand now."""
        self._samples.append(sample_of(status, now_s, self._last))
        self._last = now_s, status
        while self._samples[0].at_s < now_s - KEPT_S:
            self._samples.popleft()

    def columns(self, after_s: float) -> dict[str, list[float | int | None]]:
        """The figures of all looks after that time, oldest first, by name."""
        samples = [sample for sample in self if sample.at_s > after_s]
        return {field.name: [getattr(sample, field.name) for sample in samples] for field in fields(Sample)}

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._samples)


def sample_of(status: FleetStatus, now_s: float, before: tuple[float, FleetStatus] | None) -> Sample:
    """What a look tells, the one before it known."""
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
