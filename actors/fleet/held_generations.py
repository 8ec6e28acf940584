"""Asks drafters which generations they hold, and has them drop those that nobody has leased them for."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ray.actor import ActorHandle
from ray.exceptions import RayError

from actors.fleet.lease_table import LeaseTable
from actors.fleet.timeouts import FleetTimeouts
from actors.messages import DrafterId
from actors.sent_up import FleetSegments
from actors.waiting import loop_now_s, within
from outrider.contracts.errors import OutriderError
from outrider.contracts.requests import GenerationId
from outrider.events import event
from outrider.wire.replies import UnreadableReplyError, holding, holding_bytes

_ORPHANS_NAMED = 4  # names in a log line, beside their number
_SPARE_NAMES = 64  # a device may hold twice its ``max_generations`` and these, as closings may still be on their way

log = logging.getLogger(__name__)


class HeldGenerations:
    """All methods run on the fleet's event loop."""

    def __init__(
        self,
        table: LeaseTable,
        timeouts: FleetTimeouts,
        running: "Callable[[DrafterId], tuple[ActorHandle[Any], int] | None]",
        refuse: Callable[[DrafterId, str | None], None],
    ) -> None:
        """Begin without knowledge.

        ``running`` returns a configured drafter's handle and ``max_generations``; None for one that was never ready.
        ``refuse`` is called with what was wrong with an answer; None: there was none.
        """
        self._table, self._timeouts, self._running, self._refuse = table, timeouts, running, refuse
        self.numbers: dict[DrafterId, int] = {}  # generations that each drafter held when it was last asked
        self.segments = FleetSegments()  # TCP segments that devices say they have sent
        self._doubted: dict[DrafterId, frozenset[GenerationId]] = {}  # held without a lease when last asked

    def forget(self, drafter: DrafterId) -> None:
        """Drop a drafter that is looked after no more."""
        self.segments.forget(drafter)
        self.numbers.pop(drafter, None)

    async def ask_all(self) -> None:
        """Ask ready drafters what they hold, ``asked_per_s`` at a time; have them drop what twice had no lease.

        Once is no proof: the lease, or the drafter's closing, may still be on its way.
        """
        drafters, at_once = list(self._table.loads()), self._timeouts.asked_per_s
        found = dict[DrafterId, frozenset[GenerationId]]()
        try:
            for first in range(0, len(drafters), at_once):
                if first:
                    await asyncio.sleep(1.0)
                some = drafters[first : first + at_once]
                unleased = await asyncio.gather(*map(self._unleased, some))
                for drafter, names in zip(some, unleased, strict=True):
                    self._have_forgotten(drafter, names & self._doubted.get(drafter, frozenset()))
                    if names:
                        found[drafter] = names
        except Exception:  # the next sweep asks again
            log.exception("asking_failed")
        self._doubted = found

    def _have_forgotten(self, drafter: DrafterId, orphans: frozenset[GenerationId]) -> None:
        running = self._running(drafter)
        if orphans and running is not None:
            names = sorted(orphans)
            some = names[:_ORPHANS_NAMED]
            event(
                log,
                "generations_orphaned",
                logging.WARNING,
                drafter=drafter.actor_name,
                generations=len(names),
                some=some,
            )
            running[0].forget.remote(names)

    async def _unleased(self, drafter: DrafterId) -> frozenset[GenerationId]:
        if (running := self._running(drafter)) is None:
            return frozenset()
        handle, max_generations = running
        most = 2 * max_generations + _SPARE_NAMES
        try:
            asked: Any = handle.held.at_most(holding_bytes(most)).remote()
            sent, held = holding(await within(self._timeouts.probe_deadline_s, asked), most)
        except UnreadableReplyError as error:
            self._refuse(drafter, f"its list of held generations is invalid: {error}")
            return frozenset()
        except (TimeoutError, RayError, OutriderError):  # its process is gone or hangs, or its engine does
            self._refuse(drafter, None)
            return frozenset()
        self.numbers[drafter] = len(held)
        if self._running(drafter) is None:  # removed meanwhile
            return frozenset()
        self.segments.hear(drafter, sent, loop_now_s())
        return self._table.unleased(drafter, held)
