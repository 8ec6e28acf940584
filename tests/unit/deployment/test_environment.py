"""``make`` finds a Python that Outrider takes, or has uv bring one, or says what is needed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.deployment.manifests import ROOT

REAL = ["make", "sh", "cat", "chmod", "dirname", "grep", "mkdir", "test", "touch"]
PYTHON = """#!/bin/sh
case "$1 $2" in
"-c import ensurepip"*) exit {fits} ;;
"-m venv") mkdir -p "$3/bin" && printf '#!/bin/sh\\n' > "$3/bin/pip" && chmod +x "$3/bin/pip"; echo "made by {name}" ;;
*) echo "Python of {name}" ;;
esac
"""
UV = """#!/bin/sh
for last; do :; done
mkdir -p "$last/bin" && printf '#!/bin/sh\\n' > "$last/bin/pip" && chmod +x "$last/bin/pip"; echo "made by uv $*"
"""


def made(
    folder: Path, *pythons: str, unfit: tuple[str, ...] = (), uv: bool = False, named: str = ""
) -> tuple[int, str]:
    """Exit status and output of ``make install`` on a machine with these programs and no network."""
    programs = folder / "bin"
    programs.mkdir()
    for name in REAL:
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    texts = {name: PYTHON.format(name=name, fits=int(name in unfit)) for name in (*pythons, *unfit)}
    for name, text in {**texts, **({"uv": UV} if uv else {})}.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    command = ["make", "--no-print-directory", "-C", str(ROOT), "install", f"VENV={folder}/venv"]
    done = subprocess.run(
        [*command, *([f"PYTHON={named}"] if named else [])],
        env={"PATH": str(programs), "HOME": os.environ["HOME"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("python", ["python3.11", "python3.12", "python3.13", "python3.14"])
def test_any_python_that_the_package_takes_will_do(tmp_path: Path, python: str) -> None:
    status, said = made(tmp_path, python, unfit=("python3",))
    assert (status, f"made by {python}" in said) == (0, True), said


def test_debians_own_is_found_by_its_plain_name(tmp_path: Path) -> None:
    status, said = made(tmp_path, "python3")
    assert (status, "made by python3\n" in said) == (0, True), said


def test_the_version_of_the_pins_is_preferred(tmp_path: Path) -> None:
    status, said = made(tmp_path, "python3", "python3.13", "python3.11")
    assert (status, "made by python3.11" in said) == (0, True), said


def test_uv_brings_one_where_there_is_none(tmp_path: Path) -> None:
    status, said = made(tmp_path, unfit=("python3",), uv=True)
    assert (status, "made by uv venv --seed --python 3.11" in said) == (0, True), said


@pytest.mark.parametrize(("unfit", "named"), [(("python3",), ""), ((), ""), (("mine",), "mine")])
def test_without_either_it_is_said_what_is_needed(tmp_path: Path, unfit: tuple[str, ...], named: str) -> None:
    status, said = made(tmp_path, unfit=unfit, uv=bool(named), named=named)
    assert status != 0
    assert "needs Python 3.11 to 3.14 with venv, found" in said
    assert f"Python of {unfit[0]}" in said if unfit else "not found" in said
    assert "apt install python3-venv) or uv, or say where it is: make PYTHON=" in said


def test_an_environment_that_is_there_is_kept(tmp_path: Path) -> None:
    pip = tmp_path / "venv" / "bin" / "pip"
    pip.parent.mkdir(parents=True)
    pip.write_text("#!/bin/sh\necho kept\n", encoding="utf-8")
    pip.chmod(0o755)
    status, said = made(tmp_path)
    assert (status, "kept" in said) == (0, True), said
