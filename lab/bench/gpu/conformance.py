"""The engines' conformance suites on the device, by pytest, in float32 and bfloat16."""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

from lab.bench.gpu.setting import Found, Setting

DEVICE_VARIABLE = "OUTRIDER_TEST_DEVICE"  # read by tests/unit/engines/conftest.py
_SUITES = ("verifier", "drafter", "torch")
_FEW = ("verifier/test_conformance.py",)
_ROOT = Path(__file__).parents[3]
_SHOWN = 200


def run(setting: Setting) -> Found:
    """Run the suites and count outcomes; names of failed tests are figures."""
    suites = [f"tests/unit/engines/{one}" for one in (_FEW if setting.small else _SUITES)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        chosen = [] if find_spec("vllm") else ["-k", "not vllm"]  # its suite needs an installed vLLM
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *chosen]
        environment = os.environ | {DEVICE_VARIABLE: str(setting.device)}
        done = subprocess.run(
            [*command, *suites], cwd=_ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if not report.exists():
            return Found(
                ("status",),
                [(done.returncode,)],
                {"output": done.stdout[-4000:] + done.stderr[-4000:]},
                ["did not run"],
            )
        outcomes = list(_outcomes(report))
    counts = Counter(outcome for _, outcome, _ in outcomes)
    failed = [f"{name}: {text}" for name, outcome, text in outcomes if outcome == "failed"]
    header = ("passed", "failed", "skipped")
    row = tuple(counts[name] for name in header)
    figures: dict[str, object] = {**{name: counts[name] for name in header}, "failures": failed}
    return Found(header, [row], figures, [f"{len(failed)} tests failed"] if failed else [])


def _outcomes(report: Path) -> "list[tuple[str, str, str]]":
    """Name, outcome and first words of the failure of each test."""
    found = []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 (written by pytest just now)
        name, outcome, text = f"{case.get('classname')}::{case.get('name')}", "passed", ""
        for child in case:
            if child.tag in ("failure", "error"):
                outcome, text = "failed", (child.get("message") or "")[:_SHOWN]
            elif child.tag == "skipped":
                outcome = "skipped"
        found.append((name, outcome, text))
    return found
