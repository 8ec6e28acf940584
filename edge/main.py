"""``outrider-edge``: draft on this device for coordinators that connect, until it is told to stop."""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from edge.device_host import DeviceHost
from edge.server import HostServer
from edge.settings import EdgeSettings, read_settings
from edge.status import CountingDrafter, StatusLine, Verdicts, tell_systemd
from outrider import __version__
from outrider.contracts.errors import ConfigError, DrafterBrokenError, OutriderError
from outrider.engines.limits import EngineLimits
from outrider.engines.onnx.model import OnnxModel
from outrider.events import write_events
from outrider.sampling.noise_check import check_noise
from outrider.wire.replies import DrafterCard

_BROKEN, USER_ERROR = 1, 2  # the second is in the unit, too
_CHECK_S = 5.0  # between two looks at the engine; and what connections get to end
_OWNER_AND_GROUP = 0o660  # may have this device draft


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT and return the exit status; ``argv`` None: this process's arguments.

    2: as configured it cannot draft. An engine that broke or hangs ends the process with 1, to be started anew.
    """
    parser = argparse.ArgumentParser(prog="outrider-edge", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--config", type=Path, default=Path("/etc/outrider/edge.toml"), help="(default: %(default)s)")
    try:
        settings = read_settings(parser.parse_args(argv).config)
        check_noise()
        asyncio.run(drafting(settings))
    except DrafterBrokenError as error:
        sys.stderr.write(f"outrider-edge: error: {error}\n")
        sys.stderr.flush()
        os._exit(_BROKEN)  # else the interpreter would wait for the engine's thread
    except OutriderError as error:
        sys.stderr.write(f"outrider-edge: error: {error}\n")
        return USER_ERROR
    return 0


async def drafting(settings: EdgeSettings) -> None:
    """Load the drafter and answer on the socket until this process is told to stop.

    Raises:
        ModelUnavailableError: the drafter's file is missing, damaged, or another than configured.
        ParameterError: the KV budget has no room for one text.
        ConfigError: the socket cannot be opened.
        DrafterBrokenError: the engine is of no further use; its thread may never end.
    """
    write_events()
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    thread, verdicts = ThreadPoolExecutor(1, thread_name_prefix="engine"), Verdicts()
    engine, card = await loop.run_in_executor(thread, _loaded, settings, verdicts)
    host, status, connected = DeviceHost(engine, card, thread), StatusLine(card.name), set[asyncio.StreamWriter]()
    server = HostServer(host)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.add(writer)
        try:
            await server.serve(reader, writer)
        finally:
            connected.discard(writer)

    listening = await _listening(serve, settings.listen)
    tell_systemd("READY=1")

    def say(generations: int) -> None:
        _say(status.line(engine, verdicts, generations, len(connected)))

    try:
        await _until_told(host, stopped, say, settings.status_s)
    finally:
        listening.close()
        for writer in tuple(connected):
            if not writer.is_closing():
                writer.transport.abort()
        with suppress(TimeoutError):  # from Python 3.12.1 on it waits for the connections
            await asyncio.wait_for(listening.wait_closed(), _CHECK_S)
        thread.shutdown(wait=False, cancel_futures=True)


async def _until_told(host: DeviceHost, stopped: asyncio.Event, say: Callable[[int], None], status_s: float) -> None:
    """Return once ``stopped``; ``DrafterBrokenError`` when the engine broke, or is in one step for over a minute."""
    due_s = time.monotonic()
    while not stopped.is_set():
        try:
            held = await host.held()
            if time.monotonic() >= due_s:
                say(len(held.generations))
                due_s += status_s
            async with asyncio.timeout(min(_CHECK_S, status_s)):
                await host.close_unused()
                await stopped.wait()
        except TimeoutError:
            continue
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


def _loaded(settings: EdgeSettings, verdicts: Verdicts) -> tuple[CountingDrafter, DrafterCard]:
    model = OnnxModel(Path(settings.drafter), settings.threads, settings.sha256)
    engine = CountingDrafter(model, EngineLimits(settings.kv_budget_mib * 2**20), None, verdicts.note)
    return engine, DrafterCard(**vars(engine.identity))


if __name__ == "__main__":
    sys.exit(main())
