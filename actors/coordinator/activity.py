"""Computes what coordinators did between two of their reports. Pure.

Counters start with the coordinator's process, so figures come from differences; a restarted coordinator has a new id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from actors.messages import CoordinatorReport


@dataclass(frozen=True, slots=True)
class CoordinatorActivity:
    """Figures of all coordinators in a span of time; seconds are summed over rounds."""

    span_s: float
    rounds: int
    drafted_tokens: int
    accepted_tokens: int
    trimmed_tokens: int
    committed_tokens: int
    phase_seconds: Mapping[str, float]
    verifier_idle_s: Mapping[str, float]  # by coordinator

    def tokens_per_s(self) -> float | None:
        return _ratio(self.committed_tokens, self.span_s)

    def rounds_per_s(self) -> float | None:
        return _ratio(self.rounds, self.span_s)

    def accepted_fraction(self) -> float | None:
        """Return accepted over drafted tokens, without drafted tokens that were trimmed."""
        return _ratio(self.accepted_tokens, self.drafted_tokens - self.trimmed_tokens)

    def tokens_per_round(self) -> float | None:
        """Committed tokens per round; rounds without a draft count, too."""
        return _ratio(self.committed_tokens, self.rounds)

    def phase_ms(self, phase: str) -> float | None:
        return _ratio(1e3 * self.phase_seconds.get(phase, 0.0), self.rounds)


def activity_between(
    before: Sequence[CoordinatorReport] | None, now: Sequence[CoordinatorReport], elapsed_s: float
) -> CoordinatorActivity:
    """Return the activity since ``before``, ``elapsed_s`` seconds ago; None: since the coordinators' start."""
    earlier = {} if before is None else {coordinator.id: coordinator for coordinator in before}
    pairs = []
    for coordinator in now:
        then = earlier.get(coordinator.id)
        if then is None:
            # It started in between; or it was not heard for a while, and what it did in this span is not known.
            is_new = before is None or coordinator.uptime_s <= elapsed_s
            then = CoordinatorReport(coordinator.id, "", 0.0) if is_new else coordinator
        pairs.append((then, coordinator))

    def total(name: str) -> int:
        return sum(max(0, getattr(c, name) - getattr(then, name)) for then, c in pairs)

    phases = dict.fromkeys(phase for _, c in pairs for phase in c.phase_seconds)
    return CoordinatorActivity(
        elapsed_s,
        total("rounds"),
        total("drafted_tokens"),
        total("accepted_tokens"),
        total("trimmed_tokens"),
        total("committed_tokens"),
        {
            phase: sum(
                max(0.0, c.phase_seconds.get(phase, 0.0) - then.phase_seconds.get(phase, 0.0)) for then, c in pairs
            )
            for phase in phases
        },
        {c.id: max(0.0, c.verifier_idle_s - then.verifier_idle_s) for then, c in pairs},
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
