"""Slow, lossy and cut links between processes of one machine: the kernel's own queues on a loopback of our own.

The whole cluster runs in a network namespace (``enter``), so that nobody else's traffic is touched. What goes to or
from a process's ports is classified by ``tc``: into a class of a low rate, or into a hole, all of it or every eighth
packet (by its IP identification, which counts up along a connection). The kernel counts what went through and what was
dropped.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from tests.chaos.schedules import FaultKind

_IN_NAMESPACE = "OUTRIDER_CHAOS_NAMESPACE"
_SLOW_RATE = "300kbit"
_EVERY_EIGHTH = ("match", "u16", "0x0003", "0x0007", "at", "4")  # never 0, which a connection's first packet has
_LISTENS, _ESTABLISHED = "0A", "01"


def enter(argv: list[str]) -> str:
    """Run this command again in a network namespace of its own, where that can be done; else say why not."""
    if os.environ.get(_IN_NAMESPACE):
        return ""
    lacking = [name for name in ("tc", "ip", "unshare") if shutil.which(name) is None]
    if lacking:
        return f"lacks {', '.join(lacking)}"
    namespace = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    tried = subprocess.run([*namespace, "sh", "-c", _SETUP], capture_output=True, text=True, check=False, timeout=30)
    if tried.returncode:
        return f"no network namespace with queues: {tried.stderr.strip()[:200]}"
    command = [*namespace, "sh", "-c", f'{_SETUP} && exec "$@"', "sh", sys.executable, *argv]
    os.environ[_IN_NAMESPACE] = "1"
    sys.stdout.flush()
    os.execvp(command[0], command)  # noqa: S606 (takes this process's place)
    raise AssertionError("not reached")


_SETUP = "ip link set lo up && tc qdisc add dev lo root handle 1: htb"


def die_with_parent() -> None:
    """Be killed when whoever started this process is: nobody else ends what runs in its namespace."""
    death_signal, sigterm = 1, 15
    ctypes.CDLL(None, use_errno=True).prctl(death_signal, sigterm)


class Loopback:
    """The links of this namespace."""

    def __init__(self) -> None:
        self._numbers, self._lock = count(10), Lock()

    @staticmethod
    def available() -> bool:
        """Whether this process is in a namespace that ``enter`` has made."""
        return bool(os.environ.get(_IN_NAMESPACE))

    @contextmanager
    def impaired(self, kind: FaultKind, ports: Collection[int]) -> Iterator["Impaired"]:
        """Impair what goes to and from these ports while the block is open."""
        with self._lock:
            number = next(self._numbers)
            rate = _SLOW_RATE if kind is FaultKind.SLOW else "1gbit"
            _tc("class", "add", "dev", "lo", "parent", "1:", "classid", f"1:{number:x}", "htb", "rate", rate)
            if kind is FaultKind.SLOW:
                _tc("qdisc", "add", "dev", "lo", "parent", f"1:{number:x}", "pfifo", "limit", "1000")
            else:
                _tc("qdisc", "add", "dev", "lo", "parent", f"1:{number:x}", "blackhole")
            only = _EVERY_EIGHTH if kind is FaultKind.LOSSY else ()
            for port in ports:
                for way in ("dport", "sport"):
                    matched = ("match", "ip", way, str(port), "0xffff", *only)
                    _tc(*_filter("add", number), "u32", *matched, "flowid", f"1:{number:x}")
        try:
            yield Impaired(kind, f"{number:x}")
        finally:
            with self._lock:
                if ports:
                    _tc(*_filter("del", number))
                _tc("qdisc", "del", "dev", "lo", "parent", f"1:{number:x}")
                _tc("class", "del", "dev", "lo", "classid", f"1:{number:x}")


class Impaired:
    """Links that are impaired now."""

    def __init__(self, kind: FaultKind, handle: str) -> None:
        self._kind, self._handle = kind, handle

    def packets(self) -> int:
        """That were dropped, or of slow links went through."""
        shown: list[dict[str, Any]] = json.loads(_tc("-s", "-j", "qdisc", "show", "dev", "lo"))
        queue = next(each for each in shown if each.get("parent") == f"1:{self._handle}")
        return int(queue["packets"] if self._kind is FaultKind.SLOW else queue["drops"])


def _filter(verb: str, number: int) -> tuple[str, ...]:
    return ("filter", verb, "dev", "lo", "parent", "1:", "protocol", "ip", "prio", str(number))


def _tc(*arguments: str) -> str:
    command = ["tc", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def ports_of(pid: int) -> frozenset[int]:
    """Where a process listens, and its ends of connections that are open: what is sent to it, or by it."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = link.readlink()
        except OSError:  # closed meanwhile
            continue
        if str(target).startswith("socket:["):
            inodes.add(str(target)[8:-1])
    return frozenset(port for port, _, inode in tcp_sockets() if inode in inodes)


def tcp_sockets(*states: str) -> Iterator[tuple[int, int, str]]:
    """Local port, remote port and inode of sockets that listen or are connected."""
    wanted = states or (_LISTENS, _ESTABLISHED)
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] in wanted:
                yield int(fields[1].rpartition(":")[2], 16), int(fields[2].rpartition(":")[2], 16), fields[9]


def connections_to(port: int) -> int:
    """Clients that are connected to a port."""
    return sum(local == port for local, _, _ in tcp_sockets(_ESTABLISHED))
