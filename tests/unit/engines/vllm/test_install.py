"""A missing, broken or wrong vLLM is named, with what to install instead."""

import subprocess
import sys
from pathlib import Path

import pytest

from outrider.contracts.errors import EngineUnavailableError
from outrider.engines.vllm.install import SUPPORTED_VERSION, check_install, check_installed

REPORT = """
import sys
from outrider.engines.vllm import install
from outrider.contracts.errors import EngineUnavailableError
{before}
try:
    print("served by", install.{check}())
except EngineUnavailableError as error:
    print(error)
"""


def report(check: str, before: str = "") -> str:
    """What a check says in a process of its own, after ``before``."""
    script = REPORT.format(check=check, before=before)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip().splitlines()[-1]


def test_the_installed_one_is_the_supported_one() -> None:
    assert check_installed() == SUPPORTED_VERSION
    assert check_install("cpu") == SUPPORTED_VERSION


def test_one_made_for_another_device_is_refused() -> None:
    with pytest.raises(EngineUnavailableError, match=r"on device 'cuda' needs a vLLM made for it, found .* for 'cpu'"):
        check_install("cuda")


@pytest.mark.parametrize("check", ["check_install", "check_installed"])
def test_a_missing_one_is_named_with_what_to_install(check: str) -> None:
    found = report(check, "sys.path[:] = [path for path in sys.path if 'site-packages' not in path]")
    assert "needs vLLM, found none installed" in found
    assert "outrider[vllm]" in found
    assert "make vllm-cpu" in found


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise OSError('libcudart.so.13: cannot open')", "fails to import: OSError: libcudart.so.13"),
        ("import no_such_dependency", "fails to import: ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("__version__ = '9.9.1+cu130'\nEngineArgs = SamplingParams = TokensPrompt = 1", "found 9.9.1 without LLM"),
    ],
)
def test_a_broken_or_foreign_one_is_named(tmp_path: Path, source: str, message: str) -> None:
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text(source)
    found = report("check_install", f"sys.path.insert(0, {str(tmp_path)!r})")
    assert message in found
    assert f"vllm {SUPPORTED_VERSION}" in found
