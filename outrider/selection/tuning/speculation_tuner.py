"""The speculation tuner measures a verifier's speculation modes in turn and keeps the fastest at the present load.

Whether drafting pays under load cannot be measured round by round: what one generation's draft costs the others shows
only when all generations draft alike. So one mode is in use for all generations of a verifier. Its *reward*, the
committed tokens per second of an active generation, is measured in epochs common to all, and compared at equal loads
(``outrider.selection.tuning.rewards``).

docs/design/0019 has the rules: which rounds count, when another mode is tried, when the kept mode is left for a better
one, and what a tuner begins with that has ``LearnedChoice`` from an earlier one on the same machine.

Pure: the caller reports events with their times. ``round`` is called at every commit, so it does very little.
"""

from collections.abc import Sequence
from math import log

from outrider.selection.modes import SpeculationMode
from outrider.selection.tuning.epoch_samples import ActiveInterval, EpochThroughput, are_apart, shortfall
from outrider.selection.tuning.evidence import TunerEvidence
from outrider.selection.tuning.learned import LearnedChoice
from outrider.selection.tuning.report import TunerReport, at_load
from outrider.selection.tuning.rewards import Comparison, Rewards
from outrider.selection.tuning.trial_budget import TrialBudget

_TICK_S, _TRIAL_TICK_S = 0.25, 0.05  # shortest time between two decisions; the same during a trial
_EPOCH_S = 0.75  # shortest epoch
_HOPELESS_S = 0.3  # shortest time in which a trial shows that it is hopeless
_MIN_ROUNDS = 4.0  # mean number of rounds of a generation that an epoch needs, unless it becomes too long
_SETTLE_S = 0.3  # shortest settling time after a change of modes
_LONGEST_SETTLE_S = 2.5  # longest, where generations wait for drafters
_MARGIN = 0.03  # relative gain below which a mode does not count as better
_CHANGE_S = 0.3  # cost of a change of modes, in seconds of all generations' time
_STEADY = log(1.5)  # loads of two epochs in a row within this ratio (log) are steady: only then is a trial begun
_LONGEST_EPOCH_S = 3.0 * _EPOCH_S
_LEAST_ROUNDS = 2.0  # per generation, for an epoch to be judged at all
_MOST_TRIAL_EPOCHS = 12  # of one trial; what the kept mode showed grows old meanwhile
_GIVEN_UP = 0.25  # a trial that loses a larger share of the reward ends before its epoch is over
_WITH_DRAFTERS = 0.75  # of the generations; settling does not wait for the others
_FORGOTTEN_S = 5.0  # a trial ends without result if the verifier is idle for longer
_MANY_ROUNDS = 8.0  # of all generations together: then one of each tells whether a trial is hopeless
_TRIAL_S = 0.9  # duration of a trial that loses, with settling
_ALONE_LOSS = 0.15  # most, assumed of an unknown mode while one generation is active: it can slow nobody else

ComparedMode = tuple[SpeculationMode, Comparison]  # with the kept mode


class SpeculationTuner:
    """Chooses the speculation mode of one verifier. Mutable."""

    def __init__(self, modes: Sequence[SpeculationMode], now_s: float, learned: LearnedChoice | None = None) -> None:
        """Begin with the first mode, or with what an earlier tuner on this machine has ``learned``."""
        self._modes, earlier = tuple(modes), learned or LearnedChoice()
        self._mode = self._kept = next((mode for mode in modes if mode.name == earlier.kept), self._modes[0])
        self._rewards, self._evidence = Rewards(earlier.rewards), TunerEvidence(now_s)
        self._trials = TrialBudget(earlier.pauses_s, now_s)
        self._due_at_s = self._changed_at_s = now_s
        # Since the last change of modes, and since the last tick.
        self._changed = self._tick_span = ActiveInterval(self._evidence.activity, now_s)
        self._unpaid = ActiveInterval(self._evidence.choosing, now_s)
        self._epoch: ActiveInterval | None = None  # None while settling
        self._last_load: float | None = None  # of the last epoch under the kept mode
        self._regret_s = 0.0  # accumulated cost of staying with the kept mode
        self._trial_epochs = 0
        self._is_young = False  # a trial in its first epoch, which shows only whether it is hopeless
        self._changes = 0

    @property
    def mode(self) -> SpeculationMode:
        return self._mode

    def asked(self, generation: str) -> None:
        """Note that a prompt goes to the verifier: rounds beside its prefill count as disturbed."""
        self._evidence.asked(generation)

    def began(self, generation: str, now_s: float, *, counts: bool = True) -> None:
        """Note that a response has its first tokens, and is active.

        ``counts``: false for one that fixes its drafts itself: it is load, but no evidence for a mode.
        """
        evidence = self._evidence
        idle = evidence.activity.count == 0 and now_s - evidence.idle_since_s > _FORGOTTEN_S
        if idle and self._mode is not self._kept:
            self._use(self._kept, now_s)
        evidence.began(generation, now_s, counts=counts)

    def ended(self, generation: str, now_s: float) -> None:
        """Note the end of a response that was ``asked`` for; it may have ended before it ``began``."""
        self._evidence.ended(generation, now_s)

    def ready(self, generation: str) -> None:
        """Note that a response's drafter has its prefix. Call it before or after ``began``, never after ``ended``."""
        self._evidence.ready.add(generation)

    def round(
        self, generation: str, committed_tokens: int, round_s: float, now_s: float, *, late: bool | None = None
    ) -> None:
        """Enter a committed round, other than the response's first; decide if a tick is due.

        The round ends now. ``late``: whether it was slower than promised; None if it had no promise to keep.
        """
        self._evidence.round(generation, committed_tokens, round_s, now_s, late)
        if now_s >= self._due_at_s:
            self._tick(now_s)

    def report(self, now_s: float) -> TunerReport:
        load = self._last_load
        return TunerReport(
            arm=self._mode.name,
            kept=self._kept.name,
            rewards=tuple((mode.name, self._rewards.of(mode.name)) for mode in self._modes),
            probes=tuple((mode.name, self._trials.made.get(mode.name, 0)) for mode in self._modes),
            probes_lost_s=self._trials.lost_s,
            active_s=self._evidence.choosing.at(now_s)[0],
            changes=self._changes,
            at_load=() if load is None else tuple(at_load(self._rewards, self._modes, self._kept, load)),
        )

    def learned(self) -> LearnedChoice:
        """What the next tuner on this machine may begin with."""
        return LearnedChoice(self._kept.name, self._rewards.lasting(), self._trials.pauses_s)

    def _tick(self, now_s: float) -> None:
        passed = self._tick_span
        self._due_at_s = now_s + (_TICK_S if self._mode is self._kept else _TRIAL_TICK_S)
        self._tick_span = ActiveInterval(self._evidence.activity, now_s)
        passed_s, load = passed.seconds(now_s), passed.load(now_s)
        self._trials.accrue(self._unpaid.seconds(now_s))
        self._unpaid = ActiveInterval(self._evidence.choosing, now_s)
        if self._epoch is None:
            if self._settled(now_s):
                self._begin_epoch(now_s)
                self._evidence.from_s = now_s
        elif self._mode is self._kept and self._should_switch(passed_s, load):
            self._use(self._kept, now_s)
        elif are_apart(load, self._epoch.load(now_s)):  # the load has moved: no reward belongs to such a mixture
            self._begin_epoch(now_s)
        else:
            self._measure(self._epoch, now_s)

    def _settled(self, now_s: float) -> bool:
        waited_s = now_s - self._changed_at_s
        if waited_s < _SETTLE_S:
            return False
        if not self._mode.needs_drafters or waited_s >= _LONGEST_SETTLE_S:
            return True
        counting = self._evidence.samples.undisturbed.keys()
        return len(self._evidence.ready & counting) >= _WITH_DRAFTERS * len(counting)

    def _begin_epoch(self, now_s: float) -> None:
        self._epoch = ActiveInterval(self._evidence.activity, now_s)
        self._evidence.samples.restart()

    def _measure(self, epoch: ActiveInterval, now_s: float) -> None:
        """Take the epoch's reward if the epoch is long enough, and decide what follows."""
        seconds, shortest_s = epoch.seconds(now_s), _EPOCH_S if self._mode is self._kept else _HOPELESS_S
        if seconds < shortest_s:
            return
        mean_rounds = self._evidence.samples.mean_rounds()
        # An epoch ends with enough rounds, early if the trial is hopeless, or at its longest with what there is:
        # then even disturbed rounds count, if there are hardly any others.
        if seconds < _LONGEST_EPOCH_S:
            found = self._evidence.samples.found(epoch.load(now_s), seconds, disturbed=False)
            long = seconds >= _EPOCH_S and mean_rounds >= _MIN_ROUNDS
            least = max(1.0, min(_LEAST_ROUNDS, _MANY_ROUNDS / len(self._evidence.samples.undisturbed or "1")))
            enough = long or (mean_rounds >= least and self._hopeless(found))
            if found is None or not enough:
                return
        else:
            found = self._evidence.samples.found(epoch.load(now_s), seconds, disturbed=mean_rounds < _LEAST_ROUNDS)
            if found is None:
                return
        if self._is_young and not self._hopeless(found):
            self._is_young = False
            self._begin_epoch(now_s)
            return
        changed = self._rewards.observe(self._mode.name, found)
        self._begin_epoch(now_s)
        if self._mode is not self._kept:
            self._judge(found.load, now_s)
            return
        if changed:
            self._trials.forget_losses()
        steady = self._last_load is not None and abs(log(found.load / self._last_load)) <= _STEADY
        self._last_load = found.load
        if steady:
            self._try_another(found.load, now_s)

    def _hopeless(self, found: EpochThroughput | None) -> bool:
        """Whether a trial loses so much that it should end at once."""
        if found is None or self._mode is self._kept:
            return False
        kept = self._rewards.tokens_per_s(self._kept.name, found.load)
        return kept is not None and found.tokens_per_s < (1.0 - _GIVEN_UP) * kept

    def _try_another(self, load: float, now_s: float) -> None:
        """Begin a trial of the most promising mode that is due; of equal ones, the one more like the kept one."""
        alone, due = len(self._evidence.samples.undisturbed) == 1, list[ComparedMode]()
        for mode, comparison in self._others(load):
            unknown_loss = min(mode.unknown_loss, _ALONE_LOSS) if alone else mode.unknown_loss
            if self._trials.due(mode.name, comparison, _TRIAL_S, now_s, unknown_loss):
                due.append((mode, comparison))
        if due:
            self._use(
                min(due, key=lambda one: (one[1].loss, one[0].uses_lookup is not self._kept.uses_lookup))[0], now_s
            )

    def _judge(self, load: float, now_s: float) -> None:
        """After an epoch of a trial: keep the tried mode, give it up, or try on while the result is unclear."""
        trials = self._trials
        tried = self._rewards.compare(self._mode.name, self._kept.name, load)
        lost_s = self._cost_s(tried.loss, load, now_s)
        self._trial_epochs += 1
        better = tried.known and tried.better(_MARGIN)
        lost = tried.known and tried.no_better(_MARGIN)
        # A loss by older rewards is not certain where the last epoch was much better than these.
        surprised = lost and self._rewards.surprise(self._mode.name, load) > 0.0
        unclear = tried.known and not better and (surprised or not lost)
        if unclear and lost_s < trials.left_s and self._trial_epochs < _MOST_TRIAL_EPOCHS:
            return
        trials.spent(self._mode.name, lost_s, now_s, lost=lost)
        if better:
            trials.beaten(self._kept.name, now_s)
            self._keep(self._mode)
        else:
            self._use(self._kept, now_s)

    def _cost_s(self, lost_share: float, load: float, now_s: float) -> float:
        """Return the cost of a trial in seconds: its time, times the share of the reward that was lost.

        The share is the larger of its epoch's and the one since the change of modes. Before the epoch begins drafters
        compute prefixes, which may take processors from the verifier.
        """
        kept, made = self._rewards.tokens_per_s(self._kept.name, load), self._evidence.made
        missed = shortfall(made.tokens / made.seconds, kept) if made.seconds else 0.0
        return max(0.0, lost_share, missed) * self._changed.seconds(now_s)

    def _should_switch(self, passed_s: float, load: float) -> bool:
        """Add up the regret of the time passed; change the kept mode once it exceeds the cost of a change."""
        if load <= 0.0 or len(self._modes) == 1:
            return False
        mode, comparison = min(self._others(load), key=_loss)
        if comparison.better(_MARGIN):
            self._regret_s -= passed_s * comparison.loss
        else:
            self._regret_s = max(0.0, self._regret_s - passed_s * max(0.0, comparison.loss))
        if self._regret_s < _CHANGE_S:
            return False
        self._keep(mode)
        return True

    def _others(self, load: float) -> list[ComparedMode]:
        kept = self._kept
        return [(mode, self._rewards.compare(mode.name, kept.name, load)) for mode in self._modes if mode is not kept]

    def _keep(self, mode: SpeculationMode) -> None:
        self._kept, self._regret_s, self._last_load = mode, 0.0, None
        self._changes += 1

    def _use(self, mode: SpeculationMode, now_s: float) -> None:
        """Put a mode into use for all generations; begin to settle."""
        self._mode, self._changed_at_s = mode, now_s
        self._changed, self._epoch = ActiveInterval(self._evidence.activity, now_s), None
        self._evidence.restart()
        self._regret_s, self._trial_epochs = 0.0, 0
        self._is_young = mode is not self._kept


def _loss(one: ComparedMode) -> float:
    return one[1].loss
