"""Keep a response's ledger: tokens promised, tokens given, and the deadline of its next tokens.

A promise is about the response, not the round (WISP judges each round alone, eq. 4 and 6). Tokens that came early give
slack to later rounds; lateness is a debt until it is made up for. So a response is scheduled by the rule that judges it
in the end.

    slack at t          =    tokens since the anchor / speed - (t - anchor), a debt where it is negative
    a round's deadline  =    anchor + (tokens since the anchor + the round's expected tokens) / speed

The anchor starts at the first token, which has a deadline of its own. Both sides are capped by moving the anchor.
*Slack* is capped because a response that is far ahead would otherwise pause for that long, which a reader sees. While
KV is short a deadline may use more of it (``widened``); what was used so is no debt, then or later. *Debt*
is capped where it is larger than that of the response as a whole, because slack was capped before: such a response
could afford the pause, and must not outrank all others for it. A response whose total debt exceeds the cap is *doomed*:
it will hardly end in time, and serving it as if it could would break other promises. It has no deadline and is best
effort until its debt is below the cap.

Times are absolute on one clock. A ``LedgerRecord`` holds durations only, so a response can resume on another clock.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from outrider.contracts.slo import LedgerRecord

SLACK_CAP_S = 3.0
WIDE_CAP_S, WIDE_CAP_TOKENS = 12.0, 48.0  # while KV is short, the smaller: rounds for which it is computed once
DEBT_CAP_S = 3.0
_ROUNDING_S = 1e-6  # tolerance for rounding
FIRST_TOKEN_S = 1.0  # from request to first token, where a speed is promised


class DeadlineRule(StrEnum):
    """What the deadline of a block is computed from."""

    LEDGER = "ledger"  # all that the response was given so far
    ROUND = "round"  # this round alone, as in the papers


def wide_cap_s(tokens_per_s: float) -> float:
    """Return the slack cap while KV is short; ``tokens_per_s`` is above 0."""
    return max(SLACK_CAP_S, min(WIDE_CAP_S, WIDE_CAP_TOKENS / tokens_per_s))


def round_deadline_at_s(began_at_s: float, expected_tokens: float, tokens_per_s: float) -> float:
    """Return when a round must be committed to be no slower than promised by itself (WISP eq. 6, 12)."""
    return began_at_s + expected_tokens / tokens_per_s


@dataclass(frozen=True, slots=True)
class Ledger:
    tokens_per_s: float = 0.0  # promised speed; 0 is best effort
    first_due_at_s: float = inf  # deadline of the first tokens; infinity if there is none
    first_at_s: float | None = None  # when the first tokens were committed; None before
    last_at_s: float = 0.0  # when the last tokens were committed
    tokens: int = 0  # committed after the first commit, as only those took the time that the speed is measured over
    anchor_at_s: float = 0.0  # time from which slack is counted
    anchored_tokens: int = 0  # committed since the anchor
    times_behind: int = 0  # number of commits that came too late

    def deadline_at_s(self, expected_tokens: float) -> float:
        """Return when a round of ``expected_tokens`` must be committed; infinity for best effort and if doomed."""
        if self.first_at_s is None:
            return self.first_due_at_s
        return inf if self.doomed else self._on_schedule_until_s(expected_tokens)

    def slack_s(self, now_s: float) -> float:
        """Return the time until it is behind, negative if it is; infinity for best effort or before a first token."""
        return inf if self.first_at_s is None else self._on_schedule_until_s(0.0) - now_s

    def widened(self) -> "Ledger":
        """Return the ledger with the slack of the whole response that the cap forgot, up to the wide cap."""
        if self.first_at_s is None or self.tokens_per_s == 0.0:
            return self
        whole_until_s = self.first_at_s + self.tokens / self.tokens_per_s
        until_s = min(whole_until_s, self.last_at_s + wide_cap_s(self.tokens_per_s))
        forgotten_s = until_s - self._on_schedule_until_s(0.0)
        return replace(self, anchor_at_s=self.anchor_at_s + forgotten_s) if forgotten_s > _ROUNDING_S else self

    @property
    def doomed(self) -> bool:
        """Whether the debt exceeded the cap at the last commit, which only the debt of the whole response can."""
        return self.slack_s(self.last_at_s) < -DEBT_CAP_S

    def committed(self, tokens: int, now_s: float) -> "Ledger":
        if tokens == 0:
            return self
        if self.first_at_s is None:
            return replace(self, first_at_s=now_s, last_at_s=now_s, anchor_at_s=now_s)
        tokens_per_s, given, anchored = self.tokens_per_s, self.tokens + tokens, self.anchored_tokens + tokens
        slack_s = inf if tokens_per_s == 0.0 else self.anchor_at_s + anchored / tokens_per_s - now_s
        # Most commits end here, with one ledger made, and that without ``replace``, which takes four times as long.
        # Anchor in the future, no tokens since: slack is exactly the cap.
        ahead = SLACK_CAP_S < slack_s < inf
        ledger = Ledger(
            tokens_per_s,
            self.first_due_at_s,
            self.first_at_s,
            now_s,
            given,
            now_s + SLACK_CAP_S if ahead else self.anchor_at_s,
            0 if ahead else anchored,
            self.times_behind,
        )
        if slack_s >= 0.0:
            return ledger
        ledger = replace(ledger, times_behind=self.times_behind + 1)
        # Slack of the whole response, without the cap. Debt never exceeds the larger of the cap and that.
        whole_s = given / tokens_per_s - (now_s - self.first_at_s)
        least_s = min(-DEBT_CAP_S, whole_s)
        return replace(ledger, anchor_at_s=now_s + least_s, anchored_tokens=0) if slack_s < least_s else ledger

    def _on_schedule_until_s(self, more_tokens: float) -> float:
        """Return when the response will be behind if ``more_tokens`` are committed until then."""
        if self.tokens_per_s == 0.0:
            return inf
        return self.anchor_at_s + (self.anchored_tokens + more_tokens) / self.tokens_per_s

    def swallowed(self, tokens: int) -> "Ledger":
        """Take back the last ``tokens``: a stop string came before them, so they are not part of the response."""
        return replace(self, tokens=max(0, self.tokens - tokens))

    def paused(self, seconds: float) -> "Ledger":
        """Shift all times by a pause that does not count; slack stays as it is."""
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
        """Whether the whole response came at its promised speed so far, without any cap on slack."""
        record = self.record()
        achieved = None if record is None else record.tokens_per_s
        return achieved is None or achieved >= self.tokens_per_s

    def record(self) -> LedgerRecord | None:
        """Return the part of the ledger that a resumed response needs; None before the first commit."""
        if self.first_at_s is None:
            return None
        slack_s = 0.0 if self.tokens_per_s == 0.0 else self.slack_s(self.last_at_s)
        return LedgerRecord(self.tokens, self.last_at_s - self.first_at_s, slack_s, self.times_behind)


def resumed_ledger(
    tokens_per_s: float, record: LedgerRecord | None, now_s: float, first_due_at_s: float = inf
) -> Ledger:
    """Restore a ledger as if the last commit was at ``now_s``; start a new one if ``record`` is None."""
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
