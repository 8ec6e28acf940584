"""What one response was promised, what it is given, and which of its rounds were late."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from outrider.contracts.slo import LedgerRecord
from outrider.rounds.generation import Generation
from outrider.scheduling.attribution import SpikeDetector, ViolationCause, round_is_late
from outrider.scheduling.ledger import DeadlineRule, resumed_ledger, round_deadline_at_s
from outrider.selection.situation import Promise


@dataclass(frozen=True, slots=True)
class VerifyTerms:
    """What a block's place in the queue depends on, beside its cost."""

    deadline_at_s: float = float("inf")  # by which it has to be committed
    expected_tokens: float = 1.0
    tokens_per_s: float = 0.0  # promised to its response


@dataclass(frozen=True, slots=True)
class Judgement:
    """A committed round in the light of its promise."""

    late: ViolationCause | None  # taken alone it was slower than promised (WISP eq. 4), and why
    behind: bool  # with it, or a device's token sent before it, the response as a whole fell behind


class RoundAccount:
    """The account of one response, kept by its round loop."""

    def __init__(
        self,
        generation: Generation,
        rule: DeadlineRule,
        spikes: SpikeDetector,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with what the request says; ``spikes`` is shared by all responses of a verifier."""
        request = generation.request
        self._generation = generation
        self._rule = rule
        self._spikes = spikes
        self._tokens_per_s = request.slo.tokens_per_s
        self._clock = clock
        self._ledger = resumed_ledger(self._tokens_per_s, request.ledger, clock())
        self._times_behind_told = self._ledger.times_behind

    @property
    def record(self) -> LedgerRecord | None:
        """For the resume record; None before the first commit."""
        return self._ledger.record()

    @property
    def promise(self) -> Promise | None:
        """What the next round's choice has to keep; None if nothing is promised, or not yet due."""
        if not self._due:
            return None
        return Promise(self._tokens_per_s, self._ledger.credit_s(self._clock()))

    def terms(self, began_at_s: float, expected_tokens: float) -> VerifyTerms:
        """Of a round that began then and should commit so many tokens."""
        if not self._due:
            return VerifyTerms(float("inf"), expected_tokens, self._tokens_per_s)
        if self._rule is DeadlineRule.ROUND:
            deadline_at_s = round_deadline_at_s(began_at_s, expected_tokens, self._tokens_per_s)
        else:
            deadline_at_s = self._ledger.deadline_at_s(expected_tokens)
        return VerifyTerms(deadline_at_s, expected_tokens, self._tokens_per_s)

    def committed(self, tokens: int) -> None:
        """Some tokens were committed now."""
        self._ledger = self._ledger.committed(tokens, self._clock())

    def swallowed(self, tokens: int) -> None:
        """The last so many of the tokens committed are not part of the response."""
        self._ledger = self._ledger.swallowed(tokens)

    def judged(self, tokens: int, round_s: float, verify_s: float) -> Judgement | None:
        """A verified round, after its tokens were committed; None if nothing was promised of it.

        Args:
            tokens: it yielded, one that a device is yet to draw included.
            round_s: it took.
            verify_s: of these, in the verifier.
        """
        if self._generation.stats.rounds <= 1:
            return None  # it began the response: pace counts from here
        cause = self._spikes.cause(verify_s)
        if self._tokens_per_s == 0.0:
            return None
        late = cause if round_is_late(self._tokens_per_s, tokens, round_s) else None
        if late is not None:
            self._generation.late(late)
        told, self._times_behind_told = self._times_behind_told, self._ledger.times_behind
        return Judgement(late, self._times_behind_told > told)

    @property
    def _due(self) -> bool:
        return self._tokens_per_s > 0.0 and self._ledger.first_at_s is not None
