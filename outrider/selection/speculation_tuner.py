"""Choose one speculation mode for all generations of a verifier by measuring the speed of each.

Whether drafting pays under load cannot be decided per round. What a draft costs other generations, and how fast all
would be without drafts, shows only when all of them do the same. So all generations share a mode. Its *reward*,
committed tokens per second of an active generation, is measured in epochs at the present load, and the mode with the
highest reward at that load is kept (``outrider.selection.rewards``).

- A generation is active from its first committed tokens to its end: prefill and idle time do not count. Rounds beside
  another response's prefill count only if there are few others.
- After a change of modes rounds count again once they have settled: autonomous runs and rounds of the old mode are over
  and, if the new mode needs drafters, most generations have one.
- Another mode is probed for an epoch or a few when it is due and the budget allows (``selection.probing``). A mode that
  needs drafters is probed by a few canaries first (``selection.canaries``).
- The mode in use is given up once staying has cost more than a change would (regret). So a load that moves back and
  forth around the crossover changes nothing, and a large step of the load is followed within an epoch.

Pure: the caller reports events with their times. ``round`` is called once per token, so it does almost nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, log

from outrider.selection.canaries import Canaries, CanaryResult, canary_count
from outrider.selection.epoch_samples import (
    ActiveGenerations,
    ActiveInterval,
    EpochSamples,
    EpochThroughput,
    ThroughputSample,
    shortfall,
)
from outrider.selection.modes import SpeculationMode
from outrider.selection.probing import ProbeRules, Probes
from outrider.selection.rewards import Comparison, Reward, Rewards

_STEADY = log(1.5)  # two epochs' loads are alike within this
_LEFT = 1.3  # an epoch is discarded where the load has left it by more than this, and by more than one
_LONGEST_EPOCH = 3.0  # times ``epoch_s``
_LEAST_ROUNDS = 2.0  # of each generation, that an epoch may be judged by
_MOST_PROBE_EPOCHS = 12  # what the kept mode showed grows old meanwhile
_GIVEN_UP = 0.25  # a try that loses more than this ends before its epoch is over
_WITH_DRAFTERS = 0.75  # of the generations; the others are not waited for
_FORGOTTEN_S = 5.0  # idle for longer, nothing comes of a try
_ALONE_LOSS = 0.15  # most, assumed of an unknown mode while one generation is active: it can slow nobody else
_VERDICT_S = 60.0  # what canaries found holds for so long


@dataclass(frozen=True, slots=True)
class TunerSettings:
    """How modes are measured and changed.

    Attributes:
        tick_s: nothing is decided more often.
        epoch_s: an epoch takes as long at least, and ``rounds_each`` rounds of a generation, on the mean.
        settle_s: behind a change of modes, at least; at most ``longest_settle_s`` where drafters are waited for.
        margin: a mode that is better by less is not better.
        change_s: what changing modes costs, in seconds of everybody's time.
    """

    tick_s: float = 0.25
    epoch_s: float = 0.75
    rounds_each: float = 4.0
    settle_s: float = 0.3
    longest_settle_s: float = 2.5
    margin: float = 0.03
    change_s: float = 0.3
    probes: ProbeRules = field(default_factory=ProbeRules)


@dataclass(frozen=True, slots=True)
class TunerReport:
    """How a speculation tuner stands.

    Attributes:
        kept: the mode that is the best as far as is known; another one in use is being tried.
        rewards: of each mode, by load.
        probes: tries of each mode, by canaries or by all.
        probes_lost_s: what they have cost, in seconds of everybody's time, out of ``active_s``: those in which anybody
            was active who does not fix drafts itself.
        changes: of the mode that is kept.
        at_load: of modes measured near the present load: tokens/s of a response, and the share of these that the mode
            loses against the one that is kept (negative: gains).
    """

    arm: str
    kept: str
    rewards: tuple[tuple[str, tuple[Reward, ...]], ...]
    probes: tuple[tuple[str, int], ...]
    probes_lost_s: float
    active_s: float
    changes: int
    at_load: tuple[tuple[str, float, float], ...] = ()


class SpeculationTuner:
    """The mode of one verifier. Mutable."""

    def __init__(self, modes: Sequence[SpeculationMode], settings: TunerSettings, now_s: float) -> None:
        """Begin with the first mode."""
        self._modes, self._settings = tuple(modes), settings
        self._mode = self._kept = self._modes[0]
        self._rewards, self._probes = Rewards(), Probes(settings.probes)
        self._activity, self._samples = ActiveGenerations(now_s), EpochSamples()
        self._choosing = ActiveGenerations(now_s)  # those that go by the mode
        self._prefilling: set[str] = set()
        self._prefilled_at_s = now_s
        self._ready: set[str] = set()
        self._due_at_s = self._idle_since_s = self._changed_at_s = now_s
        self._changed = self._tick_span = ActiveInterval(
            self._activity, now_s
        )  # since the last change of modes; since a tick
        self._made = ThroughputSample()  # by all together since the last change of modes, undisturbed
        self._unpaid = ActiveInterval(self._choosing, now_s)
        self._epoch: ActiveInterval | None = None  # None: nothing is measured
        self._from_s = inf  # rounds count that begin then or later
        self._last_load: float | None = None  # of the last epoch under the kept mode
        self._regret_s = 0.0  # what staying with the kept mode has cost
        self._probe_epochs = 0
        self._is_young = False  # the try, whose first epoch tells only whether it is hopeless
        self._changes = 0
        self._canaries = Canaries()
        self._worth_a_try: dict[SpeculationMode, CanaryResult] = {}  # of those that are worth a try
        self._last_results: dict[SpeculationMode, CanaryResult] = {}  # of all, the last

    @property
    def mode(self) -> SpeculationMode:
        """In use, but for canaries."""
        return self._mode

    def mode_of(self, generation: str) -> SpeculationMode:
        """In use for one of them."""
        canaries = self._canaries
        return canaries.mode if canaries.mode is not None and generation in canaries.out else self.mode

    def asked(self, generation: str) -> None:
        """A response's prompt is given to the verifier."""
        self._prefilling.add(generation)

    def began(self, generation: str, now_s: float, *, counts: bool = True) -> None:
        """A response has its first tokens. One that fixes its drafts itself is load, but counts for no mode."""
        idle = self._activity.count == 0 and now_s - self._idle_since_s > _FORGOTTEN_S
        if idle and self._mode is not self._kept:
            self._use(self._kept, now_s)
        if counts:
            self._samples.began(generation)
            self._choosing.moves(1, now_s)
        self._prefill_over(generation, now_s)
        self._activity.moves(1, now_s)

    def ended(self, generation: str, now_s: float) -> None:
        """A response that was asked for, and may have begun, is over."""
        if self._prefill_over(generation, now_s):
            return
        if self._samples.ended(generation):
            self._choosing.moves(-1, now_s)
        self._ready.discard(generation)
        if self._canaries.mode is not None:
            self._canaries.ended(generation)
            if self._canaries.mode is None:
                self._use(self._mode, now_s)
        self._activity.moves(-1, now_s)
        self._idle_since_s = now_s

    def ready(self, generation: str) -> None:
        """A response's drafter has its prefix; told before or after it began, and never behind its end."""
        self._ready.add(generation)

    def round(
        self, generation: str, committed_tokens: int, round_s: float, now_s: float, *, late: bool | None = None
    ) -> None:
        """A round behind a response's first was committed.

        Args:
            generation: whose; it has begun.
            committed_tokens: its.
            round_s: it took so long, and ends now.
            now_s: absolute.
            late: it broke its promise; None if it had none to keep.
        """
        began_at_s, samples = now_s - round_s, self._samples
        disturbed = self._prefilling or began_at_s < self._prefilled_at_s
        sample = (samples.disturbed if disturbed else samples.undisturbed).get(generation)
        if sample is not None and not disturbed:
            self._made.tokens += committed_tokens
            self._made.seconds += round_s
        if sample is not None and began_at_s >= self._from_s:
            sample.tokens += committed_tokens
            sample.squares += committed_tokens * committed_tokens
            sample.seconds += round_s
            sample.rounds += 1
            if late is not None:
                sample.judged += 1
                sample.late += late
        if now_s >= self._due_at_s:
            self._tick(now_s)

    def report(self, now_s: float) -> TunerReport:
        return TunerReport(
            arm=self._mode.name,
            kept=self._kept.name,
            rewards=tuple((mode.name, self._rewards.of(mode.name)) for mode in self._modes),
            probes=tuple((mode.name, self._probes.made.get(mode.name, 0)) for mode in self._modes),
            probes_lost_s=self._probes.lost_s,
            active_s=self._choosing.at(now_s)[0],
            changes=self._changes,
            at_load=() if self._last_load is None else tuple(self._at_load(self._last_load)),
        )

    def _at_load(self, load: float) -> Iterator[tuple[str, float, float]]:
        kept = self._rewards.tokens_per_s(self._kept.name, load)
        for mode in self._modes:
            reward, canary_result = self._rewards.tokens_per_s(mode.name, load), self._last_results.get(mode)
            compared = self._rewards.compare(mode.name, self._kept.name, load)
            if reward is not None and (mode is self._kept or compared.known):
                yield mode.name, reward, 0.0 if mode is self._kept else compared.loss
            elif kept is not None and canary_result is not None and not _apart(canary_result.load, load):
                yield mode.name, canary_result.ratio * kept, 1.0 - canary_result.ratio

    def _prefill_over(self, generation: str, now_s: float) -> bool:
        if generation not in self._prefilling:
            return False
        self._prefilling.remove(generation)
        self._prefilled_at_s = now_s
        return True

    def _tick(self, now_s: float) -> None:
        settings, passed = self._settings, self._tick_span
        self._due_at_s, self._tick_span = now_s + settings.tick_s, ActiveInterval(self._activity, now_s)
        passed_s, load = passed.seconds(now_s), passed.load(now_s)
        self._probes.passes(self._unpaid.seconds(now_s))
        self._unpaid = ActiveInterval(self._choosing, now_s)
        if self._epoch is None:
            if self._settled(now_s):
                self._begin_epoch(now_s)
                self._from_s = now_s
        elif self._mode is self._kept and self._should_switch(passed_s, load):
            self._use(self._kept, now_s)
        elif _apart(load, self._epoch.load(now_s)):
            self._begin_epoch(now_s)
        else:
            self._measure(self._epoch, now_s)

    def _settled(self, now_s: float) -> bool:
        waited_s, canaries = now_s - self._changed_at_s, self._canaries
        if waited_s < self._settings.settle_s:
            return False
        if not (canaries.mode or self._mode).needs_drafters or waited_s >= self._settings.longest_settle_s:
            return True
        counting = canaries.out or self._samples.undisturbed.keys()
        return len(self._ready & counting) >= _WITH_DRAFTERS * len(counting)

    def _begin_epoch(self, now_s: float) -> None:
        self._epoch = ActiveInterval(self._activity, now_s)
        self._samples.restart()

    def _measure(self, epoch: ActiveInterval, now_s: float) -> None:
        """Learn from the epoch if it is over, and decide."""
        settings, seconds = self._settings, epoch.seconds(now_s)
        if seconds < settings.epoch_s:
            return
        if self._canaries.mode is not None:
            self._weigh(self._canaries.mode, epoch, now_s)
            return
        rounds_each = self._samples.rounds_each()
        if seconds < _LONGEST_EPOCH * settings.epoch_s:
            found = self._samples.found(epoch.load(now_s), seconds, disturbed=False)
            enough = rounds_each >= settings.rounds_each or (rounds_each >= _LEAST_ROUNDS and self._hopeless(found))
            if found is None or not enough:
                return
        else:
            found = self._samples.found(epoch.load(now_s), seconds, disturbed=rounds_each < _LEAST_ROUNDS)
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
            self._probes.forget_losses()
        steady = self._last_load is not None and abs(log(found.load / self._last_load)) <= _STEADY
        self._last_load = found.load
        if steady:
            self._try_another(found.load, now_s)

    def _hopeless(self, found: EpochThroughput | None) -> bool:
        """Whether a try loses so much that nothing but its end matters."""
        if found is None or self._mode is self._kept:
            return False
        kept = self._rewards.tokens_per_s(self._kept.name, found.load)
        return kept is not None and found.tokens_per_s < (1.0 - _GIVEN_UP) * kept

    def _try_another(self, load: float, now_s: float) -> None:
        """The most promising mode whose turn it is: by canaries first if drafters are needed, then by all."""
        due = [one for one in self._others(load) if self._due(*one, load, now_s)]
        if not due:
            return
        kept = self._kept  # between modes of which as little is known, the one that is more like it
        mode, _ = min(due, key=lambda one: (_loss(one), one[0].uses_lookup is not kept.uses_lookup))
        if self._canaries_needed(mode, load, now_s):
            self._use(self._mode, now_s)
            self._canaries.send(mode, self._samples.undisturbed.keys())
        else:
            self._worth_a_try.pop(mode, None)
            self._use(mode, now_s)

    def _canaries_needed(self, mode: SpeculationMode, load: float, now_s: float) -> int:
        """Canaries to send ahead of a try; 0 if there is no need."""
        known = self._worth_a_try.get(mode)
        if known is not None and now_s - known.at_s < _VERDICT_S and not _apart(known.load, load):
            return 0
        return canary_count(len(self._samples.undisturbed)) if mode.needs_drafters else 0

    def _due(self, mode: SpeculationMode, comparison: Comparison, load: float, now_s: float) -> bool:
        settings, canaries = self._settings, self._canaries_needed(mode, load, now_s)
        takes_s = 2.0 * settings.settle_s + settings.epoch_s
        if canaries:
            takes_s *= canaries / len(self._samples.undisturbed)
        verdict = None if canaries else self._worth_a_try.get(mode)
        canary_loss = None if verdict is None else verdict.loss
        unknown_loss = mode.unknown_loss if len(self._samples.undisturbed) > 1 else min(mode.unknown_loss, _ALONE_LOSS)
        return self._probes.due(mode.name, comparison, takes_s, now_s, canary_loss, unknown_loss)

    def _weigh(self, mode: SpeculationMode, epoch: ActiveInterval, now_s: float) -> None:
        """Canaries have been out for an epoch: what they found, if it is enough."""
        canaries, settings, samples = self._canaries, self._settings, self._samples.undisturbed
        known = self._rewards.tokens_per_s(self._kept.name, epoch.load(now_s))
        ratio, rounds_each = canaries.ratio(samples, known), canaries.rounds_each(samples)
        hopeless = rounds_each >= _LEAST_ROUNDS and ratio is not None and ratio < 1.0 - 2.0 * _GIVEN_UP
        timely = epoch.seconds(now_s) < _LONGEST_EPOCH * settings.epoch_s
        if timely and not hopeless and rounds_each < settings.rounds_each:
            return
        found = CanaryResult(mode, 1.0 if ratio is None else ratio, epoch.load(now_s), now_s)
        lost_s = self._cost_s((1.0 - found.ratio) * len(canaries.out) / len(samples), found.load, now_s)
        self._probes.canary_result(mode.name, lost_s, now_s, lost=found.lost)
        self._last_results[mode] = found
        if found.lost:
            self._worth_a_try.pop(mode, None)
        else:
            self._worth_a_try[mode] = found
        self._use(self._mode, now_s)

    def _judge(self, load: float, now_s: float) -> None:
        """An epoch of a try is over: the tried mode is kept, given up, or tried on."""
        settings, probes = self._settings, self._probes
        tried = self._rewards.compare(self._mode.name, self._kept.name, load)
        lost_s = self._cost_s(tried.loss, load, now_s)
        self._probe_epochs += 1
        better = tried.known and tried.better(settings.margin)
        lost = tried.known and tried.no_better(settings.margin)
        surprised = lost and self._rewards.surprise(self._mode.name, load) > 0.0
        unclear = tried.known and not better and (surprised or not lost)
        if unclear and lost_s < probes.left_s and self._probe_epochs < _MOST_PROBE_EPOCHS:
            return
        probes.spent(self._mode.name, lost_s, now_s, lost=lost)
        if better:
            probes.beaten(self._kept.name, now_s)
            self._keep(self._mode)
        else:
            self._use(self._kept, now_s)

    def _cost_s(self, lost_share: float, load: float, now_s: float) -> float:
        """What a try has cost: the share of the reward that its epoch showed, or, if that is more, that all of it did.

        Before its epoch begins drafters compute prefixes, on the verifier's processors maybe.
        """
        kept, made = self._rewards.tokens_per_s(self._kept.name, load), self._made
        missed = shortfall(made.tokens / made.seconds, kept) if made.seconds else 0.0
        return max(0.0, lost_share, missed) * self._changed.seconds(now_s)

    def _should_switch(self, passed_s: float, load: float) -> bool:
        """Whether another mode is kept from now on, as staying has cost enough."""
        if load <= 0.0 or len(self._modes) == 1:
            return False
        mode, comparison = min(self._others(load), key=_loss)
        if comparison.better(self._settings.margin):
            self._regret_s -= passed_s * comparison.loss
        else:
            self._regret_s = max(0.0, self._regret_s - passed_s * max(0.0, comparison.loss))
        if self._regret_s < self._settings.change_s:
            return False
        self._keep(mode)
        return True

    def _others(self, load: float) -> list[tuple[SpeculationMode, Comparison]]:
        """Every mode but the kept one, compared with that."""
        kept = self._kept
        return [(mode, self._rewards.compare(mode.name, kept.name, load)) for mode in self._modes if mode is not kept]

    def _keep(self, mode: SpeculationMode) -> None:
        self._kept, self._regret_s, self._last_load = mode, 0.0, None
        self._changes += 1

    def _use(self, mode: SpeculationMode, now_s: float) -> None:
        """Change modes, or go on without canaries: nothing is measured until things have settled."""
        self._canaries.recall()
        self._mode, self._changed_at_s = mode, now_s
        self._changed, self._made = ActiveInterval(self._activity, now_s), ThroughputSample()
        self._epoch, self._from_s = None, inf
        self._regret_s, self._probe_epochs = 0.0, 0
        self._is_young = mode is not self._kept


def _loss(one: tuple[SpeculationMode, Comparison]) -> float:
    return one[1].loss


def _apart(load: float, other: float) -> bool:
    """Whether two loads have too little in common to be of one epoch."""
    least, most = sorted((load, other))
    return most - least > 1.0 and most > _LEFT * least
