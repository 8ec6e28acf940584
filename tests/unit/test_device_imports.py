import subprocess
import sys
import tomllib

from tests.budgets import ROOT

CONTRACT = "What a drafter's device imports needs numpy alone"
IMPORT_ALL = """
import importlib, pkgutil, sys
without, modules = sys.argv[1].split(","), sys.argv[2:]
sys.modules.update(dict.fromkeys(without))  # importing any of these is an ImportError
for name in modules:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), name + "."):
        importlib.import_module(found.name)
"""


def device_contract() -> dict[str, list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found: dict[str, list[str]] = next(each for each in contracts if each["name"] == CONTRACT)
    return found


def test_devices_modules_are_imported_without_torch_and_ray() -> None:
    contract = device_contract()
    without = ",".join(contract["forbidden_modules"])
    command = [sys.executable, "-c", IMPORT_ALL, without, *contract["source_modules"]]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not ended.returncode, ended.stderr
