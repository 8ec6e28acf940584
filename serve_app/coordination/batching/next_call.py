"""What the verifier's next call carries beside blocks, and the numbers by which it knows calls and sessions."""

from collections.abc import Sequence

from actors.messages import Closing, VerifyCall
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import PromptLookupGrant, Resolution
from serve_app.coordination.batching.queued_blocks import QueuedBlock


class NextCall:
    """Mutable.

    Attributes:
        session: number of times that the verifier was lost; a late reply of an earlier session is recognised by it.
        lookups: changed permissions of runs to draft by prompt lookup.
    """

    def __init__(self) -> None:
        self.session = self._calls = 0
        self.closings: dict[GenerationId, Closing] = {}
        self.resolutions: dict[GenerationId, Resolution] = {}
        self.grants: dict[GenerationId, int] = {}  # last round of each autonomous run whose grant was changed
        self.lookups: dict[GenerationId, PromptLookupGrant | None] = {}
        self.due_at_s: dict[GenerationId, float] = {}  # changed deadlines, absolute
        self.prefill_order: tuple[GenerationId, ...] = ()  # as planned last
        self._sent_order: tuple[GenerationId, ...] = ()

    def drop_grant(self, generation: GenerationId) -> None:
        """Forget what was not sent yet of a run's grant."""
        self.grants.pop(generation, None)
        self.lookups.pop(generation, None)

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        self.drop_grant(generation)
        self.resolutions.pop(generation, None)
        self.due_at_s.pop(generation, None)
        self.closings[generation] = Closing(generation, keep_cache)

    def take(self, blocks: Sequence[QueuedBlock], now_s: float) -> VerifyCall | None:
        """Return the call with these blocks, and begin the next one; None if there is nothing to send.

        An emptied prefill order or a deadline alone is not worth a call.
        """
        order = None if self.prefill_order == self._sent_order else self.prefill_order
        if not (blocks or self.closings or self.resolutions or self.grants or self.lookups or order):
            return None
        call = VerifyCall(
            closings=tuple(self.closings.values()),
            openings=tuple(queued.opening for queued in blocks if queued.opening is not None),
            blocks=tuple(queued.block for queued in blocks),
            resolutions=tuple(self.resolutions.values()),
            grants=tuple(self.grants.items()),
            lookups=tuple(self.lookups.items()),
            prefill_order=order,
            # In seconds from now: the verifier's process has another clock.
            dues=tuple((name, at_s - now_s) for name, at_s in self.due_at_s.items()),
            session=self.session,
            # Ray may deliver a small call before a large one: the verifier takes calls in the order of their numbers.
            number=self._calls,
        )
        self._calls += 1
        self.closings, self.resolutions, self.grants, self.lookups, self.due_at_s = {}, {}, {}, {}, {}
        self._sent_order = self.prefill_order
        return call

    def lost(self) -> None:
        """Begin a session with a verifier that knows nothing; closings and deadlines are still to be sent."""
        self.resolutions, self.grants, self.lookups = {}, {}, {}
        self.session, self._calls = self.session + 1, 0
        self.prefill_order = self._sent_order = ()
