"""Where a round's time went. Collected for every round, read by benches."""

from dataclasses import dataclass

from outrider.contracts.requests import ProtocolName
from outrider.scheduling.attribution import ViolationCause
from outrider.selection.modes import DRAFT, SpeculationMode


@dataclass(frozen=True, slots=True)
class RoundTiming:
    """Seconds of one round, from the decision to draft until its tokens are committed.

    ``orchestration_s`` is what is left: Ray calls to the verifier, planning, commit, waiting for the event loop.

    Attributes:
        drafted_tokens: those that were not verified included.
        ordered_tokens: of a device; it may have drafted fewer.
        follows: the verifier made it by itself, behind another one.
        judged_tokens: mismatches that a judge decided about.
        override_tokens: those it let pass.
        trimmed_tokens: drafted, and neither accepted nor rejected: nobody verified them.
        slo_class: of its response, where it was promised a speed and this round had to keep it; else None.
        late: taken alone it was slower than promised, and why.
        behind: with it the response as a whole was slower than promised.
        mode: of the verifier's speculation tuner when it was begun.
        beside_s: of drafting and link, while the verifier went on by itself: rounds of their own, no part of this one.
    """

    protocol: ProtocolName | None  # None: nothing was drafted
    drafted_tokens: int
    accepted_tokens: int
    committed_tokens: int
    draft_s: float  # inside the drafter, waiting for other generations' steps included
    link_s: float  # the rest of the exchange with the drafter
    queue_s: float  # the block was ready, the verifier was not
    verify_s: float  # inside the engine; several passes if the prefix was computed in chunks
    total_s: float
    up_bits: int = 0  # of the drafter's message
    down_bits: int = 0  # of the message to it
    follows: bool = False
    slo_class: str | None = None
    late: ViolationCause | None = None
    behind: bool = False
    mode: SpeculationMode = DRAFT
    trimmed_tokens: int = 0
    beside_s: float = 0.0
    judged_tokens: int = 0
    override_tokens: int = 0
    ordered_tokens: int = 0
    number: int = 0  # of the round, in its response

    @property
    def orchestration_s(self) -> float:
        exchange_s = self.draft_s + self.link_s - self.beside_s
        return self.total_s - exchange_s - self.queue_s - self.verify_s

    @property
    def wasted_draft_s(self) -> float:
        """Of the device's seconds, those for tokens that were rejected; all, if it decided to send nothing."""
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
