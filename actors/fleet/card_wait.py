"""Waits for the card of a drafter, however long its node takes to join."""

import asyncio
from typing import Any

from ray.exceptions import RayError

from actors.fleet.drafter_actors import DrafterActors, DrafterPhase
from actors.fleet.timeouts import FleetTimeouts
from actors.waiting import loop_now_s, within


async def card_in_time(handle: Any, actors: DrafterActors, timeouts: FleetTimeouts) -> Any:
    """Return the drafter's card.

    Raises:
        TimeoutError: its process is there and has not answered for longer than loading, or an answer, may take.
    """
    most_s = {DrafterPhase.LOADING: timeouts.start_deadline_s, DrafterPhase.RUNNING: timeouts.proof_deadline_s}
    # One call throughout: Ray holds it until the actor is up. Only time with a process counts against a deadline.
    asked: asyncio.Future[Any] = asyncio.ensure_future(handle.card.remote())
    silent_since_s = dict[DrafterPhase, float]()
    try:
        while not (await asyncio.wait({asked}, timeout=timeouts.start_poll_s))[0]:
            phase = await _phase(handle, actors, timeouts)
            allowed_s = most_s.get(phase)
            if allowed_s is None:
                silent_since_s.clear()
                continue
            silent_s = loop_now_s() - silent_since_s.setdefault(phase, loop_now_s())
            if silent_s >= allowed_s and not asked.done():
                raise TimeoutError(f"needs to answer within {allowed_s:g} s, found its process {phase} and silent")
        return await asked
    finally:
        asked.cancel()


async def _phase(handle: Any, actors: DrafterActors, timeouts: FleetTimeouts) -> DrafterPhase:
    try:
        return await within(timeouts.probe_deadline_s, actors.phase(handle))
    except (TimeoutError, RayError):  # the head is away: no deadline runs while the phase is unknown
        return DrafterPhase.ABSENT
