"""What a drafter's device imports (a contract in ``pyproject.toml``) needs none of a cluster's libraries."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.budgets import ROOT

CONTRACT = "A drafter's device needs no torch, Ray, pydantic or transformers"
PACKAGES = ("numpy", "onnxruntime", "websockets")
IMPORT_ALL = """
import importlib, pkgutil, sys
without, modules = sys.argv[1].split(","), sys.argv[2:]
sys.modules.update(dict.fromkeys(without))  # importing any of these is an ImportError
for name in modules:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), name + "."):
        importlib.import_module(found.name)
print(len(sys.modules))
"""


def device_contract() -> dict[str, list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found: dict[str, list[str]] = next(each for each in contracts if each["name"] == CONTRACT)
    return found


def import_all(python: str | Path, without: str) -> None:
    command = [str(python), "-c", IMPORT_ALL, without, *device_contract()["source_modules"]]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not ended.returncode, ended.stderr
    assert int(ended.stdout) > 100


def test_a_devices_modules_are_imported_where_nothing_else_can_be() -> None:
    import_all(sys.executable, ",".join(device_contract()["forbidden_modules"]))


@pytest.mark.long
def test_a_devices_modules_are_imported_where_nothing_else_is_installed(tmp_path: Path) -> None:
    """In a fresh virtual environment: some 17 s, of which 7 s of a core."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    python = tmp_path / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--only-binary", ":all:"]
    subprocess.run([*install, *PACKAGES], check=True, capture_output=True)
    import_all(python, "")
    listed = subprocess.run([*install[:5], "list", "--format=freeze"], check=True, capture_output=True, text=True)
    assert len(listed.stdout.split()) <= 8, listed.stdout
