"""Stops drafter actors that are not configured, in the background."""

import asyncio
import logging
from collections.abc import Callable

from actors.fleet.drafter_actors import DrafterActors
from actors.messages import DrafterId
from outrider.events import event

log = logging.getLogger(__name__)


class DrafterStopper:
    def __init__(self, actors: DrafterActors, is_wanted: Callable[[DrafterId], bool]) -> None:
        self._actors, self._is_wanted = actors, is_wanted
        self._stopping: set[asyncio.Task[None]] = set()  # asyncio keeps only weak references to tasks
        self._polling: asyncio.Task[None] | None = None

    def stop(self, drafter: DrafterId) -> None:
        """Stop a drafter in the background; if that fails, the next ``look`` finds the drafter again."""
        stopping = asyncio.create_task(self._stopped(drafter))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    def look(self) -> None:
        """Stop those that nobody wants: an earlier fleet's, or those whose stop failed. A head may be away for long."""
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._stop_strangers())

    async def _stopped(self, drafter: DrafterId) -> None:
        try:
            await self._actors.stop(drafter)
        except Exception:
            log.exception("stopping_failed")

    async def _stop_strangers(self) -> None:
        try:
            for drafter in await self._actors.running():
                if not self._is_wanted(drafter):
                    event(log, "drafter_not_wanted", logging.WARNING, drafter=drafter.actor_name)
                    self.stop(drafter)
        except Exception:
            log.exception("looking_failed")
