"""A gateway as its actor runs it, without Ray: ``python -m lab.bench.gateway.gateway_process SOCKET NAME``."""

import asyncio
import itertools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actors.gateway.device_server import DrafterFile
from actors.gateway.gateway import Gateway
from actors.gateway_beats import DeviceAdmission, DeviceDial, GatewayBeat, GatewayNews
from lab.bench.gateway.pipes import put, reached, run, take
from outrider.wire.dialling import Refused


class PipedFleet:
    """The fleet's directory, which is in the benchmark's process."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer, self._numbers = writer, itertools.count()
        self.waiting = dict[int, "asyncio.Future[Any]"]()

    async def admit(self, dial: DeviceDial) -> DeviceAdmission | Refused:
        found: DeviceAdmission | Refused = await self._asked("admit", dial)
        return found

    async def beat(self, beat: GatewayBeat) -> GatewayNews:
        news: GatewayNews = await self._asked("hear", beat)
        return news

    def answered(self, number: int, answer: object) -> None:
        """Take an answer; nobody waits for one that comes late."""
        waiting = self.waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def _asked(self, method: str, argument: object) -> Any:
        number = next(self._numbers)
        self.waiting[number] = asyncio.get_running_loop().create_future()
        put(self._writer, (number, method, argument))
        try:
            return await self.waiting[number]
        finally:
            del self.waiting[number]


async def _serve(socket: Path, name: str) -> None:
    reader, writer = await reached(socket, name)
    config, files = await take(reader)
    fleet = PipedFleet(writer)
    gateway = Gateway(name, config, fleet, "127.0.0.1")

    async def prepared() -> Mapping[str, DrafterFile]:
        known: Mapping[str, DrafterFile] = files
        return known

    starting = asyncio.create_task(gateway.start(prepared))
    try:
        while True:
            number, answer = await take(reader)
            if number is None:
                gateway.devices.end(*answer)
            else:
                fleet.answered(number, answer)
    except asyncio.IncompleteReadError:
        starting.cancel()


if __name__ == "__main__":
    run(_serve(Path(sys.argv[1]), sys.argv[2]))
