"""Some of what ``make mutated`` sends, to a service that runs."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.long]

ROOT = Path(__file__).parents[2]
_WITHIN_S = 600


def test_a_service_takes_or_refuses_what_was_mutated_and_streams_beside_go_on() -> None:
    command = [sys.executable, "-m", "tests.chaos.mutated", "--messages", "1000", "--bodies", "80", "--giants", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "nobody was harmed" in done.stdout
