"""``outrider bench engines``: the torch and the vLLM verifier side by side, and what a user would pick instead.

Two parts, each of which `--parts` can leave out:

engines: seconds of a verification round for several generations, drafts and prefixes, warm and cold, greedy and
    sampled, beside the bare vLLM step over the same tokens; then closed loops of the engines alone with recorded
    drafts, to tell engine from service;
service: output tokens per second of whole Outrider clusters with either engine, of vLLM's own server, and of vLLM's own
    draft-model speculation with the same pair, at several numbers of clients: the same chats over HTTP, greedy.

One process is under measure at a time. Arms take turns, in another order in every repeat; reported are medians and
ranges over repeats. An arm that fails is reported as such, and the others go on.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from bench.engines.exported_drafter import export_drafter
from bench.engines.plan import AloneCell, RoundCell
from bench.engines.rounds import read_samples
from bench.engines.served import Load, measured
from bench.engines.servers import ServingOptions, all_servers, vllm_process_variables
from bench.engines.tables import show_alone, show_rounds, show_served
from bench.harness.record import write_record
from bench.harness.samples import Sample
from cluster.options import add_output_options, check_plots
from outrider.config.reading import load_config
from outrider.models.embedded import DRAFTER_NAME, embedded_drafter_path
from outrider.models.loading import EMBEDDED, resolve_folder

_PARTS = ("engines", "service")


def main(argv: Sequence[str]) -> None:
    """Run the bench, print its tables, write figures and plots."""
    args = _arguments(argv)
    samples: dict[str, Sequence[object]] = {}
    if "engines" in args.parts:
        rounds, alone = _engines(args)
        show_rounds(rounds)
        show_alone(alone)
        samples |= {"rounds": rounds, "alone": alone}
        if args.plots is not None and any(one.values and one.cell.warm for one in rounds):
            from bench.engines.plots import plot_rounds  # noqa: PLC0415 (needs matplotlib)

            plot_rounds(args.plots / "engines_rounds.png", rounds)
        _write(args, samples)  # now already: an interrupt of the other part must not lose it
    if "service" in args.parts:
        served = _service(args)
        show_served(served)
        samples["service"] = served
        if args.plots is not None and any("tokens_per_s" in one.values for one in served):
            from bench.engines.plots import plot_served  # noqa: PLC0415

            plot_served(args.plots / "engines_service.png", served)
        _write(args, samples)


def _write(args: argparse.Namespace, samples: Mapping[str, Sequence[object]]) -> None:
    if args.json is not None:
        write_record(args.json, args, {"samples": samples})


def _engines(args: argparse.Namespace) -> tuple[list[Sample[RoundCell]], list[Sample[AloneCell]]]:
    """In a process of their own: vLLM changes a process for good, and may end it."""
    with TemporaryDirectory(prefix="outrider-engines-") as scratch:
        out = Path(scratch) / "samples.jsonl"
        command = [sys.executable, "-m", "bench.engines.rounds", "--out", str(out)]
        for name in ("target", "drafter", "dtype", "device", "threads", "prefill_chunk"):
            command += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
        command += ["--quick"] if args.quick else []
        paths = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, **vllm_process_variables(args.threads), "PYTHONPATH": paths}
        status = subprocess.run(command, env=environment, check=False).returncode
        if status:
            print(f"FAILED engines: the process ended with status {status}; what it measured before is reported")
        return read_samples(out)


def _service(args: argparse.Namespace) -> list[Sample[int]]:
    load = Load(tuple(args.clients), args.requests, args.tokens)
    options = ServingOptions(
        target=args.target,
        dtype=args.dtype,
        threads=args.threads,
        central_threads=tuple(args.central_threads),
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
    config = load_config()
    parser = argparse.ArgumentParser(
        prog="outrider bench engines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--parts", nargs="+", choices=_PARTS, default=list(_PARTS))
    add("--target", default=EMBEDDED, help="the embedded one, or a folder in Hugging Face format")
    add("--drafter", default=EMBEDDED, help="the embedded one, or a file made by `outrider distill`")
    add("--dtype", default="float32", choices=["float32", "bfloat16"])
    add("--device", default="cpu", choices=["cpu", "cuda"], help="of the rounds; services run on the CPU")
    add("--threads", type=int, default=1, help="of computation, of each engine (default: %(default)s)")
    add("--prefill-chunk", type=int, default=config.verifiers.prefill_chunk_tokens, help="default: the service's")
    add("--clients", type=int, nargs="+", default=None, help="default: 1 4 8 16")
    add("--requests", type=int, default=4, help="at each number of clients; at least one a client (default: 4)")
    add("--tokens", type=int, default=None, help="of every answer (default: 40)")
    add("--repeats", type=int, default=None, help="of the services, each started anew (default: 2)")
    add("--windows", type=_window, nargs="+", default=[None, 0], help="of Outrider; auto is its own choice")
    add("--draft-tokens", type=int, nargs="+", default=[2], help="per step, of vLLM's own speculation")
    add("--central-threads", type=int, nargs="+", default=None, help="of vLLM's own servers (default: --threads)")
    add("--quick", action="store_true", help="a few cells, clients and tokens: under five minutes")
    add_output_options(parser, "draw rounds and services")
    args = parser.parse_args(argv)
    check_plots(args.plots)
    args.clients = args.clients or ([1, 8] if args.quick else [1, 4, 8, 16])
    args.tokens = args.tokens or (16 if args.quick else 40)
    args.repeats = args.repeats or (1 if args.quick else 2)
    args.central_threads = args.central_threads or [args.threads]
    return args


def _window(text: str) -> int | None:
    return None if text == "auto" else int(text)
