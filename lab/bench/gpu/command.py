"""``outrider bench gpu``: checks and costs on a GPU, in one command.

Parts run in processes of their own, as an error may destroy a process's device context:
``conformance`` (the engines' suites in float32 and bfloat16), ``noise`` (shared noise against numpy's bits),
``exactness`` (1,000 responses alone and in batches), ``passes`` (against reading their bytes once and plain
transformers), ``engines`` (a verifier's pass, a drafter's step, and their host syncs), ``vllm_engine`` and
``vllm_invariant`` (the vLLM engine, where the pinned vLLM is installed).

Weights are random and made on the card; nothing is downloaded. Exits with 1 on a forbidden difference, or if a part
crashed. Without an installed package: ``python -m lab.bench.gpu``.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from cluster.option_types import natural, new_file, positive_int
from lab.bench.gpu.machine import described
from lab.bench.gpu.setting import Found, Setting
from lab.reports.json_file import write_json
from outrider.documents.whole_file import write_whole

PARTS = ("conformance", "noise", "exactness", "passes", "engines", "vllm_engine", "vllm_invariant")
_ROOT = Path(__file__).parents[3]
_SAID = 4000  # characters of a part's output that are kept


def main(argv: Sequence[str]) -> None:
    args = _arguments(argv)
    setting = Setting(torch.device(args.device), small=args.small, seed=args.seed)
    if args.one is not None:
        torch.set_num_threads(1)
        found = import_module(f"lab.bench.gpu.{args.one}").run(setting)
        write_json(args.json, asdict(found))
        return
    machine, parts = described(setting.device), dict[str, Mapping[str, Any]]()
    for part in args.parts:
        print(f"{part} ...", flush=True)
        parts[part] = _in_its_process(part, args)
        text = markdown(machine, parts)
        if args.json is not None:
            write_json(args.json, {"machine": machine, "parts": parts})
        if args.markdown is not None:
            write_whole(args.markdown, text)
    print(markdown(machine, parts))
    faults = [f"{part}: {fault}" for part, found in parts.items() for fault in found["faults"]]
    if faults:
        sys.exit("\n".join(faults))


def _in_its_process(part: str, args: argparse.Namespace) -> Mapping[str, Any]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, "-m", "lab.bench.gpu", "--one", part, "--json", str(file), "--device", args.device]
        command += ["--seed", str(args.seed), *(["--small"] if args.small else [])]
        try:
            done = subprocess.run(
                command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=60 * args.minutes
            )
        except subprocess.TimeoutExpired:
            return asdict(Found((), (), {}, [f"needs at most {args.minutes} minutes"]))
        if file.exists():
            found: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return found
        said = (done.stdout + done.stderr)[-_SAID:]
        return asdict(Found((), (), {"said": said}, [f"ended with status {done.returncode}: {said[-300:]}"]))


def markdown(machine: Mapping[str, object], parts: Mapping[str, Mapping[str, Any]]) -> str:
    """The machine as a heading, then a table for each part."""
    lines = [f"## {machine['card']}, {machine['date']}", ""]
    lines += [f"- {name}: {_plain(value)}" for name, value in machine.items() if name not in ("card", "date")]
    for part, found in parts.items():
        lines += ["", f"### {part}", ""]
        if found["rows"]:
            lines += [_row(found["header"]), _row(["---"] * len(found["header"])), *map(_row, found["rows"])]
        lines += [f"\nFAULT: {fault}" for fault in found["faults"]]
    return "\n".join(lines) + "\n"


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="outrider bench gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="which (default: all)")
    add("--device", default="cuda", help="of torch (default: %(default)s)")
    add("--minutes", type=positive_int, default=10, help="of a part, at most (default: %(default)s)")
    add("--small", action="store_true", help="shapes that a processor computes in seconds")
    add("--seed", type=natural, default=0, help="of all that is random (default: %(default)s)")
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    add("--markdown", type=new_file, default=None, metavar="FILE", help="write the tables")
    add("--one", choices=PARTS, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one is None and args.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("needs a card and a CUDA build of torch, found none; --device cpu --small shows that it runs")
    return args
