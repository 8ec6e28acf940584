"""A device that has dialled in, as the fleet calls it: over its gateway, by the same methods as a drafter actor."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol

from actors.gateway_beats import DeviceDial, DeviceRow
from actors.gateway_link import DialledHandle, RelayOutcome
from actors.messages import DrafterId
from actors.proved_streams import StreamPlace
from actors.waiting import within
from outrider.contracts.errors import DrafterBrokenError, DrafterSilentError
from outrider.contracts.requests import GenerationId
from outrider.versions import MESSAGES_BEFORE_RANGES, VERSIONS, VersionRange, Versions
from outrider.wire.calls import FIRST_VERSION, call_versions, write_call
from outrider.wire.dialling import Refused
from outrider.wire.replies import DrafterCard, Reply, read_reply, reply_bytes

_AGAIN_S = 0.2  # until a device is looked for where it has moved


class GatewayCalls(Protocol):
    """A gateway, as the fleet calls it."""

    async def ask(self, incarnation: int, call: bytes, most_bytes: int) -> tuple[RelayOutcome, bytes]: ...

    def end(self, incarnation: int, last: Refused | None) -> None:
        """Turn a device away, without waiting."""
        ...


@dataclass(slots=True)
class GatewayState:
    """A gateway, by its last heartbeat."""

    name: str
    calls: GatewayCalls
    place: StreamPlace
    address: str
    session: int
    heard_at_s: float
    refused: dict[str, int] = field(default_factory=dict)
    connections: int = 0
    takes_devices: bool = False
    has_told_all: bool = False  # which devices are with it


class DialledDevice:
    """One process of a device. Pickled, it is the handle that coordinators lease."""

    def __init__(self, drafter: DrafterId, dial: DeviceDial, gateway: GatewayState) -> None:
        self.drafter, self.dial, self.gateway = drafter, dial, gateway
        self.coming: GatewayState | None = None  # where it has dialled too, and is not ready yet
        self._moved = asyncio.Event()
        self.away_at_s: float | None = None  # None: it is connected
        self.is_ready = asyncio.Event()  # connected, and has loaded its drafter
        self.loading_at_s = 0.0  # since when it is not ready
        self.messages: VersionRange = MESSAGES_BEFORE_RANGES  # as of a drafter actor's handle
        self.versions: Versions = VERSIONS
        self.sent_bytes = self.received_bytes = 0
        self.card, self.prove, self.held = (RelayedMethod(self, name) for name in ("card", "prove", "held"))
        self.forget = RelayedForget(self)

    @property
    def incarnation(self) -> int:
        return self.drafter.incarnation

    def move(self, dial: DeviceDial, gateway: GatewayState) -> None:
        """Note that it is with another gateway now; calls that wait at the one before are sent again."""
        self.dial, self.gateway, self.coming = dial, gateway, None
        self._moved.set()
        self._moved = asyncio.Event()

    def end(self, last: Refused | None) -> None:
        """Turn it away wherever it is."""
        for gateway in filter(None, (self.gateway, self.coming)):
            gateway.calls.end(self.incarnation, last)

    def carried(self, row: DeviceRow) -> dict[str, int]:
        """Return by direction what it has carried since it was told last; each gateway counts from 0."""
        before, now = (self.sent_bytes, self.received_bytes), (row.sent_bytes, row.received_bytes)
        self.sent_bytes, self.received_bytes = now
        more = (new - old if new >= old else new for old, new in zip(before, now, strict=True))
        return dict(zip(("down", "up"), more, strict=True))

    async def card_in_time(self, deadline_s: float) -> DrafterCard:
        """Return its card; wait while it is away, and a ``TimeoutError`` if it is here and silent."""
        while True:
            await self.is_ready.wait()
            try:
                card = await within(deadline_s, self.card.remote())
            except TimeoutError:
                if self.is_ready.is_set():
                    raise
                continue
            if not isinstance(card, DrafterCard):
                raise DrafterBrokenError(f"needs to send its card, found {card!r:.60}")
            return card

    def note_unready(self, now_s: float) -> None:
        if self.is_ready.is_set():
            self.is_ready.clear()
            self.loading_at_s = now_s

    def __reduce__(self) -> tuple[Any, ...]:
        return DialledHandle, (self.gateway.place, self.incarnation, self.versions)

    async def asked(self, method: str, arguments: tuple[object, ...], most_bytes: int) -> Reply:
        """Call the device wherever it is; wait however long it is away. The caller sets a deadline."""
        protocol = call_versions(VERSIONS).protocol.common(self.versions.protocol) or FIRST_VERSION
        call = write_call(method, *arguments, version=protocol)
        while True:
            gateway = self.gateway
            outcome, reply = await self._relayed(call, most_bytes)
            if outcome is RelayOutcome.REPLIED:
                found = read_reply(reply, most_bytes)
                if isinstance(found, DrafterCard):
                    self.versions = found.versions
                return found
            if outcome is RelayOutcome.BROKEN:
                raise DrafterBrokenError(reply.decode(errors="replace"))
            if outcome is RelayOutcome.BUSY:
                raise DrafterSilentError("needs a device that answers, found too many calls that wait for it")
            if gateway is self.gateway:
                await asyncio.sleep(_AGAIN_S)

    async def _relayed(self, call: bytes, most_bytes: int) -> tuple[RelayOutcome, bytes]:
        """Call it where it is, until it is elsewhere: a gateway that is gone may not say so for long."""
        asking = asyncio.ensure_future(self.gateway.calls.ask(self.incarnation, call, most_bytes))
        moving = asyncio.ensure_future(self._moved.wait())
        try:
            await asyncio.wait({asking, moving}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else (RelayOutcome.ELSEWHERE, b"")
        finally:
            asking.cancel()
            moving.cancel()


class RelayedMethod:
    def __init__(self, device: DialledDevice, name: str, most_bytes: int | None = None) -> None:
        """As ``PlainMethod``: ``most_bytes`` is the largest reply that is read; None: that the method may have."""
        self._device, self._name = device, name
        self._most_bytes = reply_bytes(name) if most_bytes is None else most_bytes

    def at_most(self, most_bytes: int) -> "RelayedMethod":
        return RelayedMethod(self._device, self._name, most_bytes)

    async def remote(self, *arguments: object) -> Reply:
        return await self._device.asked(self._name, arguments, self._most_bytes)


class RelayedForget:
    """Closes generations, without waiting: a device has no call for many."""

    def __init__(self, device: DialledDevice) -> None:
        self._device = device

    def remote(self, generations: list[GenerationId]) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._forget(generations))
        _FORGETTING.add(task)
        task.add_done_callback(_FORGETTING.discard)
        return task

    async def _forget(self, generations: list[GenerationId]) -> None:
        try:
            async with asyncio.timeout(_FORGET_S):
                for generation in generations:
                    await self._device.asked("close", (generation,), reply_bytes("close"))
        except Exception:  # noqa: BLE001 (the next sweep finds them again)
            return


_FORGET_S = 30.0
_FORGETTING = set[asyncio.Task[None]]()  # asyncio keeps only weak references to tasks
