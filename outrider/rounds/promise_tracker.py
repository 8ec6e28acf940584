"""Promise of one response: its ledger, the terms of its blocks in the queue, and which rounds were late."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from outrider.contracts.slo import LedgerRecord
from outrider.scheduling.attribution import SpikeDetector, ViolationCause, round_is_late
from outrider.scheduling.ledger import DeadlineRule, Ledger, round_deadline_at_s
from outrider.selection.situation import SpeedPromise


@dataclass(frozen=True, slots=True)
class VerifyTerms:
    """What decides a block's place in the queue, beside its cost, and how many of its draft tokens are verified."""

    deadline_at_s: float = inf  # of its commit
    expected_tokens: float = 1.0
    tokens_per_s: float = 0.0  # promised to its response
    # of each token of a drafted chain, by past verdicts only. Since they are known before the draft is drawn, a chain
    # may be trimmed by them. () for a block that stays whole.
    survivals: tuple[float, ...] = ()
    began_at_s: float = inf  # start of its round; infinity where nothing went before the block


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a committed round, and its response with it, kept the promised speed."""

    late: ViolationCause | None  # cause, if the round taken alone was slower than promised (WISP eq. 4); else None
    behind: bool  # the response was behind at this round's commit, or at that of a device's token just before it


def kv_is_never_short() -> bool:
    return False


class PromiseTracker:
    """Promised and achieved speed of one response. Mutable. All times are absolute, on one clock."""

    def __init__(
        self,
        ledger: Ledger,
        rule: DeadlineRule,
        spikes: SpikeDetector,
        kv_is_short: Callable[[], bool] = kv_is_never_short,
    ) -> None:
        """Begin with a ledger (``resumed_ledger``); all responses of a verifier share ``spikes`` and its KV."""
        self._rule, self._spikes, self._kv_is_short = rule, spikes, kv_is_short
        self._ledger = ledger
        self._times_behind_reported = ledger.times_behind

    @property
    def record(self) -> LedgerRecord | None:
        return self._ledger.record()

    @property
    def kept(self) -> bool:
        return self._ledger.kept

    def promise(self, now_s: float) -> SpeedPromise | None:
        """Return the promise that the next round has to keep; None without one, or before the first token."""
        return SpeedPromise(self._ledger.tokens_per_s, self._ledger.slack_s(now_s)) if self._due else None

    def terms(self, began_at_s: float, expected_tokens: float) -> VerifyTerms:
        """Return deadline, tokens and speed of a block, from its round's start and the tokens it should commit."""
        deadline_at_s = self.deadline_at_s(began_at_s, expected_tokens)
        return VerifyTerms(deadline_at_s, expected_tokens, self._ledger.tokens_per_s)

    def deadline_at_s(self, began_at_s: float, expected_tokens: float) -> float:
        """Return the deadline of a round's commit; infinity without a promise."""
        if self._rule is DeadlineRule.LEDGER or not self._due:
            if self._kv_is_short():  # the ledger keeps the slack that this deadline uses, or it would count as debt
                self._ledger = self._ledger.widened()
            return self._ledger.deadline_at_s(expected_tokens)
        return round_deadline_at_s(began_at_s, expected_tokens, self._ledger.tokens_per_s)

    @property
    def tokens_per_s(self) -> float:
        return self._ledger.tokens_per_s

    def committed(self, tokens: int, now_s: float) -> None:
        self._ledger = self._ledger.committed(tokens, now_s)

    def swallowed(self, tokens: int) -> None:
        """Take back the last tokens: a stop string cut them off."""
        self._ledger = self._ledger.swallowed(tokens)

    def paused(self, seconds: float) -> None:
        """Excuse time in which the client itself held the response up."""
        self._ledger = self._ledger.paused(seconds)

    def judged(self, tokens: int, round_s: float, verify_s: float, *, first: bool) -> Judgement | None:
        """Judge a verified round. Call it after ``committed``. Return None if nothing was promised of the round.

        Args:
            tokens: that it yielded; a correction that a device is yet to draw counts.
            round_s: its duration.
            verify_s: part of it in the verifier.
            first: it is the response's first round; the promised speed counts only from its end.
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
