"""``outrider-edge``: draft on this device for a gateway, or for coordinators at a socket, until it is told to stop."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edge.dial_failures import failure_text
from edge.dialled_link import GatewayRefusedError
from edge.drafter_cache import DrafterCache, cache_folder
from edge.gateway_access import GatewayAccess, address_of
from edge.running import at_gateway, on_socket
from edge.settings import read_settings
from outrider import __version__
from outrider.contracts.errors import ConfigError, DrafterBrokenError, OutriderError
from outrider.sampling.noise_check import check_noise
from outrider.wire.dialling import is_name

_BROKEN, USER_ERROR = 1, 2  # the second is in the units, too
_MOST_THREADS = 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT and return the exit status; ``argv`` None: this process's arguments.

    2: as configured it cannot draft. An engine that broke or hangs ends the process with 1, to be started anew.
    """
    given = parser().parse_args(argv)
    try:
        if given.command == "forget":
            return _forget()
        check_noise()
        if given.connect is None:
            asyncio.run(on_socket(read_settings(given.config)))
        else:
            asyncio.run(at_gateway(_access(given), given.name, given.threads))
    except DrafterBrokenError as error:
        _tell(str(error))
        sys.stderr.flush()
        os._exit(_BROKEN)  # else the interpreter would wait for the engine's thread
    except GatewayRefusedError as error:
        _tell(failure_text(error))
        return USER_ERROR
    except OutriderError as error:
        _tell(str(error))
        return USER_ERROR
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider-edge", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["forget"], help="forget: remove the drafters in the cache")
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--config", type=Path, default=Path("/etc/outrider/edge.toml"), help="(default: %(default)s)")
    gateway = parser.add_argument_group("a gateway, in place of --config")
    gateway.add_argument("--connect", metavar="wss://HOST:PORT")
    gateway.add_argument("--ca", type=Path, help="whom the gateway's certificate is of (default: the system's)")
    gateway.add_argument("--cert", type=Path, help="this device's certificate")
    gateway.add_argument("--key", type=Path, help="of --cert")
    gateway.add_argument("--key-file", type=Path, help="with a device key, where there is no certificate")
    gateway.add_argument("--name", default="", help="asked for: a-z, 0-9 and hyphens")
    gateway.add_argument("--threads", type=int, default=1, help="of computation (default: %(default)s)")
    return parser


def _access(given: argparse.Namespace) -> GatewayAccess:
    if not is_name(given.name):
        raise ConfigError("--name", "at most 64 of a-z, 0-9 and hyphens", given.name)
    if not 1 <= given.threads <= _MOST_THREADS:
        raise ConfigError("--threads", f"1..{_MOST_THREADS}", given.threads)
    return GatewayAccess(address_of(given.connect), given.ca, given.cert, given.key, given.key_file)


def _forget() -> int:
    folder = cache_folder()
    drafters, size = DrafterCache(folder).forget()
    sys.stdout.write(f"removed {drafters} drafters, {size / 2**20:.0f} MiB, from {folder}\n")
    return 0


def _tell(text: str) -> None:
    sys.stderr.write(f"outrider-edge: error: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
