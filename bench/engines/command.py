"""``outrider bench engines``: what a user gets from clusters of either engine, and from what they would run instead.

``service`` measures output tokens per second of whole Outrider clusters with either engine, of vLLM's own server, and
of vLLM's own draft-model speculation with the same pair, at several numbers of clients: the same chats over HTTP,
greedy. One server is under measure at a time. Servers take turns, in another order in every repeat; reported are
medians and ranges over repeats. An arm that fails is reported as such, and the others go on.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from bench.engines.exported_drafter import export_drafter
from bench.engines.served import Load, measured
from bench.engines.servers import ServingOptions, all_servers
from bench.engines.tables import show_served
from bench.harness.record import write_record
from bench.harness.samples import Sample
from outrider.models.embedded import DRAFTER_NAME, embedded_drafter_path
from outrider.models.folders import EMBEDDED, resolve_folder


def main(argv: Sequence[str]) -> None:
    """Run the bench, print its table, write figures."""
    args = _arguments(argv)
    served = _service(args)
    show_served(served)
    if args.json is not None:
        write_record(args.json, args, {"samples": {"service": served}})


def _service(args: argparse.Namespace) -> list[Sample]:
    load = Load(tuple(args.clients), args.requests, args.tokens)
    options = ServingOptions(
        target=args.target,
        dtype=args.dtype,
        threads=args.threads,
        central_threads=tuple(args.central_threads or [args.threads]),
        draft_tokens=tuple(args.draft_tokens),
        windows=tuple(args.windows),
    )
    with TemporaryDirectory(prefix="outrider-engines-") as scratch:
        folder = resolve_folder(args.target)
        file = embedded_drafter_path() if args.drafter in (EMBEDDED, DRAFTER_NAME) else Path(args.drafter)
        servers = all_servers(folder, export_drafter(file, folder, Path(scratch) / "drafter"), options)
        cells = args.repeats * len(load.clients) * sum(len(server.arms) for server in servers)
        with tqdm(total=cells, desc="service", disable=None) as bar:

            def on_cell(arm: str) -> None:
                bar.set_postfix_str(arm)
                bar.update()

            return list(measured(servers, load, args.repeats, on_cell))


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="outrider bench engines", description=__doc__)
    add = parser.add_argument
    add("--parts", nargs="+", choices=["service"], default=["service"], help="what is measured (default: %(default)s)")
    add("--target", default=EMBEDDED, help="the embedded one, or a folder in Hugging Face format")
    add("--drafter", default=EMBEDDED, help="the embedded one, or a file made by `outrider distill`")
    add("--dtype", default="float32", choices=["float32", "bfloat16"])
    add("--threads", type=int, default=1, help="of computation, of each engine (default: %(default)s)")
    add("--clients", type=int, nargs="+", default=[1, 4, 16, 32], help="numbers of (default: %(default)s)")
    add("--requests", type=int, default=4, help="at each number of clients; at least one a client (default: 4)")
    add("--tokens", type=int, default=40, help="of every answer (default: %(default)s)")
    add("--repeats", type=int, default=2, help="of the services, each started anew (default: %(default)s)")
    add("--windows", type=_window, nargs="+", default=[None, 0], help="of Outrider; auto is its own choice")
    add("--draft-tokens", type=int, nargs="+", default=[2], help="per step, of vLLM's own speculation")
    add("--central-threads", type=int, nargs="+", default=None, help="of vLLM's own servers (default: --threads)")
    add("--json", type=Path, default=None, metavar="FILE", help="write every figure")
    return parser.parse_args(argv)


def _window(text: str) -> int | None:
    return None if text == "auto" else int(text)
