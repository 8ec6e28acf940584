"""Promised token speeds (WISP section 3.1): the classes, and what was kept of a promise as it travels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from outrider.contracts.errors import ParameterError
from outrider.contracts.plain import Plain


@dataclass(frozen=True, slots=True)
class SloClass:
    """A promise a request can ask for."""

    name: str  # as requests and metrics give it
    tokens_per_s: float = 0.0  # promised from a response's first token to its last; 0 promises nothing (best effort)
    semantic: bool = False  # whether its greedy responses may be verified semantically, unless a request says otherwise


BEST_EFFORT = SloClass("best_effort")

# The papers' four speeds (WISP section 5.1), each named by what it promises.
DEFAULT_CLASSES = (*(SloClass(f"speed_{speed}", float(speed)) for speed in (2, 4, 6, 8)), BEST_EFFORT)


def slo_class_named(name: str, classes: Sequence[SloClass]) -> SloClass:
    """The class a request asks for.

    Raises:
        ParameterError: there is none of this name; the message lists those there are.
    """
    by_name: Mapping[str, SloClass] = {known.name: known for known in classes}
    if name not in by_name:
        raise ParameterError("outrider.slo_class", f"one of {', '.join(by_name)}", name)
    return by_name[name]


@dataclass(frozen=True, slots=True)
class LedgerRecord(Plain):
    """A ledger as it travels with a resume record."""

    tokens: int = 0  # committed after the first commit
    elapsed_s: float = 0.0  # from the first commit to the last
    slack_s: float = 0.0  # time until it would be behind, at the last commit
    times_behind: int = 0  # commits that came too late

    @property
    def tokens_per_s(self) -> float | None:
        """Mean speed from the first commit to the last; None while there was one only."""
        return self.tokens / max(self.elapsed_s, 1e-9) if self.tokens else None

    def delayed(self, gap_s: float) -> "LedgerRecord":
        """The record after nothing was committed for so long."""
        return replace(self, elapsed_s=self.elapsed_s + gap_s, slack_s=self.slack_s - gap_s)
