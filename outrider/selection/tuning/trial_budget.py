"""Budget of the speculation tuner's trials, with a pause after each trial that doubles while a mode keeps losing.

A trial costs its time, times the share of the reward that is lost in it. All trials together may cost a small allowance
and a fiftieth of the time with active generations. A mode that loses again and again is tried ever more seldom. Where
it is unknown at a load, or something has changed, it is due as soon as the budget allows.
"""

from collections.abc import Collection
from math import inf

from outrider.selection.modes import SpeculationMode
from outrider.selection.tuning.canaries import CanaryResult, canary_count
from outrider.selection.tuning.epoch_samples import are_apart
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
    def __init__(self) -> None:
        self.left_s = _ALLOWANCE_S
        self.lost_s = 0.0  # cost of all trials together
        self.made: dict[str, int] = {}
        self._waits_s: dict[str, float] = {}
        self._next_at_s: dict[str, float] = {}
        self._lost_at_s: dict[str, float] = {}
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
        canary_loss: float | None = None,
        unknown_loss: float = _UNKNOWN_LOSS,
    ) -> bool:
        """Whether a mode may be tried now. Beyond the budget only if this load is new to it and it may win.

        The trial takes ``takes_s`` of all generations' time. ``canary_loss`` is None without a result of canaries;
        ``unknown_loss`` is expected of the mode without any reward.
        """
        waited = now_s >= self._next_at_s.get(mode, now_s)
        cost_s = takes_s * expected_loss(comparison, canary_loss, unknown_loss)
        if comparison.known or comparison.log_ratio == 0.0:
            return waited and cost_s <= self.left_s
        budget_s = _EXTRA_S if comparison.log_ratio + comparison.deviation > 0.0 else 0.0
        return cost_s <= self.left_s + budget_s and now_s >= self._last_at_s + _RETRY_S

    def spent(self, mode: str, lost_s: float, now_s: float, *, lost: bool) -> None:
        """Charge a trial and set the pause after it; ``lost``: it lost for certain."""
        self._charge(mode, lost_s)
        wait_s = self._waits_s.get(mode, _RETRY_S) if lost else _RETRY_S
        self._next_at_s[mode], self._last_at_s = now_s + wait_s, now_s
        self._waits_s[mode] = min(2.0 * wait_s, _LONGEST_RETRY_S) if lost else _RETRY_S
        if lost:
            self._lost_at_s[mode] = now_s

    def canary_result(self, mode: str, lost_s: float, now_s: float, *, lost: bool) -> None:
        """Charge canaries. Unless they lost for certain there is no pause: a trial by all may follow at once."""
        if lost:
            self.spent(mode, lost_s, now_s, lost=True)
        else:
            self._charge(mode, lost_s)

    def beaten(self, mode: str, now_s: float) -> None:
        """Set the pause of a mode that was left for a better one; the trial has just compared the two."""
        self._next_at_s[mode], self._waits_s[mode] = now_s + _BEATEN_S, 2.0 * _BEATEN_S

    def forget_losses(self) -> None:
        """Shorten the pauses after a change, as losers may win now. Keep a least one: shared machines change often."""
        for mode, next_at_s in self._next_at_s.items():
            self._next_at_s[mode] = min(next_at_s, self._lost_at_s.get(mode, -inf) + _LEAST_PAUSE_S)
        self._waits_s.clear()

    def _charge(self, mode: str, lost_s: float) -> None:
        self.made[mode] = self.made.get(mode, 0) + 1
        self.left_s -= lost_s
        self.lost_s += lost_s


def expected_loss(
    comparison: Comparison, canary_loss: float | None = None, unknown_loss: float = _UNKNOWN_LOSS
) -> float:
    """Return the share of the reward that a trial of a mode should lose, by the best evidence there is."""
    if comparison.known:
        return max(_LEAST_LOSS, comparison.loss)
    if canary_loss is not None:
        return canary_loss
    if comparison.log_ratio == 0.0:
        return unknown_loss
    return max(min(_BORROWED_LOSS, unknown_loss), comparison.loss)


_ALONE_LOSS = 0.15  # most, assumed of an unknown mode while one generation is active: it can slow nobody else
_VERDICT_S = 60.0  # a canary result is valid for so long

ComparedMode = tuple[SpeculationMode, Comparison]  # with the kept mode


class TrialChoice:
    def __init__(self, budget: TrialBudget, takes_s: float) -> None:
        """``takes_s``: duration of a trial, with settling there and back."""
        self._budget, self._takes_s = budget, takes_s
        self.last_results: dict[SpeculationMode, CanaryResult] = {}  # the last canary result of each mode
        self._worth_a_try: dict[SpeculationMode, CanaryResult] = {}  # of modes that canaries did not rule out

    def result(self, found: CanaryResult) -> None:
        self.last_results[found.mode] = found
        if found.lost:
            self._worth_a_try.pop(found.mode, None)
        else:
            self._worth_a_try[found.mode] = found

    def next(
        self, others: Collection[ComparedMode], kept: SpeculationMode, generations: int, load: float, now_s: float
    ) -> tuple[SpeculationMode, bool] | None:
        """Return the most promising mode that is due, and whether canaries try it first; None if none is due.

        ``generations``: number of those that follow the tuner.
        """
        due = [one for one in others if self._due(*one, generations, load, now_s)]
        if not due:
            return None
        # Of modes with equal expected loss, prefer the one that is more like the kept one.
        mode, _ = min(due, key=lambda one: (one[1].loss, one[0].uses_lookup is not kept.uses_lookup))
        if self._canaries_needed(mode, generations, load, now_s):
            return mode, True
        self._worth_a_try.pop(mode, None)
        return mode, False

    def _canaries_needed(self, mode: SpeculationMode, generations: int, load: float, now_s: float) -> int:
        """Return the number of canaries to send before a trial by all; 0 if a recent result makes them needless."""
        known = self._worth_a_try.get(mode)
        if known is not None and now_s - known.at_s < _VERDICT_S and not are_apart(known.load, load):
            return 0
        return canary_count(generations) if mode.needs_drafters else 0

    def _due(self, mode: SpeculationMode, comparison: Comparison, generations: int, load: float, now_s: float) -> bool:
        takes_s, canaries = self._takes_s, self._canaries_needed(mode, generations, load, now_s)
        if canaries:  # only they lose: a fraction of everybody's time
            takes_s *= canaries / generations
        verdict = None if canaries else self._worth_a_try.get(mode)
        canary_loss = None if verdict is None else verdict.loss
        unknown_loss = mode.unknown_loss if generations > 1 else min(mode.unknown_loss, _ALONE_LOSS)
        return self._budget.due(mode.name, comparison, takes_s, now_s, canary_loss, unknown_loss)
