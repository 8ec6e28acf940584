"""``outrider bench gateway``: what gateways cost, and how they bear storms and devices that move.

Gateways run as in their actors, without Ray: the fleet's directory is in this process, and devices are in others, all
on this machine. *bits*: of an exchange with a real ``outrider-edge`` behind a link. *load*: processor time of gateway
and relay an exchange. *idle*: memory and processor time of devices that wait. *storm*: a gateway is killed, and its
devices dial another one. *roaming*: a real device whose public address changes. Links are TUN devices and need root.
"""

import argparse
import logging
import resource
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cluster.option_types import new_file, positive, positive_int
from cluster.options import add_config_options, read_config
from cluster.reports.tables import show_table
from lab.bench.gateway import crowds, roaming
from lab.bench.gateway.pipes import run
from lab.bench.gateway.tun_link import available
from lab.bench.harness.record import write_record
from outrider.config.schema import Config

_ON_LINKS = ("bits", "roaming")
Part = Callable[[Path, Config, argparse.Namespace], Awaitable[Any]]


async def _bits(folder: Path, config: Config, args: argparse.Namespace) -> roaming.Bits:
    return await roaming.bits(folder, config, args.rtt_ms / 1e3)


async def _load(folder: Path, _: Config, args: argparse.Namespace) -> crowds.Load:
    return await crowds.load(folder, args.devices, args.rate, args.seconds)


async def _idle(folder: Path, _: Config, args: argparse.Namespace) -> crowds.Idle:
    return await crowds.idle(folder, args.idle, 2, args.seconds)


async def _storm(folder: Path, _: Config, args: argparse.Namespace) -> crowds.Storm:
    return await crowds.storm(folder, args.redials, args.drafting, args.rounds, args.seconds, args.draft_ms / 1e3)


async def _roaming(folder: Path, config: Config, args: argparse.Namespace) -> roaming.Roaming:
    return await roaming.roaming(folder, config, args.rtt_ms / 1e3, args.every, args.roams)


_PARTS: dict[str, Part] = {"bits": _bits, "load": _load, "idle": _idle, "storm": _storm, "roaming": _roaming}


def main(argv: Sequence[str]) -> None:
    args = _parser().parse_args(argv)
    config, found = read_config(args), dict[str, list[Any]]()
    logging.getLogger("actors").setLevel(logging.ERROR)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    for name in args.parts:
        if name in _ON_LINKS and not available():
            print(f"{name}: left out, as it needs root and /dev/net/tun")
            continue
        found[name] = [_measured(_PARTS[name], config, args) for _ in range(args.repeats)]
        _show(name, found[name])
    if args.json is not None:
        write_record(args.json, args, {name: [asdict(one) for one in some] for name, some in found.items()})


def _measured(part: Part, config: Config, args: argparse.Namespace) -> Any:
    async def measured() -> Any:
        return await part(Path(folder), config, args)

    with TemporaryDirectory(prefix="outrider-gateway-") as folder:
        return run(measured())


def _show(name: str, some: Sequence[Any]) -> None:
    rows = [(one.name, *(_shown(getattr(each, one.name)) for each in some)) for one in fields(some[0])]
    show_table(f"Gateways, {name}", ("", *(f"run {number + 1}" for number in range(len(some)))), rows)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    return f"{value:.3g}" if isinstance(value, float) and value < 1e3 else f"{value:.0f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench gateway", description=__doc__)
    add_config_options(parser)
    add = parser.add_argument
    add("--parts", nargs="+", choices=_PARTS, default=list(_PARTS), metavar="PART", help="of %(choices)s (all)")
    add("--devices", type=positive_int, default=1000, help="of load (default: %(default)s)")
    add("--rate", type=positive, default=2000.0, help="exchanges/s of load (default: %(default)s)")
    add("--idle", type=positive_int, default=10_000, help="devices that wait (default: %(default)s)")
    add("--redials", type=positive_int, default=1000, help="devices of the killed gateway (default: %(default)s)")
    add("--drafting", type=positive_int, default=100, help="devices of the other one (default: %(default)s)")
    add("--rounds", type=positive, default=200.0, help="exchanges/s of these (default: %(default)s)")
    add("--draft-ms", type=positive, default=20.0, help="that they take for a draft (default: %(default)s)")
    add("--rtt-ms", type=positive, default=50.0, help="of links (default: %(default)s)")
    add("--every", type=positive, default=2.0, help="seconds between two addresses (default: %(default)s)")
    add("--roams", type=positive, default=120.0, help="seconds of roaming (default: %(default)s)")
    add("--seconds", type=positive, default=20.0, help="of load, idling, and from a kill on (default: %(default)s)")
    add("--repeats", type=positive_int, default=1, help="of each part (default: %(default)s)")
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    return parser
