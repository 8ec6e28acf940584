"""``outrider-edge``: draft on this device for coordinators that connect, until it is told to stop."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from edge.host import DrafterHost
from edge.server import HostServer
from edge.settings import EdgeSettings, read_settings
from edge.status import CountingDrafter, StatusLine, Verdicts, tell_systemd
from outrider import __version__
from outrider.contracts.errors import OutriderError
from outrider.engines.limits import EngineLimits
from outrider.engines.onnx.model import OnnxModel
from outrider.events import write_events
from outrider.sampling.noise_check import check_noise
from outrider.wire.replies import DrafterCard

_USER_ERROR = 2
_OWNER_AND_GROUP = 0o660  # may have this device draft


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT and return the exit status; ``argv`` None: this process's arguments."""
    parser = argparse.ArgumentParser(prog="outrider-edge", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--config", type=Path, default=Path("/etc/outrider/edge.toml"), help="(default: %(default)s)")
    try:
        settings = read_settings(parser.parse_args(argv).config)
        check_noise()
        asyncio.run(drafting(settings))
    except OutriderError as error:
        sys.stderr.write(f"outrider-edge: error: {error}\n")
        return _USER_ERROR
    return 0


async def drafting(settings: EdgeSettings) -> None:
    """Load the drafter and answer on the socket until this process is told to stop.

    Raises:
        ModelUnavailableError: the drafter's file is missing, damaged, or another than configured.
        ParameterError: the KV budget has no room for one text.
    """
    write_events()
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    thread, verdicts = ThreadPoolExecutor(1, thread_name_prefix="engine"), Verdicts()
    engine, card = await loop.run_in_executor(thread, _loaded, settings, verdicts)
    server, status, connected = HostServer(DrafterHost(engine, card, thread)), StatusLine(card.name), set[object]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.add(writer)
        try:
            await server.serve(reader, writer)
        finally:
            connected.discard(writer)

    listening = await asyncio.start_unix_server(serve, settings.listen)  # in place of what a killed process left
    os.chmod(settings.listen, _OWNER_AND_GROUP)  # noqa: PTH101 (as the path is used for nothing else)
    tell_systemd("READY=1")
    async with listening:
        while not stopped.is_set():
            line = status.line(engine, verdicts, len(connected))
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            tell_systemd(f"STATUS={line}")
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), settings.status_s)
    thread.shutdown()


def _loaded(settings: EdgeSettings, verdicts: Verdicts) -> tuple[CountingDrafter, DrafterCard]:
    model = OnnxModel(Path(settings.drafter), settings.threads, settings.sha256)
    engine = CountingDrafter(model, EngineLimits(settings.kv_budget_mib * 2**20), None, verdicts.note)
    return engine, DrafterCard(**vars(engine.identity))


if __name__ == "__main__":
    sys.exit(main())
