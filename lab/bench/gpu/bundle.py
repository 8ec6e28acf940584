"""``make gpu-bundle``: this tree and its dependencies as a folder for a machine without network.

``FOLDER/run.sh`` unpacks the wheels beside the tree and runs the campaign there. The machine provides Python 3.12,
torch, transformers, numpy, numba, safetensors and pytest; wheels of the other imports are for Linux on x86-64. Files
that git ignores are left out.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from lab.bench.gpu.machine import pins_in

_ROOT = Path(__file__).parents[3]
_MOST_BYTES = 60 * 2**20
_PYTHON = "3.12"
_PLATFORMS = tuple(f"manylinux_{glibc}_x86_64" for glibc in ("2_34", "2_31", "2_28", "2_17"))
# With their dependencies, except what such a machine has or nothing here uses.
_WHEELS = (
    "annotated-types",
    "execnet",
    "filelock",
    "hypothesis",
    "jinja2",
    "llguidance",
    "markdown-it-py",
    "markupsafe",
    "mdurl",
    "packaging",
    "platformdirs",
    "pydantic",
    "pydantic-core",
    "pygments",
    "pytest-timeout",
    "pytest-xdist",
    "pyyaml",
    "rich",
    "scipy",
    "sortedcontainers",
    "tqdm",
    "typing-extensions",
    "typing-inspection",
)
_TAKEN = ("outrider", "cluster", "lab", "tests/unit", "tests/*.py", "pyproject.toml", "constraints.txt")
_LEFT = "outrider/models/weights/"  # 18 MB; the campaign's weights are random
_RUN = """#!/bin/sh
# Runs the campaign for cards; all arguments are its own (--help).
set -e
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -d "$here/site" ]; then
    for wheel in "$here"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$here/site"
    done
fi
cd "$here/tree"
PYTHONPATH="$here/tree:$here/site" exec python3 -m lab.bench.gpu "$@"
"""


def main() -> None:
    """Replace the folder; exit with 1 if it is larger than such a machine accepts."""
    [name] = sys.argv[1:]
    folder = Path(name)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tree").mkdir(parents=True)
    _copy_tree(folder / "tree")
    _fetch_wheels(folder / "wheels")
    run = folder / "run.sh"
    run.write_text(_RUN, encoding="utf-8")
    run.chmod(0o755)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 2**20:.1f} MiB; there: {folder.name}/run.sh --json gpu.json --markdown gpu.md")
    if size > _MOST_BYTES:
        sys.exit(f"needs at most {_MOST_BYTES / 2**20:.0f} MiB, found {size / 2**20:.1f}")


def _copy_tree(tree: Path) -> None:
    """Copy the tree as it is now, without what git ignores, and its commit."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", *_TAKEN)
    for file in filter(None, listed.split("\0")):
        if (_ROOT / file).is_file() and not file.startswith(_LEFT):
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(_ROOT / file, tree / file)
    (tree / "COMMIT").write_text(_git("describe", "--always", "--dirty", "--abbrev=12"), encoding="utf-8")


def _git(*arguments: str) -> str:
    command = ("git", "-C", str(_ROOT), *arguments)
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def _fetch_wheels(wheels: Path) -> None:
    pins = pins_in((_ROOT / "constraints.txt").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={_PYTHON}", "--dest", str(wheels)]
    command += [f"--platform={platform}" for platform in _PLATFORMS]
    subprocess.run([*command, *(f"{name}=={pins[name]}" for name in _WHEELS)], check=True)


if __name__ == "__main__":
    main()
