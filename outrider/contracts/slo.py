"""SLO classes by promised token speed (WISP section 3.1), and the record of how far a promise was kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from outrider.contracts.errors import ParameterError
from outrider.contracts.plain import Plain


@dataclass(frozen=True, slots=True)
class SloClass:
    name: str  # as requests and metrics give it
    tokens_per_s: float = 0.0  # promised from a response's first token to its last; 0 promises nothing (best effort)
    semantic: bool = False  # whether its greedy responses are verified semantically, unless a request decides otherwise


BEST_EFFORT = SloClass("best_effort")

# The four speeds of WISP section 5.1, each class named by its speed.
DEFAULT_CLASSES = (*(SloClass(f"speed_{speed}", float(speed)) for speed in (2, 4, 6, 8)), BEST_EFFORT)


def slo_class_named(name: str, classes: Sequence[SloClass]) -> SloClass:
    """Return the class of this name; a ``ParameterError`` lists the known ones."""
    by_name: Mapping[str, SloClass] = {known.name: known for known in classes}
    if name not in by_name:
        raise ParameterError("outrider.slo_class", f"one of {', '.join(by_name)}", name)
    return by_name[name]


@dataclass(frozen=True, slots=True)
class LedgerRecord(Plain):
    """A response's ledger as its resume record carries it."""

    tokens: int = 0  # committed after the first commit
    elapsed_s: float = 0.0  # from the first commit to the last
    slack_s: float = 0.0  # at the last commit, time until it would have been behind
    times_behind: int = 0  # commits that came too late

    @property
    def tokens_per_s(self) -> float | None:
        """Mean speed from the first commit to the last; None after a single commit."""
        return self.tokens / max(self.elapsed_s, 1e-9) if self.tokens else None

    def delayed(self, gap_s: float) -> "LedgerRecord":
        """Return the record after a gap of this length without a commit."""
        return replace(self, elapsed_s=self.elapsed_s + gap_s, slack_s=self.slack_s - gap_s)
