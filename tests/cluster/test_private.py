"""The embedded cluster listens on this machine alone, and keeps its files to its user."""

import ipaddress
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import ray

from tests.cluster.served import Service
from tests.hostile.measures import descendants

_LISTEN = "0A"  # in /proc/net/tcp
_PROC = Path("/proc")


def test_nothing_listens_beyond_this_machine(service: Service) -> None:
    """Of all processes of the tree: Ray's servers, agents and workers, Serve's proxies, and the ingress."""
    sockets = dict(listening())
    found = {
        (name_of(process), str(sockets[inode]))
        for process in (service.pid, *descendants(service.pid))
        for inode in inodes_of(process)
        if inode in sockets
    }
    assert {"gcs_server", "raylet"} <= {name for name, _ in found}
    assert [pair for pair in sorted(found) if not ipaddress.ip_address(pair[1]).is_loopback] == []


def test_folders_and_token_are_the_users_alone(service: Service) -> None:
    del service
    folder = Path(ray.get_runtime_context().get_temp_dir()).parent
    assert folder.name == f"outrider-{os.getuid()}"
    for path in (folder, Path.home() / ".ray" / "auth_token"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def listening() -> Iterator[tuple[str, ipaddress.IPv4Address | ipaddress.IPv6Address]]:
    """Inodes of all listening TCP sockets of this machine, with their addresses."""
    for table in ("tcp", "tcp6"):
        for line in (_PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            words = re.findall("........", fields[1].partition(":")[0])  # each in the machine's byte order
            address = b"".join(int(word, 16).to_bytes(4, "little") for word in words)
            if fields[3] == _LISTEN:
                found = ipaddress.ip_address(address)
                yield fields[9], getattr(found, "ipv4_mapped", None) or found


def inodes_of(process: int) -> Iterator[str]:
    """Of the sockets that it has open."""
    try:
        for descriptor in (_PROC / str(process) / "fd").iterdir():
            if match := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                yield match[1]
    except OSError:  # it has ended meanwhile
        return


def name_of(process: int) -> str:
    """As the kernel names its command."""
    return (_PROC / str(process) / "comm").read_text(encoding="utf-8").strip()
