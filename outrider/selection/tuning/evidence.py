"""What a verifier's generations do under the mode in use: who is active, and which of their rounds count."""

from math import inf

from outrider.selection.tuning.epoch_samples import ActiveGenerations, EpochSamples, ThroughputSample


class TunerEvidence:
    """Mutable.

    Attributes:
        activity: active generations: those with tokens that have not ended.
        choosing: those of them that follow the tuner.
        samples: their rounds in the present epoch.
        ready: generations whose drafter has its prefix.
        made: rounds of all generations together since the last change of modes, undisturbed.
        idle_since_s: when a generation ended last.
        from_s: only rounds count that begin at this time or later.
    """

    def __init__(self, now_s: float) -> None:
        self.activity, self.choosing = ActiveGenerations(now_s), ActiveGenerations(now_s)
        self.samples, self.made = EpochSamples(), ThroughputSample()
        self.ready: set[str] = set()
        self.idle_since_s, self.from_s = now_s, inf
        self._prefilling: set[str] = set()
        self._prefilled_at_s = now_s

    def asked(self, generation: str) -> None:
        self._prefilling.add(generation)

    def began(self, generation: str, now_s: float, *, counts: bool) -> None:
        if counts:
            self.samples.began(generation)
            self.choosing.change(1, now_s)
        self._prefill_over(generation, now_s)
        self.activity.change(1, now_s)

    def ended(self, generation: str, now_s: float) -> bool:
        """Note the end of a response; return whether it was active."""
        if self._prefill_over(generation, now_s):
            return False
        if self.samples.ended(generation):
            self.choosing.change(-1, now_s)
        self.ready.discard(generation)
        self.activity.change(-1, now_s)
        self.idle_since_s = now_s
        return True

    def round(self, generation: str, committed_tokens: int, round_s: float, now_s: float, late: bool | None) -> None:
        """Enter a committed round; arguments as of ``SpeculationTuner.round``."""
        began_at_s, samples = now_s - round_s, self.samples
        disturbed = self._prefilling or began_at_s < self._prefilled_at_s
        sample = (samples.disturbed if disturbed else samples.undisturbed).get(generation)
        if sample is None:
            return
        if not disturbed:
            self.made.tokens += committed_tokens
            self.made.seconds += round_s
        if began_at_s >= self.from_s:
            sample.tokens += committed_tokens
            sample.squares += committed_tokens * committed_tokens
            sample.seconds += round_s
            sample.rounds += 1
            if late is not None:
                sample.judged += 1
                sample.late += late

    def restart(self) -> None:
        """Count no round until ``from_s`` is set again: the modes have changed."""
        self.made, self.from_s = ThroughputSample(), inf

    def _prefill_over(self, generation: str, now_s: float) -> bool:
        """End a response's prefill. Return whether one was under way."""
        if generation not in self._prefilling:
            return False
        self._prefilling.remove(generation)
        self._prefilled_at_s = now_s
        return True
