"""Budget for probing other modes: when a mode may be probed, what probes cost, and a back-off for modes that lost.

What a try costs is its time times the share of the reward that is lost in it. All tries together may cost a small
allowance and a fiftieth of the time in which anything was made. A mode that loses again and again is tried ever more
seldom; where it is not known at a load, or something has changed, its turn comes as soon as the budget allows.
"""

from dataclasses import dataclass
from math import inf

from outrider.selection.rewards import Comparison

_UNKNOWN_LOSS = 0.4  # of a mode of which nothing is known
_BORROWED_LOSS = 0.2  # at least, of one that is known at other loads only
_EXTRA_S = 0.6
_BEATEN_RETRIES = 4.0
_LEAST_LOSS = 0.02  # a mode that is as good costs its changes
_LEAST_RETRIES = 6.0  # what lost is not tried again sooner, whatever has changed


@dataclass(frozen=True, slots=True)
class ProbeRules:
    """How much trying is worth.

    Attributes:
        share: of the time in which anything was made, for what tries may cost.
        allowance_s: to begin with.
        most_saved_s: unspent, at most.
        retry_s: between two tries of a mode of which it is not clear whether it is better.
        longest_retry_s: between two of a mode that lost every one.
    """

    share: float = 0.02
    allowance_s: float = 0.2
    most_saved_s: float = 2.0
    retry_s: float = 5.0
    longest_retry_s: float = 300.0


class Probes:
    """The account of tries. Mutable."""

    def __init__(self, rules: ProbeRules) -> None:
        """Begin with the allowance."""
        self._rules = rules
        self.left_s = rules.allowance_s
        self.lost_s = 0.0  # all tries together
        self.made: dict[str, int] = {}
        self._waits_s: dict[str, float] = {}
        self._next_at_s: dict[str, float] = {}
        self._lost_at_s: dict[str, float] = {}
        self._last_at_s = -inf

    def passes(self, seconds: float) -> None:
        """So much time went by in which anything was made."""
        self.left_s = min(self.left_s + self._rules.share * seconds, self._rules.most_saved_s)

    def due(
        self,
        mode: str,
        comparison: Comparison,
        takes_s: float,
        now_s: float,
        canary_loss: float | None = None,
        unknown_loss: float = _UNKNOWN_LOSS,
    ) -> bool:
        """Whether a mode may be tried now; over budget where a load is new to it and it may win.

        Args:
            mode: it.
            comparison: with the one in use, at this load.
            takes_s: so long, of everybody's time.
            now_s: absolute.
            canary_loss: expected by what canaries found; None if there were none.
            unknown_loss: expected of the mode where nothing is known.
        """
        waited = now_s >= self._next_at_s.get(mode, now_s)
        cost_s = takes_s * expected_loss(comparison, canary_loss, unknown_loss)
        if comparison.known or comparison.log_ratio == 0.0:
            return waited and cost_s <= self.left_s
        budget_s = _EXTRA_S if comparison.log_ratio + comparison.deviation > 0.0 else 0.0
        return cost_s <= self.left_s + budget_s and now_s >= self._last_at_s + self._rules.retry_s

    def spent(self, mode: str, lost_s: float, now_s: float, *, lost: bool) -> None:
        """A mode was tried, and lost for certain or not."""
        rules = self._rules
        self._charge(mode, lost_s)
        wait_s = self._waits_s.get(mode, rules.retry_s) if lost else rules.retry_s
        self._next_at_s[mode], self._last_at_s = now_s + wait_s, now_s
        self._waits_s[mode] = min(2.0 * wait_s, rules.longest_retry_s) if lost else rules.retry_s
        if lost:
            self._lost_at_s[mode] = now_s

    def canary_result(self, mode: str, lost_s: float, now_s: float, *, lost: bool) -> None:
        """Canaries have tried a mode; unless they lost for certain, all may try it at once."""
        if lost:
            self.spent(mode, lost_s, now_s, lost=True)
        else:
            self._charge(mode, lost_s)

    def beaten(self, mode: str, now_s: float) -> None:
        """A mode was left for another one that was tried beside it: no need to look back at once."""
        wait_s = _BEATEN_RETRIES * self._rules.retry_s
        self._next_at_s[mode], self._waits_s[mode] = now_s + wait_s, 2.0 * wait_s

    def forget_losses(self) -> None:
        """Something has changed: what lost may win. Not at once: on a shared machine things change all the time."""
        pause_s = _LEAST_RETRIES * self._rules.retry_s
        for mode, next_at_s in self._next_at_s.items():
            self._next_at_s[mode] = min(next_at_s, self._lost_at_s.get(mode, -inf) + pause_s)
        self._waits_s.clear()

    def _charge(self, mode: str, lost_s: float) -> None:
        self.made[mode] = self.made.get(mode, 0) + 1
        self.left_s -= lost_s
        self.lost_s += lost_s


def expected_loss(
    comparison: Comparison, canary_loss: float | None = None, unknown_loss: float = _UNKNOWN_LOSS
) -> float:
    """Share of the reward that trying a mode should cost."""
    if comparison.known:
        return max(_LEAST_LOSS, comparison.loss)
    if canary_loss is not None:
        return canary_loss
    if comparison.log_ratio == 0.0:
        return unknown_loss
    return max(min(_BORROWED_LOSS, unknown_loss), comparison.loss)
