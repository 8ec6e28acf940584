"""A short campaign of fixed seeds, as ``make chaos`` runs long ones: a process of its own, in a network of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.long]

ROOT = Path(__file__).parents[2]
_WITHIN_S = 900


OTHERS = ("llama3_json", "pythonic", "qwen3_xml", "mistral", "mistral_list", "harmony")


@pytest.mark.parametrize(
    ("seed", "form", "agents"),
    [("7", "hermes", "half"), *(("10", form, "all") for form in OTHERS)],
)
def test_nobody_else_is_harmed(tmp_path: Path, seed: str, form: str, agents: str) -> None:
    small = ("--tokens", "28", "--prompts", "2", "--sampling-seeds", "1", "--shrink-tries", "0", "--streams", "4", "6")
    command = [sys.executable, "-m", "tests.chaos", "--layout", "one_door", *small, "--report", str(tmp_path)]
    done = subprocess.run(
        [*command, "--seeds", seed, "--form", form, "--agents", agents],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=_WITHIN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    tried = {row["fault"]: row for row in report["faults"]}
    assert len(report["schedules"]) == 3, "without a fault, all agents, and this one"
    for victim in ("drafter", "verifier", "coordinator"):
        assert tried[f"kill {victim}"]["effective"] >= 1, done.stdout
