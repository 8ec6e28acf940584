"""Runs a device until it is told to stop: at a gateway, or on a local socket."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from edge.dialler import Dialler
from edge.drafter_cache import DrafterCache, cache_folder
from edge.gateway_access import GatewayAccess
from edge.loaded_drafter import LoadedDrafter
from edge.server import HostServer
from edge.settings import EdgeSettings
from edge.status import tell_systemd
from outrider.contracts.errors import ConfigError, DrafterBrokenError
from outrider.events import write_events

_CHECK_S = 5.0  # between two looks at the engine; and what connections get to end
_STATUS_S = 10.0
_OWNER_AND_GROUP = 0o660  # may have this device draft


class DeviceRun:
    """``wake`` has the device's state looked at now; ``stopped`` says that it is to stop."""

    def __init__(self, drafting: Callable[[], LoadedDrafter | None], link: Callable[[], str], status_s: float) -> None:
        self._drafting, self._link, self._status_s = drafting, link, status_s
        self.stopped, self.wake = False, asyncio.Event()
        write_events()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)

    def stop(self) -> None:
        self.stopped = True
        self.wake.set()

    async def until_told(self) -> None:
        """Return once stopped; ``DrafterBrokenError`` when the engine broke, or is in one step for over a minute."""
        tell_systemd("READY=1")
        due_s = 0.0
        while not self.stopped:
            drafting, now_s = self._drafting(), time.monotonic()
            held = await _held(drafting) if drafting is not None else 0
            if self.wake.is_set() or now_s >= due_s:
                _say(drafting.line(held, self._link()) if drafting is not None else f"no drafter, {self._link()}")
                due_s = now_s + self._status_s
            self.wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_CHECK_S, self._status_s)):
                    if drafting is not None:
                        await drafting.host.close_unused()
                    await self.wake.wait()


async def at_gateway(access: GatewayAccess, name: str, threads: int) -> None:
    """Draft for the coordinators of a gateway.

    Raises:
        GatewayRefusedError: it does not serve this device unless somebody changes something.
        DrafterBrokenError: the engine is of no further use; its thread may never end.
    """
    access.headers(), access.context()  # what is wrong from the start is no reason to wait
    running = DeviceRun(lambda: dialler.drafting, lambda: dialler.link, _STATUS_S)
    cache = DrafterCache(cache_folder())
    dialler = Dialler(access, cache, name=name, threads=threads, changed=running.wake.set)
    dialling = asyncio.ensure_future(dialler.run())
    dialling.add_done_callback(lambda _: running.stop())
    try:
        await running.until_told()
    finally:
        await dialler.stop()
        dialling.cancel()
        await asyncio.wait({dialling})
        if dialler.drafting is not None:
            dialler.drafting.end()
    if not dialling.cancelled():
        dialling.result()


async def on_socket(settings: EdgeSettings) -> None:
    """Load the drafter and answer on a local socket.

    Raises:
        ModelUnavailableError: the drafter's file is missing, damaged, or another than configured.
        ParameterError: the KV budget has no room for one text.
        ConfigError: the socket cannot be opened.
        DrafterBrokenError: the engine is of no further use; its thread may never end.
    """
    connected = set[asyncio.StreamWriter]()
    running = DeviceRun(lambda: drafting, lambda: _connected(len(connected)), settings.status_s)
    drafting = await LoadedDrafter.load(
        Path(settings.drafter), settings.sha256, settings.threads, settings.kv_budget_mib
    )
    server = HostServer(drafting.host)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.add(writer)
        try:
            await server.serve(reader, writer)
        finally:
            connected.discard(writer)

    listening = await _listening(serve, settings.listen)
    try:
        await running.until_told()
    finally:
        listening.close()
        for writer in tuple(connected):
            if not writer.is_closing():
                writer.transport.abort()
        with suppress(TimeoutError):  # from Python 3.12.1 on it waits for the connections
            await asyncio.wait_for(listening.wait_closed(), _CHECK_S)
        drafting.end()


def _connected(coordinators: int) -> str:
    return f"{coordinators} coordinators connected" if coordinators else "no coordinator connected"


async def _held(drafting: LoadedDrafter) -> int:
    try:
        return len((await drafting.host.held()).generations)
    except DrafterBrokenError:
        raise
    except Exception as error:  # (whatever broke the engine)
        raise DrafterBrokenError(f"needs an engine that works, found {error!r:.300}") from error


async def _listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], address: str
) -> asyncio.Server:
    try:
        server = await asyncio.start_unix_server(serve, address)  # in place of what a killed process left
        os.chmod(address, _OWNER_AND_GROUP)  # noqa: PTH101 (as the path is used for nothing else)
    except OSError as error:
        raise ConfigError("listen", "a place for a socket", f"{address}: {error}") from error
    return server


def _say(line: str) -> None:
    tell_systemd(f"STATUS={line}")
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError:  # nobody reads it any more; this process's end would flush it once more
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
