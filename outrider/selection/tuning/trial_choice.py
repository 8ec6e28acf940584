"""Which mode is tried next, and whether by a few canaries first or by all generations."""

from collections.abc import Collection

from outrider.selection.modes import SpeculationMode
from outrider.selection.tuning.canaries import CanaryResult, canary_count
from outrider.selection.tuning.epoch_samples import are_apart
from outrider.selection.tuning.rewards import Comparison
from outrider.selection.tuning.trial_budget import TrialBudget

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
