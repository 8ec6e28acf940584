"""``outrider bench engines``: output tokens per second of clusters with either engine, and of their alternatives.

Measured are whole Outrider clusters with either engine, vLLM's own server, and vLLM's own speculation (a draft model,
the same pair; n-grams; suffixes), at several numbers of clients: the same chats over HTTP, a mix of prompts by
stated shares. All servers run, one is loaded at a time, and they take turns in a changing order. Reported are medians
and ranges over turns, and for each comparison the ratio with its 95 % interval. A failing arm is reported, and the
others continue.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from cluster.option_types import natural, new_file, positive_int
from lab.bench.engines.served import Load, measured
from lab.bench.engines.servers import ServingOptions, all_servers, export_drafter
from lab.bench.engines.tables import show_compared, show_served
from lab.bench.harness.prompts import USUAL_SHARES, parse_share, shares_of
from lab.bench.harness.record import write_record
from lab.bench.harness.statistics import Sample
from lab.options import not_negative
from outrider.engines.registry import VERIFIERS
from outrider.models.embedded import DRAFTER_NAME, embedded_drafter_path
from outrider.models.folders import EMBEDDED, resolve_folder


def main(argv: Sequence[str]) -> None:
    args = _arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so that the servers end as well
    served = _service(args)
    show_served(served)
    show_compared(served, args.windows)
    if args.json is not None:
        write_record(args.json, args, {"samples": {"service": served}})


def _service(args: argparse.Namespace) -> list[Sample]:
    load = Load(
        tuple(args.clients),
        args.requests,
        args.tokens,
        args.turns,
        temperature=args.temperature,
        shares=args.mix,
    )
    options = ServingOptions(
        target=args.target,
        dtype=args.dtype,
        threads=args.threads,
        central_threads=tuple(args.central_threads or [args.threads]),
        draft_tokens=tuple(args.draft_tokens),
        windows=tuple(args.windows),
        lookups=tuple(args.lookups),
        ngram_tokens=tuple(args.ngram_tokens),
        suffix_tokens=tuple(args.suffix_tokens),
    )
    with TemporaryDirectory(prefix="outrider-engines-") as scratch:
        folder = resolve_folder(args.target)
        file = embedded_drafter_path() if args.drafter in (EMBEDDED, DRAFTER_NAME) else Path(args.drafter)
        drafter = export_drafter(file, folder, Path(scratch) / "drafter")
        servers = all_servers(args.engines, folder, drafter, options)
        cells = load.turns * len(load.clients) * sum(len(server.arms) for server in servers)
        with tqdm(total=cells, desc="service", disable=None) as bar:

            def on_cell(arm: str) -> None:
                bar.set_postfix_str(arm)
                bar.update()

            return list(measured(servers, load, on_cell))


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="outrider bench engines", description=__doc__)
    add = parser.add_argument
    add("--target", default=EMBEDDED, help="the embedded one, or a folder in Hugging Face format")
    add("--drafter", default=EMBEDDED, help="the embedded one, or a file made by `outrider distill`")
    add("--dtype", default="float32", choices=["float32", "bfloat16"])
    add("--threads", type=positive_int, default=1, help="of computation, of each engine (default: %(default)s)")
    add("--clients", type=positive_int, nargs="+", default=[1, 4, 16, 32], help="numbers of (default: %(default)s)")
    add("--requests", type=positive_int, default=2, help="of each client in a turn (default: %(default)s)")
    add("--tokens", type=positive_int, default=40, help="of every answer (default: %(default)s)")
    add("--turns", type=positive_int, default=2, help="of every arm at each number of clients (default: %(default)s)")
    add("--engines", nargs="+", choices=sorted(VERIFIERS), default=sorted(VERIFIERS), help="of Outrider (default: all)")
    add("--windows", type=_window, nargs="+", default=[None, 0], help="of Outrider; auto is its own choice")
    add(
        "--draft-tokens",
        type=positive_int,
        nargs="*",
        default=[2],
        help="per step, of vLLM's own speculation; none: no such arm",
    )
    add(
        "--lookups",
        type=natural,
        nargs="+",
        default=[0, 8],
        help="longest looked-up drafts of Outrider's clusters; 0: none",
    )
    add("--ngram-tokens", type=positive_int, nargs="*", default=[4], help="per step, of vLLM's n-gram speculation")
    add("--suffix-tokens", type=positive_int, nargs="*", default=[8], help="per step, of vLLM's suffix decoding")
    usual = [*USUAL_SHARES.items()]
    shown = " ".join(f"{kind}={share:g}" for kind, share in usual)
    add(
        "--mix", type=parse_share, nargs="+", default=usual, metavar="KIND=SHARE", help=f"of prompts (default: {shown})"
    )
    add(
        "--temperature",
        type=not_negative,
        default=0.0,
        help="above 0 with a fixed seed for each request that Outrider gets",
    )
    add(
        "--central-threads",
        type=positive_int,
        nargs="+",
        default=None,
        help="of vLLM's own servers (default: --threads)",
    )
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    args = parser.parse_args(argv)
    try:
        args.mix = shares_of(args.mix)
    except ValueError as error:
        parser.error(str(error))
    return args


def _window(text: str) -> int | None:
    return None if text == "auto" else natural(text)
