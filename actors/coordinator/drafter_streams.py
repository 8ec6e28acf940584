"""Streams from a coordinator to drafter actors, so that no Ray call is made in a round.

A stream is opened in the background. Until it is open, and when it cannot be or has ended, calls go over Ray. If the
other end closes it under a call, that ends by ``DrafterLostError`` at once, seconds before Ray would tell.
"""

import asyncio
import math
from collections.abc import Callable

from ray.exceptions import RayError

from actors.coordinator.drafter_replies import checked_answer
from actors.coordinator.socket_transport import SocketDrafterTransport, Stream, StreamCutError
from actors.messages import DrafterId
from actors.plain_handle import PlainHandle
from actors.proved_streams import StreamPlace, prove_to_listener, ray_encrypts
from actors.ray_internals.core import actor_id_of
from actors.tcp_counts import Address
from actors.waiting import loop_now_s
from outrider.contracts.errors import DrafterLostError, OutriderError
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES

_OPEN_S = 3.0  # for the place, a connection and the proof, and once more for the card
_PAUSE_S, _MOST_PAUSE_S = 2.0, 64.0  # between the beginnings of two tries, doubled after each that failed


class DrafterStream:
    """The stream to one actor, if it is open."""

    def __init__(self, name: str, handle: PlainHandle, note: Callable[[Address], None]) -> None:
        """Open nothing yet. ``note`` is told where each stream goes to."""
        self._name, self._handle, self._note = name, handle, note
        self._calls: SocketDrafterTransport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._again_at_s, self._pause_s = 0.0, _PAUSE_S

    def reach(self) -> SocketDrafterTransport | None:
        """Return what calls over the stream; None while it is not open, and begin to open it if it is time for it."""
        if self._calls is not None and self._calls.is_open:
            return self._calls
        if (self._opening is None or self._opening.done()) and loop_now_s() >= self._again_at_s:
            self._opening = asyncio.create_task(self._open())
        return None

    async def _open(self) -> None:
        self._again_at_s = loop_now_s() + self._pause_s
        try:
            async with asyncio.timeout(_OPEN_S):
                answer = checked_answer(self._name, await self._handle.stream.remote())
                place = StreamPlace.from_bytes(answer.data)
                stream = await _connected(place)
            left = [stream]

            async def connect() -> Stream:
                if left:
                    return left.pop()
                if calls.was_cut:
                    raise StreamCutError("the stream was cut off")
                raise DrafterLostError(f"drafter {self._name} is gone: its stream has ended")

            calls = SocketDrafterTransport(self._name, connect, 0.0, MOST_DEVICE_CALL_BYTES)
            await calls.greet(_OPEN_S)
        except (OutriderError, RayError, OSError, asyncio.IncompleteReadError):
            self._pause_s = min(2.0 * self._pause_s, _MOST_PAUSE_S)
            return  # of an earlier release, behind a firewall, or gone: Ray tells
        self._calls, self._pause_s = calls, _PAUSE_S
        self._note((place.host, place.port))

    async def end(self) -> None:
        """Close it for good; calls that wait end by ``DrafterLostError``."""
        self._again_at_s = math.inf
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if self._calls is not None:
            await self._calls.disconnect()


class DrafterStreams:
    """A coordinator's streams, one for each drafter."""

    def __init__(self, note: Callable[[DrafterId, Address], None]) -> None:
        """``note`` is told where each stream goes to."""
        self._note, self._is_off = note, ray_encrypts()
        self._streams: dict[DrafterId, tuple[bytes, DrafterStream]] = {}
        self._ending = set[asyncio.Task[None]]()

    def of(self, drafter: DrafterId, handle: PlainHandle) -> DrafterStream | None:
        """Return the stream to the drafter of a lease; None where Ray's processes speak TLS to each other."""
        if self._is_off:
            return None
        actor = actor_id_of(handle.ray_handle)
        known = self._streams.get(drafter)
        if known is None or known[0] != actor:  # another actor may have its name since
            if known is not None:
                ending = asyncio.create_task(known[1].end())
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
            stream = DrafterStream(drafter.actor_name, handle, lambda address: self._note(drafter, address))
            known = self._streams[drafter] = actor, stream
        return known[1]


async def _connected(place: StreamPlace) -> Stream:
    stream = await asyncio.open_connection(place.host, place.port)
    try:
        await prove_to_listener(*stream, place.secret)
    except BaseException:
        stream[1].transport.abort()
        raise
    return stream
