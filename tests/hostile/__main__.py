"""Drive a live service with what is hostile in size, nesting, number and time: ``python -m tests.hostile``.

One key is hostile, another is well behaved: what the other loses by each case is measured and held to the promises of
SECURITY.md. Status 1 if one was broken.
"""

import argparse
import json
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.chaos.links import die_with_parent
from tests.cluster.served import PLAIN, free_port
from tests.hostile import (
    agents,
    bodies,
    connections,
    devices,
    dials,
    files,
    floods,
    grammars,
    heads,
    messages,
    report,
    responses,
    starts,
    thoughts,
)
from tests.hostile.cases import Case
from tests.hostile.gateway import DialIn
from tests.hostile.promises import Family
from tests.hostile.running import Campaign, as_data
from tests.hostile.service import KEYS, ROOT, Layout, Service

_SHARES = {  # of the time
    Family.BODIES: 0.18,
    Family.FIELDS: 0.10,
    Family.GRAMMARS: 0.16,
    Family.HEADERS: 0.08,
    Family.CONNECTIONS: 0.08,
    Family.READS: 0.06,
    Family.FLOODS: 0.12,
    Family.DEVICES: 0.12,
    Family.DIALS: 0.12,
    Family.FILES: 0.10,
}
_KEYLESS_SHARE = 0.12  # on top
_DEVICES = 2
_SHORT_DEVICES = 1
_OPEN_FILES = 16_384


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--checkout", type=Path, default=ROOT, help="folder of another version, which then serves")
    parser.add_argument("--minutes", type=float, default=15.0, help="of driving; families share them")
    parser.add_argument("--all", action="store_true", help="every case, however long it takes")
    parser.add_argument(
        "--short", action="store_true", help="a few cases of each family, with bounds of a busy machine"
    )
    parser.add_argument("--busy", action="store_true", help="bounds of a machine that does other things as well")
    parser.add_argument("--families", nargs="*", choices=[str(family) for family in Family], default=None)
    parser.add_argument("--only", default="", help="cases that have this in their names")
    parser.add_argument("--seed", type=int, default=0, help="which bodies are tried where there is no time for all")
    parser.add_argument("--report", type=Path, default=None, help="file for all results, as JSON")
    parser.add_argument("--compare", type=Path, nargs=2, help="print the table of two reports, before and after")
    parser.add_argument("--promises", action="store_true", help="print the promises as SECURITY.md has them")
    args = parser.parse_args(argv)
    if args.compare or args.promises:
        print(report.compared(*map(report.read, args.compare)) if args.compare else report.promises_table())
        return 0
    die_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends, too
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OPEN_FILES, hard), hard))
    with tempfile.TemporaryDirectory(prefix="outrider-hostile-") as folder:
        return _run(args, Path(folder))


def _run(args: argparse.Namespace, folder: Path) -> int:
    chosen = [Family(name) for name in args.families or Family]
    began_s, results, planned, tried = time.monotonic(), list[dict[str, Any]](), {}, {}
    for keyless in (False, True):
        families = [family for family in chosen if (family is Family.KEYLESS) == keyless]
        if not families or (args.short and keyless):
            continue
        inside = folder / f"{keyless}"
        layout = Layout(
            args.checkout.resolve(),
            inside,
            _SHORT_DEVICES if args.short else _DEVICES,
            keyless=keyless,
            dial_in=DialIn(inside / "gateway", free_port()) if Family.DIALS in families else None,
        )
        with Service(layout).running() as service:
            campaign = Campaign(service, busy=args.busy or args.short)
            cases = _cases(args, service, families)
            with campaign.beside("" if keyless else KEYS["alice"]):
                for family, some in cases.items():
                    share = _KEYLESS_SHARE if keyless else _SHARES[family]
                    lasts_s = 1e9 if args.all or args.short else 60 * args.minutes * share
                    planned[family] = len(some)
                    tried[family] = campaign.run(some, time.monotonic() + lasts_s)
                    results[:] = [*results, *map(as_data, campaign.results)]
                    campaign.results.clear()
                    _write(args, results, planned, tried, began_s)
    left = {str(family): planned[family] - tried[family] for family in planned if planned[family] > tried[family]}
    broken = [row for row in results if row["wrong"]]
    print(report.table(results))
    print(report.worst_cases(results))
    print(f"{len(results)} cases in {time.monotonic() - began_s:.0f} s; not tried for want of time: {left or 'none'}")
    print(f"{len(broken)} broke a promise" if broken else "all promises were kept", flush=True)
    return int(bool(broken) or not results)


def _cases(args: argparse.Namespace, service: Service, families: Sequence[Family]) -> dict[Family, list[Case]]:
    document = httpx.get(f"{service.url}/openapi.json", timeout=60, verify=PLAIN).json()
    every = chain(
        agents.cases(),
        bodies.cases(document),
        responses.cases(),
        messages.cases(),
        grammars.cases(),
        thoughts.cases(),
        heads.cases(),
        connections.cases(),
        floods.cases(),
        devices.cases(),
        dials.cases(),
        files.cases(),
        starts.cases(),
        heads.keyless_cases(),
        floods.keyless_cases(),
    )
    found: dict[Family, list[Case]] = {family: [] for family in families}
    for case in every:
        if case.family in found and args.only in case.name and (case.short or not args.short):
            found[case.family].append(case)
    for some in found.values():
        Random(args.seed).shuffle(some)
        some.sort(key=lambda case: (not case.short, not case.likely))  # what is known to have hurt comes first
    return {family: some for family, some in found.items() if some}


def _write(
    args: argparse.Namespace,
    results: Sequence[dict[str, Any]],
    planned: dict[Family, int],
    tried: dict[Family, int],
    began_s: float,
) -> None:
    """After each family, so that a run that is ended leaves what it has."""
    if args.report is not None:
        content = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "lasted_s": round(time.monotonic() - began_s),
            "seed": args.seed,
            "bounds": "busy" if args.busy or args.short else "quiet",
            "planned": {str(family): count for family, count in planned.items()},
            "tried": {str(family): count for family, count in tried.items()},
            "results": results,
        }
        report.write(args.report, json.loads(json.dumps(content)))


if __name__ == "__main__":
    sys.exit(main())
