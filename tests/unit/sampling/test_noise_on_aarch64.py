"""The noise of an ARM processor, by Debian's own Python for it under qemu: the same bits as here."""

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.budgets import ROOT

PACKAGES = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "zlib1g", "libexpat1"),
    *("libssl3", "libffi8", "liblzma5", "libbz2-1.0", "libuuid1", "libstdc++6", "libgcc-s1"),
)
CHECK = """
import platform
from outrider.sampling.noise_check import check_noise
check_noise()
print(platform.machine())
"""


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("apt-get") is None or platform.freedesktop_os_release().get("VERSION_ID") != "12",
    reason="needs Debian 12's packages",
)
def test_an_arm_processor_makes_the_same_noise(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for package in (*(f"{name}:arm64" for name in PACKAGES), "qemu-user-static:amd64"):
        fetch(tmp_path, package)
    for file in tmp_path.glob("*.deb"):
        run("dpkg-deb", "-x", str(file), str(root))
    pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(tmp_path))
    run(*pip, "--platform=manylinux_2_28_aarch64", "--python-version=3.11", "numpy==2.3.5")
    (wheel,) = tmp_path.glob("numpy-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "packages")
    environment = {"PYTHONPATH": f"{tmp_path / 'packages'}:{ROOT}", "PYTHONHOME": str(root / "usr")}
    emulated = (str(root / "usr/bin/qemu-aarch64-static"), "-L", str(root), str(root / "usr/bin/python3.11"))
    assert run(*emulated, "-c", CHECK, variables=environment).strip() == "aarch64"


def fetch(folder: Path, package: str) -> None:
    """Download a package into ``folder``, of lists of its own: the machine's name its own processor alone."""
    state = folder / "apt"
    options = [f"Dir::State={state}", f"Dir::State::status={state / 'status'}", f"Dir::Cache={state / 'cache'}"]
    options += ["APT::Architectures::=amd64", "APT::Architectures::=arm64", "APT::Sandbox::User=root"]
    apt = ["apt-get", "-q", *(f"-o{option}" for option in options)]
    if not state.exists():
        (state / "lists" / "partial").mkdir(parents=True)
        (state / "cache" / "archives" / "partial").mkdir(parents=True)
        (state / "status").touch()
        run(*apt, "update")
    run(*apt, "download", package, cwd=folder)


def run(*command: str, cwd: Path | None = None, variables: dict[str, str] | None = None) -> str:
    """Return the output of a command that has to succeed."""
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=cwd, env={**os.environ, **(variables or {})}
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout
