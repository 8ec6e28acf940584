"""State of a pending correction (DSSD): its source, the draft model that can draw it, and the deadline."""

from outrider.contracts.exchanged import CorrectionSource
from outrider.rounds.states import CORRECTION_TRANSITIONS, CorrectionEvent, CorrectionState, after


class Correction:
    """The corrections of one response, one after the other.

    Attributes:
        state: by ``CORRECTION_TRANSITIONS``.
    """

    def __init__(self, by: str | None) -> None:
        """``by``: of a response that is resumed with a correction pending; its source is lost and asked for again."""
        self.state = CorrectionState.SETTLED if by is None else CorrectionState.ROW_MISSING
        self.by = by  # the draft model whose devices can draw it; None: no correction is pending
        self.source: CorrectionSource | None = None  # the target's row, or candidates; None if not known here
        self.due_at_s: float | None = None  # end of the wait for a device; None: no wait has begun

    def happened(self, event: CorrectionEvent) -> None:
        """Apply an event, and clear what is no longer valid; ``IllegalTransitionError`` if it is impossible."""
        self.state = after(CORRECTION_TRANSITIONS, "a correction", self.state, event)
        if self.state in (CorrectionState.SETTLED, CorrectionState.ROW_MISSING):
            self.source = None
        if self.state is CorrectionState.SETTLED:
            self.by = None
        if self.state in (CorrectionState.SETTLED, CorrectionState.DRAWN):
            self.due_at_s = None

    def defer(self, source: CorrectionSource, draft_model: str | None) -> None:
        """Make a correction pending for devices of a draft model; None: of the same model as before."""
        self.happened(CorrectionEvent.DEFERRED)
        self.source, self.by = source, draft_model or self.by

    def wait_until_s(self, now_s: float, deadline_s: float) -> float:
        """Return the end of the wait for a device. The first call begins the wait."""
        if self.due_at_s is None:
            self.due_at_s = now_s + deadline_s
        return self.due_at_s
