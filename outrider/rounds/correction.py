"""The state of a pending correction: its source, the draft model that must draw it, and its deadline."""

from outrider.contracts.exchanged import CorrectionSource
from outrider.rounds.states import CORRECTION_TRANSITIONS, CorrectionEvent, CorrectionState, after


class Correction:
    """One response's, over and over.

    Attributes:
        state: as the table has it.
        by: the draft model whose devices can draw it; None: nothing is owed.
        source: what it is drawn from, once that is known.
        due_at_s: until when a device is waited for; None: nobody has waited yet.
    """

    def __init__(self, by: str | None) -> None:
        """``by``: of a response resumed where one was owed, whose source stayed behind."""
        self.state = CorrectionState.SETTLED if by is None else CorrectionState.ROW_MISSING
        self.by = by
        self.source: CorrectionSource | None = None
        self.due_at_s: float | None = None

    def happened(self, event: CorrectionEvent) -> None:
        """Follow the table.

        Raises:
            IllegalTransitionError: the event cannot happen now.
        """
        self.state = after(CORRECTION_TRANSITIONS, "a correction", self.state, event)
        if self.state in (CorrectionState.SETTLED, CorrectionState.ROW_MISSING):
            self.source = None
        if self.state is CorrectionState.SETTLED:
            self.by = None
        if self.state in (CorrectionState.SETTLED, CorrectionState.DRAWN):
            self.due_at_s = None

    def defer(self, source: CorrectionSource, draft_model: str | None) -> None:
        """The verifier leaves a token to the device; ``draft_model`` None: to those it was left to before."""
        self.happened(CorrectionEvent.DEFERRED)
        self.source, self.by = source, draft_model or self.by

    def wait_until_s(self, now_s: float, deadline_s: float) -> float:
        """Until when a device is waited for; the first to ask begins the wait."""
        if self.due_at_s is None:
            self.due_at_s = now_s + deadline_s
        return self.due_at_s
