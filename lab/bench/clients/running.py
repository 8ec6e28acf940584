"""Runs a client's script in its own process, and reads its rows."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.bench.clients.asking.checking import ROWS, Row
from lab.bench.clients.environments import Client

_ROOT = Path(__file__).parents[3]


def run_script(
    client: Client, command: Sequence[str], environment: Mapping[str, str], reports: Path, *, longest_s: float
) -> list[Row]:
    """Run a client's script and its children for at most ``longest_s``; return whatever it wrote.

    A script that does not complete has failed, in an extra row.
    """
    (reports / ROWS).unlink(missing_ok=True)
    process = subprocess.Popen(command, cwd=_ROOT, env=dict(environment), start_new_session=True)
    try:
        status = process.wait(longest_s)
        lack = f"ended with status {status}" if status else ""
    except subprocess.TimeoutExpired:
        lack = f"not at its end after {longest_s:g} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return read_rows(reports / ROWS, client, lack)


def read_rows(file: Path, client: Client, lack: str) -> list[Row]:
    """Read a script's rows; add one if it did not complete."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    rows = [Row(**json.loads(line)) for line in lines]
    return rows + ([Row(client.name, client.version, "the whole script", "failed", lack)] if lack else [])
