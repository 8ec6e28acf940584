"""Answers coordinators: their calls of devices, on one stream each, in frames (``actors.gateway_link``)."""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from actors.gateway.joined_devices import JoinedDevices
from actors.gateway_link import LinkWriter, call_of, read_relayed
from actors.proved_streams import StreamProofs
from outrider.contracts.errors import MessageError
from outrider.events import event

_MOST_STREAMS, _MOST_UNPROVED = 1024, 128

log = logging.getLogger(__name__)


class CoordinatorRelay:
    """``serve`` is the callback of ``asyncio.start_server``."""

    def __init__(self, devices: JoinedDevices, secret: bytes) -> None:
        self._devices, self._streams = devices, set[asyncio.StreamWriter]()
        self._proofs = StreamProofs(secret, _MOST_UNPROVED)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay calls until the coordinator leaves, or sends what is no frame."""
        if len(self._streams) >= _MOST_STREAMS:
            writer.transport.abort()
            return
        try:
            await self._proofs.accept(reader, writer)
            self._streams.add(writer)
            answers = LinkWriter(writer)
            while True:
                frame = await read_relayed(reader)
                most_bytes, call = call_of(frame)
                answer = partial(answers.put_reply, frame.incarnation, frame.number)
                self._devices.ask(frame.incarnation, call, most_bytes, answer)
        except MessageError as error:
            event(log, "coordinator_not_understood", logging.WARNING, reason=str(error))
        except (OSError, asyncio.IncompleteReadError):
            pass  # it left
        finally:
            self._streams.discard(writer)
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    def end(self) -> None:
        self._proofs.end()
        for writer in self._streams:
            writer.transport.abort()
