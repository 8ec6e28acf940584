"""Budget of the speculation tuner's trials, with a pause after each trial that doubles while a mode keeps losing.

A trial costs its time, times the share of the reward that is lost in it. All trials together may cost a small allowance
and a fiftieth of the time with active generations. A mode that loses again and again is tried ever more seldom. Where
it is unknown at a load, or something has changed, it is due as soon as the budget allows.
"""

from collections.abc import Mapping
from math import inf
from types import MappingProxyType

from outrider.selection.tuning.rewards import Comparison

_SHARE = 0.02  # of the time with active generations, that trials may cost
_ALLOWANCE_S = 0.2  # budget to begin with
_MOST_SAVED_S = 2.0  # largest budget that is saved up
_RETRY_S = 5.0  # pause between two trials of a mode while it is unclear whether it is better
_LONGEST_RETRY_S = 300.0  # longest pause of a mode that lost every trial
_UNKNOWN_LOSS = 0.4  # expected of a mode without any reward
_BORROWED_LOSS = 0.2  # least expected loss of a mode known at other loads only
_EXTRA_S = 0.6  # overdraft for a mode that is known at other loads only and may win
_BEATEN_S = 4.0 * _RETRY_S  # pause of a mode that was just left for a better one
_LEAST_LOSS = 0.02  # even an equal mode costs the changes to it and back
_LEAST_PAUSE_S = 6.0 * _RETRY_S  # after a lost trial, whatever has changed


class TrialBudget:
    def __init__(self, pauses_s: Mapping[str, float] = MappingProxyType({}), now_s: float = 0.0) -> None:
        """Begin; a mode with a pause from an earlier tuner, as it lost then, waits for that now."""
        self.left_s = _ALLOWANCE_S
        self.lost_s = 0.0  # cost of all trials together
        self.made: dict[str, int] = {}
        self.pauses_s = dict(pauses_s)  # after the next lost trial of each mode that lost its last one
        self._next_at_s = {mode: now_s + max(pause_s, _LEAST_PAUSE_S) for mode, pause_s in pauses_s.items()}
        self._lost_at_s = dict.fromkeys(pauses_s, now_s)
        self._last_at_s = -inf

    def accrue(self, seconds: float) -> None:
        """Add to the budget for time with active generations."""
        self.left_s = min(self.left_s + _SHARE * seconds, _MOST_SAVED_S)

    def due(
        self,
        mode: str,
        comparison: Comparison,
        takes_s: float,
        now_s: float,
        unknown_loss: float = _UNKNOWN_LOSS,
    ) -> bool:
        """Whether a mode may be tried now. Beyond the budget only if this load is new to it and it may win.

        The trial takes ``takes_s`` of all generations' time; ``unknown_loss`` is expected of a mode without any reward.
        """
        waited = now_s >= self._next_at_s.get(mode, now_s)
        cost_s = takes_s * expected_loss(comparison, unknown_loss)
        if comparison.known or comparison.log_ratio == 0.0:
            return waited and cost_s <= self.left_s
        budget_s = _EXTRA_S if comparison.log_ratio + comparison.deviation > 0.0 else 0.0
        return cost_s <= self.left_s + budget_s and now_s >= self._last_at_s + _RETRY_S

    def spent(self, mode: str, lost_s: float, now_s: float, *, lost: bool) -> None:
        """Charge a trial and set the pause after it; ``lost``: it lost for certain."""
        self.made[mode] = self.made.get(mode, 0) + 1
        self.left_s -= lost_s
        self.lost_s += lost_s
        wait_s = self.pauses_s.get(mode, _RETRY_S) if lost else _RETRY_S
        self._next_at_s[mode], self._last_at_s = now_s + wait_s, now_s
        self.pauses_s[mode] = min(2.0 * wait_s, _LONGEST_RETRY_S) if lost else _RETRY_S
        if lost:
            self._lost_at_s[mode] = now_s

    def beaten(self, mode: str, now_s: float) -> None:
        """Set the pause of a mode that was left for a better one; the trial has just compared the two."""
        self._next_at_s[mode], self.pauses_s[mode] = now_s + _BEATEN_S, 2.0 * _BEATEN_S

    def forget_losses(self) -> None:
        """Shorten the pauses after a change, as losers may win now. Keep a least one: shared machines change often."""
        for mode, next_at_s in self._next_at_s.items():
            self._next_at_s[mode] = min(next_at_s, self._lost_at_s.get(mode, -inf) + _LEAST_PAUSE_S)
        self.pauses_s.clear()


def expected_loss(comparison: Comparison, unknown_loss: float = _UNKNOWN_LOSS) -> float:
    """Return the share of the reward that a trial of a mode should lose, by the best evidence there is."""
    if comparison.known:
        return max(_LEAST_LOSS, comparison.loss)
    if comparison.log_ratio == 0.0:
        return unknown_loss
    return max(min(_BORROWED_LOSS, unknown_loss), comparison.loss)
