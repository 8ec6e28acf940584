"""Seconds, bits and token counts of one round, by phase. Recorded for every round."""

from dataclasses import dataclass

from outrider.contracts.requests import ProtocolName
from outrider.scheduling.attribution import ViolationCause
from outrider.selection.modes import DRAFT, SpeculationMode


@dataclass(frozen=True, slots=True)
class RoundTiming:
    """One round, from the choice of its plan until its tokens are committed.

    ``orchestration_s`` is the remainder: Ray calls to the verifier, planning, commit, waiting for the event loop.
    """

    protocol: ProtocolName | None  # None: nothing was drafted
    drafted_tokens: int  # those that were not verified included
    accepted_tokens: int
    committed_tokens: int
    draft_s: float  # inside the drafter, waiting for other generations' steps included
    link_s: float  # the rest of the exchange with the drafter
    queue_s: float  # the block waited for the verifier
    verify_s: float  # inside the engine; several passes if the prefix was computed in chunks
    total_s: float
    up_bits: int = 0  # of the drafter's message
    down_bits: int = 0  # of the message to it
    follows: bool = False  # it is a round of an autonomous run
    slo_class: str | None = None  # of its response, if this round had a promised speed to keep; else None
    late: ViolationCause | None = None  # cause, if the round taken alone was slower than promised; else None
    behind: bool = False  # the response was behind its promised speed at this commit
    mode: SpeculationMode = DRAFT  # speculation mode when the round was begun
    trimmed_tokens: int = 0  # drafted, but not verified: neither accepted nor rejected
    # part of drafting and link that passed beside an autonomous run; not part of this round's time
    beside_s: float = 0.0
    judged_tokens: int = 0  # mismatches on which a judge decided
    override_tokens: int = 0  # mismatches that the judge let pass
    ordered_tokens: int = 0  # of a device; it may have drafted fewer
    number: int = 0  # of the round, in its response

    @property
    def orchestration_s(self) -> float:
        exchange_s = self.draft_s + self.link_s - self.beside_s
        return self.total_s - exchange_s - self.queue_s - self.verify_s

    @property
    def wasted_draft_s(self) -> float:
        """Seconds of drafting for tokens that were rejected; all of them, if the device stopped before any token."""
        if not self.drafted_tokens:
            return self.draft_s if self.ordered_tokens else 0.0
        rejected = self.drafted_tokens - self.trimmed_tokens - self.accepted_tokens
        return self.draft_s * rejected / self.drafted_tokens

    @property
    def phases_s(self) -> dict[str, float]:
        """Seconds by phase; they add up to ``total_s``. A round without a drafter has neither draft nor link."""
        exchange_s, drafting = self.draft_s + self.link_s, dict[str, float]()
        if exchange_s:
            share = 1.0 - self.beside_s / exchange_s
            drafting = {"draft": share * self.draft_s, "link": share * self.link_s}
        return {
            **drafting,
            "queue": self.queue_s,
            "verify": self.verify_s,
            "orchestration": max(0.0, self.orchestration_s),
        }
