"""The SLO account of one response: promised and achieved speed, deadlines, and which of its rounds were late."""

from dataclasses import dataclass
from math import inf

from outrider.contracts.slo import LedgerRecord
from outrider.scheduling.attribution import SpikeDetector, ViolationCause, round_is_late
from outrider.scheduling.ledger import DeadlineRule, Ledger, round_deadline_at_s
from outrider.selection.situation import SpeedPromise


@dataclass(frozen=True, slots=True)
class VerifyTerms:
    """What a block's place in the queue depends on, beside its cost, and how much of it is verified.

    Attributes:
        survivals: probability of each token of a drafted chain that it is accepted with all before it. From past
            verdicts, known before the draft was drawn: by these a chain may be cut. () for a block that stays whole.
        began_at_s: the round did; infinity where nothing went before the block.
    """

    deadline_at_s: float = inf  # by which it has to be committed
    expected_tokens: float = 1.0
    tokens_per_s: float = 0.0  # promised to its response
    survivals: tuple[float, ...] = ()
    began_at_s: float = inf


@dataclass(frozen=True, slots=True)
class Judgement:
    """A committed round in the light of its promise."""

    late: ViolationCause | None  # taken alone it was slower than promised (WISP eq. 4), and why
    behind: bool  # with it, or a device's token sent before it, the response as a whole was slower than promised


class RoundAccount:
    """The account of one response. All times are absolute, on one clock."""

    def __init__(self, ledger: Ledger, rule: DeadlineRule, spikes: SpikeDetector) -> None:
        """Begin with a ledger (``resumed_ledger``); ``spikes`` is shared by all responses of a verifier."""
        self._rule, self._spikes = rule, spikes
        self._ledger = ledger
        self._times_behind_reported = ledger.times_behind

    @property
    def record(self) -> LedgerRecord | None:
        """For the resume record; None before the first commit."""
        return self._ledger.record()

    @property
    def kept(self) -> bool:
        """Whether the response as a whole came at its promised speed, so far."""
        return self._ledger.kept

    def promise(self, now_s: float) -> SpeedPromise | None:
        """What the next round's choice has to keep; None if nothing is promised, or not yet due."""
        return SpeedPromise(self._ledger.tokens_per_s, self._ledger.slack_s(now_s)) if self._due else None

    def terms(self, began_at_s: float, expected_tokens: float) -> VerifyTerms:
        """Of a round that began then and should commit so many tokens."""
        deadline_at_s = self.deadline_at_s(began_at_s, expected_tokens)
        return VerifyTerms(deadline_at_s, expected_tokens, self._ledger.tokens_per_s)

    def deadline_at_s(self, began_at_s: float, expected_tokens: float) -> float:
        """By when such a round has to be committed; infinity if nothing is owed."""
        ledger = self._ledger
        if self._rule is DeadlineRule.LEDGER:
            return ledger.deadline_at_s(expected_tokens)
        if self._due:
            return round_deadline_at_s(began_at_s, expected_tokens, ledger.tokens_per_s)
        return inf

    @property
    def tokens_per_s(self) -> float:
        return self._ledger.tokens_per_s

    def committed(self, tokens: int, now_s: float) -> None:
        """Some tokens were committed now."""
        self._ledger = self._ledger.committed(tokens, now_s)

    def swallowed(self, tokens: int) -> None:
        """The last so many of the tokens committed are not part of the response."""
        self._ledger = self._ledger.swallowed(tokens)

    def paused(self, seconds: float) -> None:
        """So long the client itself held the response up."""
        self._ledger = self._ledger.paused(seconds)

    def judged(self, tokens: int, round_s: float, verify_s: float, *, first: bool) -> Judgement | None:
        """A verified round, after its tokens were committed; None if nothing was promised of it.

        Args:
            tokens: it yielded, one that a device is yet to draw included.
            round_s: it took.
            verify_s: of these, in the verifier.
            first: it began the response: pace counts from here.
        """
        if first:
            return None
        cause, ledger = self._spikes.cause(verify_s), self._ledger
        if ledger.tokens_per_s == 0.0:
            return None
        reported, self._times_behind_reported = self._times_behind_reported, ledger.times_behind
        late = cause if round_is_late(ledger.tokens_per_s, tokens, round_s) else None
        return Judgement(late, ledger.times_behind > reported)

    @property
    def _due(self) -> bool:
        return self._ledger.tokens_per_s > 0.0 and self._ledger.first_at_s is not None
