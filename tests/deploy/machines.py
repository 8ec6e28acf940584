"""Machines of a test's own on this one: namespaces with a network, files, processes and an ssh server of their own.

A machine has its own /etc, home, /tmp and /run over those of the host (what it writes is gone with it), and sees no
process but its own: ``ray stop`` there ends what runs there. All are on the switch of the first one, the operator's.
Needs root, and sshd.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.deploy.conftest import ROOT

_UP_WITHIN_S = 30.0
_NETWORK = "192.0.2"  # for documentation (RFC 5737): nobody's
_BINARIES = Path(sys.executable).parent
_COVERED = ("etc", "root")
_UNSHARE = shutil.which("unshare") or "unshare"
_BOOT = f"""
set -eu
mount --make-rprivate /
cd "$1"
mount --bind {ROOT} checkout
for name in {" ".join(_COVERED)}; do
    mount -t overlay overlay -o "lowerdir=/$name,upperdir=$1/$name,workdir=$1/$name-work" "/$name"
done
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /run/sshd {ROOT}
mountpoint -q {ROOT} || mount --bind checkout {ROOT}
exec /usr/sbin/sshd -D -e -f "$1/sshd_config"
"""
_SSHD = """
ListenAddress 0.0.0.0
HostKey {folder}/host_key
AuthorizedKeysFile {keys}
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
MaxStartups 100
MaxSessions 100
"""
_OUTRIDER_ENV = f"""
export PATH={_BINARIES}:/usr/sbin:$PATH
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=/etc/outrider/token
export RAY_USAGE_STATS_ENABLED=0 RAY_enable_autoscaler_v2=0
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 NO_COLOR=1
"""


class Machine:
    """One of them, from its start until its power is cut."""

    def __init__(self, address: str, folder: Path, public_key: Path, files: Mapping[str, str]) -> None:
        """Begin to boot, with these files in /etc/outrider; what it wrote before its power was cut is there again."""
        self.address, self.folder = address, folder
        for name in (*(f"{each}{more}" for each in _COVERED for more in ("", "-work")), "checkout"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if not (folder / "host_key").exists():
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key"))
        for name, text in files.items():
            file = folder / "etc" / "outrider" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
            file.chmod(0o600)
        (folder / "root" / ".bash_profile").write_text(". /etc/outrider/env\n", encoding="utf-8")
        (folder / "sshd_config").write_text(_SSHD.format(folder=folder, keys=public_key), encoding="utf-8")
        spaces = ("--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc")
        with (folder / "console.log").open("ab") as log:
            self._process = subprocess.Popen(
                (_UNSHARE, *spaces, "bash", "-c", _BOOT, "boot", str(folder)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._first_child()  # its first process, as this machine's kernel numbers it

    def _first_child(self) -> int:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        give_up_at_s = time.monotonic() + _UP_WITHIN_S
        while not (found := children.read_text(encoding="ascii").split()):
            assert time.monotonic() < give_up_at_s, "a namespace did not start"
            time.sleep(0.01)
        return int(found[0])

    def network(self, *command: str) -> None:
        """Run a command of the host in its network."""
        _run("nsenter", f"--target={self.pid}", "--net", *command)

    def run(self, *command: str, timeout_s: float = 300.0, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a command there, with the environment that its operator gives to each."""
        done = subprocess.run(
            self.command(*command),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def command(self, *command: str) -> tuple[str, ...]:
        """What runs a command there."""
        enter = ("nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--ipc", "--uts", f"--wd={ROOT}")
        clean = ("env", "-i", f"PATH={os.environ['PATH']}", "HOME=/root", "USER=root", "LANG=C.UTF-8")
        return (*enter, *clean, "sh", "-c", '. /etc/outrider/env && exec "$@"', "sh", *command)

    def programs(self) -> list[str]:
        """What runs there beside its ssh server."""
        listed = self.run("ps", "-eo", "args=").stdout.splitlines()
        return [line for line in listed if "sshd" not in line and not line.startswith(("ps ", "sh -c"))]

    def cut(self) -> None:
        """Cut its power."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=30)


class Machines:
    """A switch with machines."""

    def __init__(self, folder: Path) -> None:
        """Boot the operator's machine; ``folder`` is nowhere in what machines have of their own."""
        self.folder, self._token = folder, secrets.token_hex(32)
        self.key = folder / "key"
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        self._booted: dict[int, Machine] = {}
        self.operator = self._boot(1, {})
        for arguments in (("add", "switch", "type", "bridge"), ("set", "switch", "up"), ("set", "lo", "up")):
            self.operator.network("ip", "link", *arguments)
        self.operator.network("ip", "address", "add", f"{_NETWORK}.1/24", "dev", "switch")

    def boot(self, host: int, files: Mapping[str, str] = MappingProxyType({})) -> Machine:
        """A machine with these files in /etc/outrider; the same one again if its power was cut."""
        machine = self._boot(host, files)
        port = f"to-{host}"
        self.operator.network("sh", "-c", f"ip link delete {port} 2>&1 || true")  # what is left of it before
        ends = ("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid))
        self.operator.network("ip", *ends)
        self.operator.network("ip", "link", "set", port, "master", "switch", "up")
        machine.network("ip", "link", "set", "lo", "up")
        machine.network("ip", "address", "add", f"{machine.address}/24", "dev", "eth0")
        machine.network("ip", "link", "set", "eth0", "up")
        machine.network("ip", "route", "add", "default", "via", f"{_NETWORK}.1")
        return machine

    def at(self, host: int) -> Machine:
        """The one with this number in its address."""
        return self._booted[host]

    def _boot(self, host: int, files: Mapping[str, str]) -> Machine:
        files = {"env": _OUTRIDER_ENV, "token": self._token, **files}
        machine = Machine(f"{_NETWORK}.{host}", self.folder / str(host), self.key.with_suffix(".pub"), files)
        self._booted[host] = machine
        return machine

    def cut(self) -> None:
        """Cut the power of all."""
        for machine in reversed(self._booted.values()):
            machine.cut()


@contextmanager
def machines() -> Iterator[Machines]:
    """Machines that go with the block."""
    folder = Path(tempfile.mkdtemp(prefix="outrider-machines-", dir="/var/tmp"))
    made = Machines(folder)
    try:
        yield made
    finally:
        made.cut()
        shutil.rmtree(folder, ignore_errors=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
