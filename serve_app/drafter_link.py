"""One generation's way to a drafter: lease one, bring its KV up to date, exchange rounds, replace it when it is lost.

Leasing and prefill run in the background; until they are done ``ready`` is False and the rounds go on without a
drafter. So neither the first token nor a recovery ever waits for a device.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from actors.messages import DrafterId
from actors.transport import DrafterTransport
from outrider.drafting.validation import draft_fault
from outrider.engines.base import AcceptanceRule, Draft, DraftRequest, NeedsPrefix
from outrider.errors import ContextTooLongError, DrafterBrokenError, OutriderError
from outrider.events import event
from outrider.generation import Generation
from outrider.types import GenerationId

_MOST_FORGOTTEN = 5
_PREFILL_ROUND = -1  # round number of the window-0 exchange that computes a drafter's prefix

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DrafterPort:
    """A leased drafter and how to reach it."""

    drafter: DrafterId
    transport: DrafterTransport


class FleetPort(Protocol):
    """The fleet, as a coordinator sees it. Calls have their own deadlines."""

    async def lease(self, generation: GenerationId, exclude: frozenset[DrafterId]) -> DrafterPort | None:
        """Lease a drafter; None if there is none now, or the fleet does not answer."""
        ...

    def release(self, generation: GenerationId) -> None:
        """End the lease; nobody waits for that."""
        ...

    def report_lost(self, drafter: DrafterId) -> None:
        """Tell the fleet that a drafter does not answer; nobody waits for that."""
        ...

    def report_broken(self, drafter: DrafterId, fault: str) -> None:
        """Tell the fleet that a drafter answers nonsense; nobody waits for that."""
        ...


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Deadlines of exchanges with a drafter, and what its answers must agree with."""

    draft_deadline_s: float
    prefill_deadline_s: float
    retry_s: float  # pause before asking for a drafter again when there was none
    vocab_size: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """A drafted block and where its time went."""

    draft: Draft
    draft_s: float
    link_s: float


class DrafterLink:
    """The drafter of one generation, if it has one."""

    def __init__(self, generation: Generation, fleet: FleetPort, settings: LinkSettings, rule: AcceptanceRule) -> None:
        """Nothing is leased before ``start``."""
        self._generation = generation
        self._fleet = fleet
        self._settings = settings
        self._rule = rule
        self._port: DrafterPort | None = None
        self._known_tokens = 0  # committed tokens the drafter has
        self._excluded: frozenset[DrafterId] = frozenset()  # for now: it failed, and may be restarted
        self._too_small: frozenset[DrafterId] = frozenset()  # for good: the generation does not fit
        self._forgotten = 0  # exchanges in a row for which a drafter lacked the prefix it had been given
        self._acquiring: asyncio.Task[None] | None = None
        self.ready = False
        self.losses = 0  # drafters that failed this generation

    def start(self) -> None:
        """Begin to get a drafter ready, in the background."""
        self.ready = False
        self._acquiring = asyncio.get_running_loop().create_task(self._acquire())

    def close(self) -> None:
        """Give the drafter back; it forgets the generation."""
        if self._acquiring is not None:
            self._acquiring.cancel()
        if self._port is not None:
            self._port.transport.close(self._generation.name)
        self._fleet.release(self._generation.name)

    async def draft(self, number: int, window: int, clock: Callable[[], float]) -> Exchange | None:
        """Have one block drafted; None if the drafter was lost or lacks the prefix (a replacement is on its way)."""
        assert self._port is not None, "draft() needs ready"
        port, request = self._port, self._request(number, window)
        began_at_s = clock()
        try:
            reply = await port.transport.draft(request, self._settings.draft_deadline_s)
            if isinstance(reply.answer, NeedsPrefix):
                self._forgotten += 1
                if self._forgotten > _MOST_FORGOTTEN:
                    raise DrafterBrokenError(f"drafter {port.drafter.actor_name} forgets what it is given")
                # Whichever drafter is leased next, this one is not to keep what it may still have.
                port.transport.close(self._generation.name)
                self._port = None
                self.start()
                return None
            draft = self._checked(reply.answer, request, port)
        except OutriderError as error:
            self._give_up(port, error)
            self.start()
            return None
        self._known_tokens, self._forgotten = self._generation.position, 0
        elapsed_s = clock() - began_at_s
        drafter_s = min(reply.drafter_s, elapsed_s)
        return Exchange(draft, drafter_s, elapsed_s - drafter_s)

    def _checked(self, answer: object, request: DraftRequest, port: DrafterPort) -> Draft:
        fault = draft_fault(answer, request, self._settings.vocab_size)
        if fault is not None:
            raise DrafterBrokenError(f"drafter {port.drafter.actor_name} {fault}")
        assert isinstance(answer, Draft)
        return answer

    def _request(self, number: int, window: int) -> DraftRequest:
        generation = self._generation
        prompt_tokens = len(generation.request.prompt_ids)
        return DraftRequest(
            generation=generation.name,
            round=number,
            feedback_position=self._known_tokens,
            feedback=tuple(generation.output_ids[self._known_tokens - prompt_tokens :]),
            prefix_hash=generation.prefix_hash,
            window=window,
            rule=self._rule,
        )

    async def _acquire(self) -> None:
        """Lease, open and prefill a drafter, and try others, until one is ready."""
        while True:
            port = await self._fleet.lease(self._generation.name, self._excluded | self._too_small)
            if port is None:
                # A drafter that failed once may have been restarted by now.
                self._excluded = frozenset()
                await asyncio.sleep(self._settings.retry_s)
                continue
            try:
                await self._prepare(port)
            except OutriderError as error:
                self._give_up(port, error)
            else:
                self.ready = True
                event(log, "drafter_leased", **self._named(port))
                return

    async def _prepare(self, port: DrafterPort) -> None:
        settings, generation = self._settings, self._generation
        self._port, self._known_tokens = port, generation.position
        await port.transport.open(generation.opening(), settings.prefill_deadline_s)
        request = self._request(_PREFILL_ROUND, 0)
        reply = await port.transport.draft(request, settings.prefill_deadline_s)
        if isinstance(reply.answer, NeedsPrefix):
            raise DrafterBrokenError(f"drafter {port.drafter.actor_name} does not hold what it was just given")
        self._checked(reply.answer, request, port)

    def _give_up(self, port: DrafterPort, error: OutriderError) -> None:
        """Part with a drafter, and tell the fleet if it is the drafter's fault."""
        event(log, "drafter_given_up", logging.WARNING, **self._named(port), reason=str(error))
        port.transport.close(self._generation.name)
        self._port = None
        if isinstance(error, ContextTooLongError):
            self._too_small |= {port.drafter}
            return
        self._excluded |= {port.drafter}
        self.losses += 1
        if isinstance(error, DrafterBrokenError):
            self._fleet.report_broken(port.drafter, str(error))
        else:
            self._fleet.report_lost(port.drafter)

    def _named(self, port: DrafterPort) -> dict[str, str]:
        request = self._generation.request
        return {
            "request_id": request.request_id,
            "generation": request.generation,
            "drafter": port.drafter.actor_name,
        }
