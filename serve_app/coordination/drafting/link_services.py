"""What all drafter links of a coordinator share: the fleet, the drafters' estimates, deadlines and the clock."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from actors.coordinator.transport import DrafterTransport
from actors.messages import DrafterId
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import GenerationId
from serve_app.coordination.drafting.drafter_book import DrafterBook


@dataclass(frozen=True, slots=True)
class DrafterPort:
    drafter: DrafterId
    transport: DrafterTransport


class FleetPort(Protocol):
    """The fleet, as a coordinator sees it. Implementations bound every call by a deadline of their own."""

    async def lease(
        self, generation: GenerationId, exclude: frozenset[DrafterId], groups: frozenset[str] | None
    ) -> DrafterPort | None:
        """Lease a drafter of ``groups`` (None: of any); None if none is free or the fleet does not answer."""
        ...

    def release(self, generation: GenerationId) -> None: ...

    def report_lost(self, drafter: DrafterId) -> None:
        """Report a drafter that does not answer, without waiting for the fleet."""
        ...

    def report_broken(self, drafter: DrafterId, fault: str, generation: GenerationId) -> None:
        """Report a drafter that sent an invalid answer or failed at this generation, without waiting for the fleet."""
        ...


@dataclass(frozen=True, slots=True)
class LinkSettings:
    draft_deadline_s: float
    must_use_deadline_s: float  # to a must-use draft, while the drafter answers probes
    prefill_deadline_s: float
    retry_s: float  # pause before the fleet is asked again when no drafter was free
    wire: WireFormat
    most_losses: int = 5  # drafters; then the generation itself may be what breaks them, and it goes on without


@dataclass(frozen=True, slots=True)
class LinkServices:
    """Dependencies that all links of a coordinator share. ``clock`` is monotonic, in seconds."""

    fleet: FleetPort
    book: DrafterBook
    settings: LinkSettings
    clock: Callable[[], float]
