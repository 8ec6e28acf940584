"""``outrider bench clients``: third-party clients against a running service, each doing what its users do.

Each client is installed, in pinned versions, into its own environment. Tool calls need a service that knows its model's
form: start the embedded one with ``--set structured.tool_format=hermes``. Exits with 1 if anything failed.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import httpx

from cluster.option_types import new_file, new_folder
from lab.bench.clients.asking.checking import KEY, SINGLE_KEY, Asked, Row
from lab.bench.clients.environments import CLIENTS, Client, home_of
from lab.bench.clients.running import run_script
from lab.bench.harness.record import write_record
from outrider.models.embedded import outrider_home
from outrider.models.folders import resolve_folder

_LONGEST_S = 1800.0


def main(argv: Sequence[str]) -> None:
    """Run the clients; print and save the outcome of each check."""
    parser = argparse.ArgumentParser(prog="outrider bench clients", description=__doc__)
    add, names = parser.add_argument, [client.name for client in CLIENTS]
    add("--url", default="http://127.0.0.1:8000", help="of the service (default: %(default)s)")
    add("--clients", nargs="+", choices=names, default=names, help="default: all")
    add("--single-key", default="", help="an API key with concurrent_responses: 1, to test the answer above that limit")
    add("--tokenizer", default="embedded", help="the model's, for clients that count tokens (default: %(default)s)")
    add("--environments", type=Path, default=outrider_home() / "clients", help="folder for them (default: %(default)s)")
    add("--reports", type=new_folder, default=None, metavar="FOLDER", help="keep what the clients themselves report")
    add("--json", type=new_file, default=None, metavar="FILE", help="write every row")
    add("--markdown", type=new_file, default=None, metavar="FILE", help="write the table")
    args = parser.parse_args(argv)
    key = os.environ.get(KEY, "")
    model = _model(args.url, key)
    asked = Asked(f"{args.url}/v1", model, key, args.single_key, str(resolve_folder(args.tokenizer)))
    rows = list[Row]()
    with tempfile.TemporaryDirectory() as scratch:
        for client in CLIENTS:
            if client.name in args.clients:
                home = home_of(client, args.environments)
                rows += _asked(client, home, asked, (args.reports or Path(scratch)) / client.name)
                _keep(args, model, rows)  # after each client, so that an interrupt loses one
    print(as_table(rows))
    sys.exit(exit_status(rows))


def as_table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| client | version | done | outcome | told |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        told = row.told.replace("|", "\\|")
        lines.append(f"| {row.client} | {row.version} | {row.done} | {row.outcome} | {told} |")
    return "\n".join(lines) + "\n"


def exit_status(rows: Sequence[Row]) -> int:
    """1 if anything failed, or nothing ran."""
    return int(not rows or any(row.outcome == "failed" for row in rows))


def _asked(client: Client, home: Path, asked: Asked, reports: Path) -> list[Row]:
    whom = ["--url", asked.url, "--model", asked.model, "--tokenizer", asked.tokenizer]
    modules = {"NODE_PATH": str(home / "node_modules")}
    own = modules | {KEY: asked.key, SINGLE_KEY: asked.single_key, "HF_HOME": str(home / "huggingface")}
    reports.mkdir(parents=True, exist_ok=True)
    command = [*client.command(home), *whom, "--reports", str(reports)]
    return run_script(client, command, os.environ | own, reports, longest_s=_LONGEST_S)


def _keep(args: argparse.Namespace, model: str, rows: Sequence[Row]) -> None:
    shown = {name: value for name, value in vars(args).items() if name != "single_key"}
    if args.json is not None:
        write_record(args.json, {**shown, "model": model}, {"rows": [asdict(row) for row in rows]})
    if args.markdown is not None:
        args.markdown.write_text(as_table(rows), encoding="utf-8")


def _model(url: str, key: str) -> str:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    answer = httpx.get(f"{url}/v1/models", headers=headers, timeout=60).raise_for_status()
    return str(answer.json()["data"][0]["id"])
