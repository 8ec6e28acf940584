"""The machine of a campaign: card, driver, versions, commit; and deviations from this project's pins."""

import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import torch

from lab.bench.harness.record import versions
from outrider import __version__
from outrider.costs.machine import hardware_name

_ROOT = Path(__file__).parents[3]
COMMIT = _ROOT / "COMMIT"  # of a bundle, which has no repository
_COMPARED = ("torch", "transformers", "numpy", "numba", "safetensors", "pydantic", "llguidance", "vllm", "ray")


def described(device: torch.device) -> dict[str, object]:
    installed = versions(_COMPARED)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "card": hardware_name(str(device)),
        "device": str(device),
        "driver": _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "none",
        "cuda": torch.version.cuda or "none",
        "python": platform.python_version(),
        "outrider": __version__,
        "commit": _commit(),
        "versions": installed,
        "pins left": left_pins((_ROOT / "constraints.txt").read_text(encoding="utf-8"), installed),
    }


def left_pins(constraints: str, installed: Mapping[str, str]) -> list[str]:
    """``name 1.0, pinned 2.0`` of each package that is installed in another version than pinned."""
    pinned = pins_in(constraints)
    return [
        f"{name} {found}, pinned {pinned[name]}"
        for name, found in installed.items()
        if name in pinned and found.partition("+")[0] != pinned[name].partition("+")[0]
    ]


def pins_in(constraints: str) -> dict[str, str]:
    """Pinned versions by normalised name, as in pip's index."""
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", constraints, re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in pins}


def _commit() -> str:
    if COMMIT.exists():
        return COMMIT.read_text(encoding="utf-8").strip()
    return _said("git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12") or "unknown"


def _said(*command: str) -> str:
    """First line of a command's output; empty if it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except OSError:
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""
