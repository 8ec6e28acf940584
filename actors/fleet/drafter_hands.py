"""What the care of drafters does with them: with actors of the cluster, and with devices that have dialled in."""

from typing import Any, Protocol

from actors.fleet.dialled_device import DialledDevice
from actors.fleet.dialled_devices import DialledDevices
from actors.fleet.drafter_actors import DrafterActors, card_in_time
from actors.fleet.timeouts import FleetTimeouts
from actors.messages import DrafterId
from actors.waiting import loop_now_s, within
from outrider.config.drafters import DrafterGroupConfig

_RESTART_S = 1.0  # until a device that hung may dial again


class DrafterHand(Protocol):
    async def find(self, drafter: DrafterId, group: DrafterGroupConfig, target: str) -> Any:
        """Return the drafter's handle."""
        ...

    async def card(self, handle: Any) -> Any:
        """Return its card, however long it takes to come up; a ``TimeoutError``: it is up and silent."""
        ...

    async def probe(self, handle: Any) -> None:
        """Have it answer in time; a ``TimeoutError`` or the error that it died of if it does not."""
        ...

    async def restart(self, drafter: DrafterId, handle: Any) -> None: ...

    async def refuse(self, drafter: DrafterId, reason: str, pause_s: float) -> None:
        """Stop it; the caller lets it in again after the pause."""
        ...


class ActorHand:
    """Starts, kills and stops processes."""

    def __init__(self, actors: DrafterActors, timeouts: FleetTimeouts) -> None:
        self._actors, self._timeouts = actors, timeouts

    async def find(self, drafter: DrafterId, group: DrafterGroupConfig, target: str) -> Any:
        return await self._actors.find(drafter, group, target)

    async def card(self, handle: Any) -> Any:
        return await card_in_time(handle, self._actors, self._timeouts)

    async def probe(self, handle: Any) -> None:
        await within(self._timeouts.probe_deadline_s, handle.card.remote())

    async def restart(self, _: DrafterId, handle: Any) -> None:
        await self._actors.restart(handle)

    async def refuse(self, drafter: DrafterId, _reason: str, _pause_s: float) -> None:
        await self._actors.stop(drafter)


class DeviceHand:
    """Waits for devices and turns them away, which is all that can be done with them from here."""

    def __init__(self, devices: DialledDevices, timeouts: FleetTimeouts) -> None:
        self._devices, self._timeouts = devices, timeouts

    async def find(self, drafter: DrafterId, _group: DrafterGroupConfig, _target: str) -> Any:
        return self._devices.at(drafter)

    async def card(self, handle: DialledDevice) -> Any:
        return await handle.card_in_time(self._timeouts.probe_deadline_s)

    async def probe(self, handle: DialledDevice) -> None:
        """Wait while it is away: once the grace is over nobody looks after it any more."""
        await self.card(handle)

    async def restart(self, drafter: DrafterId, _: DialledDevice) -> None:
        self._devices.turn_away(drafter, "needs to answer in time", _RESTART_S, loop_now_s())

    async def refuse(self, drafter: DrafterId, reason: str, pause_s: float) -> None:
        self._devices.turn_away(drafter, reason, pause_s, loop_now_s())
