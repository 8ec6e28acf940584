"""A wheel of a checkout: all that is there, nothing that is gone, and nothing left behind."""

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from tests.unit.deployment.manifests import ROOT

PACKAGES = ("outrider", "actors", "serve_app", "cluster", "edge")
GONE = "outrider/fair_queueing/queue.py"


def modules_of(wheel: Path) -> set[str]:
    with ZipFile(wheel) as opened:
        return {name for name in opened.namelist() if name.endswith(".py")}


def test_a_module_that_is_gone_is_in_no_later_wheel(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in PACKAGES:
        left_out = shutil.ignore_patterns("__pycache__", "*.safetensors", "wheel")
        shutil.copytree(ROOT / name, tree / name, ignore=left_out)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    before = set(tree.rglob("*"))
    made = []
    for turn in ("first", "second"):
        folder = tmp_path / turn
        build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
        subprocess.run([*build, "."], cwd=tree, check=True, capture_output=True, timeout=120)
        made.append(modules_of(next(folder.glob("outrider-*.whl"))))
        assert set(tree.rglob("*")) == before, "nothing is left in the checkout"
        if turn == "first":
            (tree / GONE).unlink()
            before.remove(tree / GONE)
    first, second = made
    assert {str(path.relative_to(tree)) for path in before if path.suffix == ".py"} - {"setup.py"} == second
    assert first - second == {GONE}
