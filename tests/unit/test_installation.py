"""Another distribution's ``actors`` or ``cluster`` is named instead of failing somewhere within it."""

import os
import sys
from pathlib import Path
from subprocess import run

import pytest

from outrider.installation import check_packages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["actors", "cluster", "edge", "serve_app"])
def test_a_package_that_hides_ours_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    metadata = tmp_path / "other-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (metadata / "RECORD").write_text(f"{name}/__init__.py,,\n")
    program = "import sys; from outrider.installation import main; sys.exit(main())"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    ended = run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"needs outrider's own package {name!r} in {ROOT}, found {tmp_path}" in ended.stderr
    assert "of other" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_application_that_serve_imports_refuses_as_well(tmp_path: Path) -> None:
    (tmp_path / "actors.py").write_text("")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", "import serve_app.app"]
    ended = run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "InstallationError: needs outrider's own package 'actors'" in ended.stderr


def test_our_own_packages_are_found() -> None:
    check_packages()
