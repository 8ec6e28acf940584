"""Carries messages to a device that dialled in, over its gateway: one stream for all devices there.

A device may move to another gateway, and a gateway may end, under a call. The fleet then says where the same process of
the device is now, and the call is sent again: a drafter answers a repeated one as before.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from actors.coordinator.drafter_replies import broken, checked_answer, checked_probe, silent
from actors.gateway_link import (
    DialledHandle,
    LinkWriter,
    RelayOutcome,
    read_relayed,
    reply_of,
)
from actors.proved_streams import StreamPlace, prove_to_listener
from actors.waiting import cut_if_dead, retrieve
from outrider.contracts.drafting import DraftTerms
from outrider.contracts.errors import DrafterBrokenError, DrafterLostError, DrafterSilentError, MessageError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import OpenGeneration
from outrider.versions import VERSIONS
from outrider.wire.calls import FIRST_VERSION, MOST_DEVICE_CALL_BYTES, call_versions, write_call
from outrider.wire.envelope import MAX_MESSAGE_BYTES
from outrider.wire.replies import Answer, Reply, answer_bytes, read_reply, reply_bytes

_PAUSE_S = 0.1  # before calls are sent again where nothing has changed, on average half of it;
_MOST_PAUSE_S = 1.0  # doubled each time up to this
_LOOKS = 8  # at a time: what more devices wait for waits here, and not at the fleet
_MOST_PAUSES = 4096
_CONNECT_S = 1.5
_QUIET_S = 0.8  # of a gateway that calls wait for; then it is asked for a sign of life, and after as long given up
_NO_DEVICE = 0  # an incarnation; calls of it are answered at once
_NUMBERS = 2**32

Outcome = tuple[RelayOutcome, bytes]
Locate = Callable[[DialledHandle], Awaitable[DialledHandle | None]]


class GatewayLink:
    """A stream to one gateway, opened when something is sent. What waits on a stream that breaks is an ``OSError``."""

    def __init__(self, place: StreamPlace) -> None:
        self._place = place
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._number = self._heard = 0  # frames
        self._writer: LinkWriter | None = None
        self._opening: asyncio.Future[LinkWriter] | None = None
        self._running: asyncio.Task[None] | None = None

    async def asked(self, incarnation: int, call: bytes, most_bytes: int) -> Outcome:
        """Send a call and return what became of it; wait however long that takes."""
        writer = self._writer or await self._opened()
        if writer is not self._writer:
            raise ConnectionError("the stream was closed as soon as it was open")
        number = self._next_number()
        self._waiting[number] = waiting = asyncio.get_running_loop().create_future()
        try:
            writer.put_call(incarnation, number, most_bytes, call)
            outcome: Outcome = await waiting
        finally:
            self._waiting.pop(number, None)
        return outcome

    def tell(self, incarnation: int, call: bytes) -> None:
        """Send a call whose reply nobody waits for, if the stream is open."""
        if self._writer is not None:
            self._writer.put_call(incarnation, self._next_number(), reply_bytes("close"), call)

    @property
    def is_closed(self) -> bool:
        return self._running is None or self._running.done()

    async def disconnect(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    def _next_number(self) -> int:
        self._number = (self._number + 1) % _NUMBERS
        return self._number

    async def _watch(self, stream: asyncio.StreamWriter, writer: LinkWriter) -> None:
        def ask() -> None:
            writer.put_call(_NO_DEVICE, self._next_number(), 0, b"")

        await cut_if_dead(_QUIET_S, lambda: bool(self._waiting), lambda: self._heard, ask, stream.transport.abort)

    async def _opened(self) -> LinkWriter:
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_future()
            self._opening.add_done_callback(retrieve)
            self._running = asyncio.create_task(self._run(self._opening))
        return await asyncio.shield(self._opening)

    async def _run(self, opening: "asyncio.Future[LinkWriter]") -> None:
        error = ConnectionError("the gateway has ended the stream")
        stream: asyncio.StreamWriter | None = None
        watching: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, stream = await asyncio.open_connection(self._place.host, self._place.port)
                await prove_to_listener(reader, stream, self._place.secret)
            self._writer = LinkWriter(stream)
            opening.set_result(self._writer)
            watching = asyncio.create_task(self._watch(stream, self._writer))
            while True:
                frame = await read_relayed(reader)
                self._heard += 1
                waiting = self._waiting.get(frame.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply_of(frame))
        except (OSError, asyncio.IncompleteReadError, MessageError) as found:
            error = ConnectionError(f"{found!r:.200}")
        finally:
            self._writer = None
            if not opening.done():
                opening.set_exception(error)
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(error)
            if watching is not None:
                watching.cancel()
            if stream is not None:
                stream.transport.abort()


class Whereabouts:
    """Asks the fleet where devices are: once for all calls that wait for a device, and less and less often."""

    def __init__(self) -> None:
        self._asking: dict[tuple[int, StreamPlace], asyncio.Task[DialledHandle | None]] = {}
        self._pauses_s: dict[int, float] = {}  # by incarnation
        self._at_a_time = asyncio.Semaphore(_LOOKS)

    async def of(self, handle: DialledHandle, locate: Locate) -> DialledHandle | None:
        """Return where a device is now; if that is where it was, after a pause."""
        key = handle.incarnation, handle.place
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._look(handle, locate))
            asking.add_done_callback(retrieve)
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)

    def answered(self, handle: DialledHandle) -> None:
        if self._pauses_s:
            self._pauses_s.pop(handle.incarnation, None)

    async def _look(self, handle: DialledHandle, locate: Locate) -> DialledHandle | None:
        async with self._at_a_time:
            found = await locate(handle)
        if found is not None and found.place == handle.place:
            if len(self._pauses_s) >= _MOST_PAUSES:
                self._pauses_s.clear()
            pause_s = self._pauses_s.get(handle.incarnation, _PAUSE_S)
            self._pauses_s[handle.incarnation] = min(2.0 * pause_s, _MOST_PAUSE_S)
            await asyncio.sleep(random.uniform(0.0, pause_s))  # noqa: S311 (nothing to guess)
        return found


class GatewayLinks:
    """A coordinator's streams to gateways."""

    def __init__(self) -> None:
        self.whereabouts = Whereabouts()
        self._links: dict[StreamPlace, GatewayLink] = {}

    def of(self, place: StreamPlace) -> GatewayLink:
        if place not in self._links:
            self._links = {known: link for known, link in self._links.items() if not link.is_closed}
            self._links[place] = GatewayLink(place)
        return self._links[place]

    async def disconnect(self) -> None:
        for link in self._links.values():
            await link.disconnect()


class GatewayDrafterTransport:
    """``DrafterTransport`` to a device that dialled in."""

    def __init__(self, name: str, handle: DialledHandle, links: GatewayLinks, locate: Locate) -> None:
        """Open nothing yet. ``locate`` returns where the fleet has the device now; None: nowhere."""
        self._name, self._handle, self._links, self._locate = name, handle, links, locate
        # The coordinator's own: a fleet of another release, which leased it, may know others.
        ours, theirs = call_versions(VERSIONS), handle.versions
        self._fault = ours.fault(theirs)
        self._protocol = ours.protocol.common(theirs.protocol) or FIRST_VERSION
        self.message_version = ours.messages.common(theirs.messages) or VERSIONS.messages.newest

    async def open(self, request: OpenGeneration, terms: DraftTerms, deadline_s: float) -> None:
        if self._fault is not None:
            raise DrafterLostError(f"drafter {self._name} needs {self._fault}")
        await self._called("open", request, terms, deadline_s=deadline_s, most_bytes=reply_bytes("open"))

    async def exchange(
        self, generation: GenerationId, order: bytes, deadline_s: float, most_bytes: int = MAX_MESSAGE_BYTES
    ) -> Answer:
        most_bytes = answer_bytes(most_bytes)
        reply = await self._called("exchange", generation, order, deadline_s=deadline_s, most_bytes=most_bytes)
        return checked_answer(self._name, reply)

    async def probe(self, sent: bytes, reply_bytes: int, deadline_s: float) -> Answer:
        most_bytes = answer_bytes(reply_bytes)
        reply = await self._called("probe", sent, reply_bytes, deadline_s=deadline_s, most_bytes=most_bytes)
        return checked_probe(self._name, reply, reply_bytes)

    def close(self, generation: GenerationId) -> None:
        """Have the device drop a generation; if this is lost, the fleet has it do so later."""
        data = write_call("close", generation, version=self._protocol)
        self._links.of(self._handle.place).tell(self._handle.incarnation, data)

    async def _called(self, method: str, *arguments: Any, deadline_s: float, most_bytes: int) -> Reply:
        data = write_call(method, *arguments, version=self._protocol)
        if len(data) > MOST_DEVICE_CALL_BYTES:
            raise DrafterLostError(
                f"drafter {self._name} needs calls of at most {MOST_DEVICE_CALL_BYTES} bytes, found {len(data)}"
            )
        try:
            async with asyncio.timeout(deadline_s):
                return read_reply(await self._answered(data, most_bytes), most_bytes)
        except TimeoutError:
            raise silent(self._name, deadline_s) from None
        except DrafterBrokenError as error:
            raise broken(self._name, error) from error

    async def _answered(self, call: bytes, most_bytes: int) -> bytes:
        """Send a call until it is answered, wherever the device is then."""
        while True:
            handle, outcome, content = self._handle, RelayOutcome.ELSEWHERE, b""
            with suppress(OSError):
                link = self._links.of(handle.place)
                outcome, content = await link.asked(handle.incarnation, call, most_bytes)
            if outcome is RelayOutcome.REPLIED:
                self._links.whereabouts.answered(handle)
                return content
            if outcome is RelayOutcome.BROKEN:
                raise DrafterBrokenError(content.decode(errors="replace"))
            if outcome is RelayOutcome.BUSY:
                raise DrafterSilentError(f"drafter {self._name} has too many calls that wait")
            await self._follow(handle)

    async def _follow(self, handle: DialledHandle) -> None:
        """Ask where the device is now; ``DrafterLostError``: this process of it is nowhere."""
        if self._handle is not handle:  # another call of this generation has asked
            return
        found = await self._links.whereabouts.of(handle, self._locate)
        if found is None or found.incarnation != handle.incarnation:
            raise DrafterLostError(f"drafter {self._name} is gone: its device has left, or was started anew")
        self._handle = found
