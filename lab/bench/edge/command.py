"""``outrider bench edge``: the onnx engine and the device's distribution beside the torch engine, in one run.

Time of a drafted token, engines in turn; greedy acceptance on held-out responses, beside float32; size of the device's
packages in a fresh virtual environment, its memory and the time from exec to its first draft; with ``--service``, the
embedded service with either engine.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.option_types import natural, new_file, positive_int
from cluster.options import add_config_options, read_config
from cluster.reports.tables import show_table
from lab.bench.edge import device, engines, service
from lab.bench.harness.record import write_record
from lab.bench.harness.recorded_drafts import RecordSettings, recorded_drafts
from outrider.config.schema import Config
from outrider.models.loading import load_target_facts


def main(argv: Sequence[str]) -> None:
    args = _parser().parse_args(argv)
    config, found = read_config(args), dict[str, object]()
    if args.service:
        figures = service.served(config, ("torch", "onnx"), args.windows, args.clients, args.repeats, args.tokens)
        service.show(figures)
        found["service"] = figures
    else:
        with TemporaryDirectory(prefix="outrider-edge-") as scratch:
            found = _beside_torch(config, args, Path(scratch))
    if args.json is not None:
        write_record(args.json, args, found)


def _beside_torch(config: Config, args: argparse.Namespace, folder: Path) -> dict[str, object]:
    target, model = config.model.target, config.drafters[0].model
    vocab_size = load_target_facts(target).vocab_size
    made = engines.engines_of(model, target, folder, with_float32=True)
    responses = recorded_drafts(RecordSettings(target, model, prompts=args.prompts))
    tokens = sum(len(one.output_ids) for one in responses)
    firsts = {name: engines.acceptance(engine, responses, vocab_size) for name, engine in made.items()}
    accepted = {name: hits / tokens for name, (hits, _) in firsts.items()}
    timed = {name: made[name] for name in ("torch", "onnx")}
    times = engines.token_times(timed, args.prefixes, args.clients, args.repeats, vocab_size)
    _show_times(times)
    rows = [(name, f"{share:.4f}", f"{share - accepted['float32']:+.4f}") for name, share in accepted.items()]
    show_table(f"Greedy acceptance on {tokens} held-out positions", ("engine", "accepted", "over float32"), rows)
    found: dict[str, object] = {"token_times": times, "acceptance": accepted, "positions": tokens}
    if args.install:
        size = device.installed(folder)
        starts = [asyncio.run(device.started(folder, folder / "onnx.onnx", vocab_size)) for _ in range(args.repeats)]
        print(f"installed: {len(size.packages)} packages, {size.megabytes:.0f} MB: {', '.join(size.packages)}")
        for one in starts:
            memory = f"{one.resident_megabytes:.0f} MB resident, {one.peak_megabytes:.0f} at most"
            print(f"first draft {one.first_draft_s:.2f} s after exec, {memory}")
        found |= {"installed": size, "starts": starts}
    return found


def _show_times(times: Sequence[engines.TokenTime]) -> None:
    rows = []
    for torch, onnx in zip(times[::2], times[1::2], strict=True):
        cell = f"{torch.prefix} tokens before, {torch.generations} at once, T = {torch.temperature:g}"
        shown = [one.shown(2) for each in (torch, onnx) for one in (each.cpu_ms, each.wall_ms)]
        rows.append((cell, *shown, f"{onnx.cpu_ms.median / torch.cpu_ms.median:.2f}"))
    header = ("cell", "torch, CPU ms/token", "wall", "onnx, CPU ms/token", "wall", "onnx / torch, CPU")
    show_table(f"Time of a drafted token, windows of {engines.WINDOW}", header, rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench edge", description=__doc__)
    add_config_options(parser)
    add = parser.add_argument
    add("--prefixes", type=positive_int, nargs="+", default=[128, 700], help="tokens before (default: %(default)s)")
    add("--clients", type=positive_int, nargs="+", default=[1, 4], help="at once (default: %(default)s)")
    add("--repeats", type=positive_int, default=5, help="of all (default: %(default)s)")
    add("--prompts", type=positive_int, default=64, help="whose responses are drafted along (default: %(default)s)")
    add("--install", action=argparse.BooleanOptionalAction, default=True, help="install the device's packages")
    add("--service", action="store_true", help="measure the embedded service in place of the engines")
    add("--windows", type=natural, nargs="+", default=[0, 2, 4], help="of that (default: %(default)s)")
    add("--tokens", type=positive_int, default=100, help="of a response of that (default: %(default)s)")
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    return parser
