"""Leases a drafter for one generation, has it ready in the background, and replaces it when it is lost.

Leasing and prefill run in a background task. Until they are done ``ready`` is False and rounds go on without a
drafter, so neither the first token nor a recovery waits for a device.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from actors.messages import DrafterId
from actors.waiting import within
from outrider.contracts.errors import (
    ContextTooLongError,
    DrafterBrokenError,
    DrafterSilentError,
    DraftingFailedError,
    OutriderError,
)
from outrider.events import event
from outrider.protocols.registry import PLAINEST, untrusted_safe_protocols
from outrider.rounds.events import AskAgain, AskDrafter, DrafterAnswered, Exchange, LeasedDrafter
from outrider.rounds.generation import Generation
from outrider.tracing.responses import ResponseTrace
from serve_app.coordination.drafting.leased_session import LeasedDrafterSession
from serve_app.coordination.drafting.link_services import LinkServices

_MOST_LOST_STATE = 5

# Errors that may depend on the drawn tokens: under a ratio rule a round lost by one of these is reported as inexact.
_MAY_HAVE_DRAWN = DrafterBrokenError | DrafterSilentError | DraftingFailedError

log = logging.getLogger(__name__)


class DrafterLink:
    """The drafter of one generation, if it has one. All methods run on the coordinator's event loop."""

    def __init__(
        self,
        generation: Generation,
        services: LinkServices,
        stop_ids: tuple[int, ...] = (),
        trace: ResponseTrace | None = None,
    ) -> None:
        """Lease nothing yet; ``start`` does. ``stop_ids`` are tokens that complete a stop string by themselves.

        ``trace`` is that of the generation's response, if it is sampled.
        """
        self._generation, self._trace, self._services = generation, trace, services
        self._fleet, self._book, self._settings = services.fleet, services.book, services.settings
        self._end_ids = (*generation.end_ids, *stop_ids)
        self._leased: LeasedDrafterSession | None = None  # ready or being made so
        # Failed, or of another model than a pending correction's; tried again once no other drafter is free.
        self._excluded: frozenset[DrafterId] = frozenset()
        self._too_small: frozenset[DrafterId] = frozenset()  # the generation does not fit: never tried again
        self._lost_state_in_a_row = 0  # exchanges for which a drafter lacked the prefix it had been given
        self._acquiring: asyncio.Task[None] | None = None  # kept to be cancelled by ``close``
        self._is_ready = asyncio.Event()
        self.losses = 0  # drafters that failed this generation
        self._ended: str | None = None  # why drafting has ended; a pending correction is still drawn by a drafter

    @property
    def ready(self) -> bool:
        return self._is_ready.is_set()

    async def wait_ready(self, deadline_s: float) -> None:
        """Wait at most ``deadline_s`` for a drafter; return either way."""
        with suppress(TimeoutError):
            await within(max(0.0, deadline_s), self._is_ready.wait())

    @property
    def drafter(self) -> LeasedDrafter | None:
        if self._leased is None:
            return None
        book, drafter = self._book, self._leased.drafter
        view = book.view(drafter, self._services.clock()) if self.ready else None
        return LeasedDrafter(book.model(drafter), book.acceptance(drafter), view, book.is_trusted(drafter))

    def start(self) -> None:
        self._is_ready.clear()
        if self._may_lease:
            self._acquiring = asyncio.get_running_loop().create_task(self._acquire_or_end())

    @property
    def _may_lease(self) -> bool:
        return self._ended is None or self._generation.correction_by is not None

    def close(self) -> None:
        """Cancel the background tasks, have the drafter drop the generation, and end the lease."""
        if self._acquiring is not None:
            self._acquiring.cancel()
        if self._leased is not None:
            self._leased.close()
        self._fleet.release(self._generation.name)

    async def draft(self, asked: AskDrafter) -> DrafterAnswered:
        """Order one block. If no draft comes, the answer says so and a replacement is already being leased."""
        assert self._leased is not None, "draft() needs ready"
        return await self._unless_lost(asked.round, self._leased, self._leased.draft(asked))

    async def ask_again(self, again: AskAgain) -> DrafterAnswered:
        """Ask the drafter of the last block for what its undecided round needs; on failure as ``draft``."""
        assert self._leased is not None, "ask_again() needs a block that was drafted"
        return await self._unless_lost(again.asked.round, self._leased, self._leased.ask_again(again))

    async def _unless_lost(
        self, number: int, leased: LeasedDrafterSession, exchanged: Coroutine[Any, Any, Exchange | None]
    ) -> DrafterAnswered:
        """Await an exchange; if the drafter was lost or lacks the prefix, lease and prefill again."""
        try:
            exchange = await exchanged
        except OutriderError as error:
            self._give_up(leased, error)
            self.start()
            return DrafterAnswered(number, None, censored=isinstance(error, _MAY_HAVE_DRAWN))
        if exchange is None:
            self._close_without_state(leased)
            self.start()
            return DrafterAnswered(number, None)
        self._lost_state_in_a_row = 0
        leased.probe_if_due()
        return DrafterAnswered(number, exchange)

    def _close_without_state(self, leased: LeasedDrafterSession) -> None:
        """Close a drafter that lacks the prefix. It says so before it draws: the output distribution is unchanged."""
        self._lost_state_in_a_row += 1
        if self._lost_state_in_a_row > _MOST_LOST_STATE:
            self._give_up(leased, DrafterBrokenError(f"drafter {leased.drafter.actor_name} forgets its generations"))
            return
        # The next lease may be on another drafter: this one must drop what it may still hold of the generation.
        leased.close()
        self._leased = None

    async def _acquire_or_end(self) -> None:
        """Run ``_acquire``; no caller awaits its task, so log an unexpected error and end drafting."""
        try:
            await self._acquire()
        except Exception as error:
            log.exception("acquiring_failed")
            if self._leased is not None:
                self._leased.close()
                self._leased = None
            self._end(f"no drafter can be got ready: {error!r:.200}")

    def _end(self, reason: str) -> None:
        """End drafting for this generation; only a pending correction may still lease a drafter."""
        if self._ended is None:
            self._ended = reason
            event(log, "drafting_ended", logging.WARNING, **self._generation.log_names, reason=reason)

    async def _acquire(self) -> None:
        """Lease, open and prefill drafters one after another, until one is ready or drafting has ended."""
        while self._may_lease:
            groups = self._groups()
            port = await self._fleet.lease(self._generation.name, self._excluded | self._too_small, groups)
            if port is None:
                self._excluded = frozenset()  # those that failed may have been restarted meanwhile
                await asyncio.sleep(self._settings.retry_s)
                continue
            if self._generation.correction_by not in (None, self._book.model(port.drafter)):
                # Another model cannot draw the pending correction. With this one excluded, the fleet leases another.
                self._excluded |= {port.drafter}
                continue
            self._leased = leased = LeasedDrafterSession(port, self._generation, self._services)
            try:
                await leased.open(self._end_ids)
            except OutriderError as error:
                self._give_up(leased, error)
            else:
                self._is_ready.set()
                event(log, "drafter_leased", **self._named(leased))
                self._log("drafter_leased", leased)
                return

    def _groups(self) -> frozenset[str] | None:
        """Return the groups that may draft, None for all: those the request allows.

        Where the output would depend on the device's draws, only those of them that are trusted; where the device must
        draw otherwise than the target, only those whose engine can.
        """
        request, book = self._generation.request, self._book
        allowed = None if request.drafters is None else frozenset(request.drafters)
        named = request.protocol
        corrects = self._generation.correction_by is not None
        if corrects or (named is not None and not untrusted_safe_protocols((named,), request.params)):
            allowed = book.trusted if allowed is None else allowed & book.trusted
        if corrects or named not in (None, PLAINEST):
            allowed = book.able if allowed is None else allowed & book.able
        return allowed

    def _give_up(self, leased: LeasedDrafterSession, error: OutriderError) -> None:
        """Close and exclude a drafter, and report it to the fleet unless the generation was just too long for it."""
        pending = self._generation.correction_by is not None
        event(
            log, "drafter_given_up", logging.WARNING, **self._named(leased), reason=str(error), correction_owed=pending
        )
        self._log("drafter_given_up", leased, reason=str(error))
        leased.close()
        self._leased = None
        self._is_ready.clear()
        if isinstance(error, ContextTooLongError):
            self._too_small |= {leased.drafter}
            return
        self._excluded |= {leased.drafter}
        self.losses += 1
        if isinstance(error, DrafterBrokenError | DraftingFailedError):
            self._fleet.report_broken(leased.drafter, str(error), self._generation.name)
        else:
            self._fleet.report_lost(leased.drafter)
        if isinstance(error, DraftingFailedError):
            self._end(str(error))
        elif self.losses >= self._settings.most_losses:
            self._end(f"it has lost {self.losses} drafters, the last by: {error}")

    def _log(self, name: str, leased: LeasedDrafterSession, **more: str) -> None:
        if self._trace is not None:
            self._trace.happened(name, self._services.clock(), drafter=leased.drafter.actor_name, **more)

    def _named(self, leased: LeasedDrafterSession) -> dict[str, str | None]:
        return {**self._generation.log_names, "drafter": leased.drafter.actor_name}
