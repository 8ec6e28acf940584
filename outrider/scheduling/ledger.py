"""A response's ledger: what it was promised, what it was given, and by when it needs its next tokens.

A promise is about the response, not the round (WISP judges each round alone, eq. 4 and 6): tokens that came early are
slack for rounds that come late, and what is behind is a debt until it is made up for. So a response is scheduled by the
same rule that judges it in the end.

    slack at t          =    tokens since the anchor / speed - (t - anchor), a debt where it is negative
    a round's deadline  =    anchor + (tokens since the anchor + the round's expected tokens) / speed

The anchor is the first token, which has a deadline of its own. Both sides are bounded. *Slack is capped*: a response
that is far ahead may not be left waiting for as long as it is ahead, as a reader would see the pause. *Debt is capped*
where the response as a whole owes less, because slack was: it does not outrank everybody for a pause it could afford.
A response that as a whole owes more than the cap is *doomed*: unlikely to end in time, and costing others their
promises if it were served as if it could. It has no deadline, is best effort, and back as soon as it owes less.

Times are absolute on one clock; a ``LedgerRecord`` carries durations only, for a response that goes on on another one.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from outrider.contracts.slo import LedgerRecord

SLACK_CAP_S = 3.0
DEBT_CAP_S = 3.0
FIRST_TOKEN_S = 1.0  # from request to first token, where a speed is promised


class DeadlineRule(StrEnum):
    """What a block's deadline comes from."""

    LEDGER = "ledger"  # all the response was given so far
    ROUND = "round"  # this round alone, as in the papers


def round_deadline_at_s(began_at_s: float, expected_tokens: float, tokens_per_s: float) -> float:
    """By when a round that began then has to be committed to be no slower than promised (WISP eq. 6, 12)."""
    return began_at_s + expected_tokens / tokens_per_s


@dataclass(frozen=True, slots=True)
class Ledger:
    """One response's account.

    Attributes:
        tokens_per_s: promised; 0 promises nothing.
        first_due_at_s: by when its first tokens are to be committed; infinity promises nothing of them.
        first_at_s: when they were; None before.
        last_at_s: when its last tokens were.
        tokens: committed after the first commit: what the speed is measured by, as all after it took time.
        anchor_at_s: where the pace is counted from.
        anchored_tokens: committed since then.
        times_behind: commits that came too late.
    """

    tokens_per_s: float = 0.0
    first_due_at_s: float = inf
    first_at_s: float | None = None
    last_at_s: float = 0.0
    tokens: int = 0
    anchor_at_s: float = 0.0
    anchored_tokens: int = 0
    times_behind: int = 0

    def deadline_at_s(self, expected_tokens: float) -> float:
        """When a round that commits so many tokens has to be committed; infinity where nothing is owed, or too much."""
        if self.first_at_s is None:
            return self.first_due_at_s
        return inf if self.doomed else self._on_schedule_until_s(expected_tokens)

    def slack_s(self, now_s: float) -> float:
        """Time until it is behind, negative if it is; infinity where nothing is owed."""
        return inf if self.first_at_s is None else self._on_schedule_until_s(0.0) - now_s

    @property
    def doomed(self) -> bool:
        """Whether as a whole it owed more than the cap when its last tokens came."""
        return self.slack_s(self.last_at_s) < -DEBT_CAP_S

    def committed(self, tokens: int, now_s: float) -> "Ledger":
        """After a commit. One without tokens changes nothing."""
        if tokens == 0:
            return self
        if self.first_at_s is None:
            return replace(self, first_at_s=now_s, last_at_s=now_s, anchor_at_s=now_s)
        ledger = Ledger(
            self.tokens_per_s,
            self.first_due_at_s,
            self.first_at_s,
            now_s,
            self.tokens + tokens,
            self.anchor_at_s,
            self.anchored_tokens + tokens,
            self.times_behind,
        )
        if self.tokens_per_s == 0.0:
            return ledger
        slack_s = ledger.slack_s(now_s)
        if slack_s > SLACK_CAP_S:  # most commits: without ``replace``, which takes four times as long
            return Ledger(
                self.tokens_per_s,
                self.first_due_at_s,
                self.first_at_s,
                now_s,
                ledger.tokens,
                now_s + SLACK_CAP_S,
                0,
                self.times_behind,
            )
        if slack_s >= 0.0:
            return ledger
        ledger = replace(ledger, times_behind=self.times_behind + 1)
        whole_s = ledger.tokens / self.tokens_per_s - (now_s - self.first_at_s)
        least_s = min(-DEBT_CAP_S, whole_s)
        return replace(ledger, anchor_at_s=now_s + least_s, anchored_tokens=0) if slack_s < least_s else ledger

    def _on_schedule_until_s(self, more_tokens: float) -> float:
        """When it will be behind with so many tokens more."""
        if self.tokens_per_s == 0.0:
            return inf
        return self.anchor_at_s + (self.anchored_tokens + more_tokens) / self.tokens_per_s

    def swallowed(self, tokens: int) -> "Ledger":
        """After the last so many tokens turned out not to be part of the response: a stop string came before them."""
        return replace(self, tokens=max(0, self.tokens - tokens))

    def paused(self, seconds: float) -> "Ledger":
        """After a time that counts for nothing; what was committed stays as far ahead or behind."""
        if self.first_at_s is None:
            return replace(self, first_due_at_s=self.first_due_at_s + seconds)
        return replace(
            self,
            first_at_s=self.first_at_s + seconds,
            last_at_s=self.last_at_s + seconds,
            anchor_at_s=self.anchor_at_s + seconds,
        )

    @property
    def kept(self) -> bool:
        """Whether the response as a whole came at its promised speed, so far: what a user feels."""
        record = self.record()
        achieved = None if record is None else record.tokens_per_s
        return achieved is None or achieved >= self.tokens_per_s

    def record(self) -> LedgerRecord | None:
        """What a resumed response needs to know of it; None before the first commit."""
        if self.first_at_s is None:
            return None
        slack_s = 0.0 if self.tokens_per_s == 0.0 else self.slack_s(self.last_at_s)
        return LedgerRecord(self.tokens, self.last_at_s - self.first_at_s, slack_s, self.times_behind)


def resumed_ledger(
    tokens_per_s: float, record: LedgerRecord | None, now_s: float, first_due_at_s: float = inf
) -> Ledger:
    """The account of a response whose last commit was just now, or that has had none (None)."""
    if record is None:
        return Ledger(tokens_per_s, first_due_at_s)
    return Ledger(
        tokens_per_s=tokens_per_s,
        first_at_s=now_s - record.elapsed_s,
        last_at_s=now_s,
        tokens=record.tokens,
        anchor_at_s=now_s + record.slack_s,
        times_behind=record.times_behind,
    )
