"""``outrider bench wire-bits``: what an exchange between coordinator and drafter costs on the interface.

Payload bits are what the protocols encode; wire bits are what a network carries for them: Ray's RPC framing and actor
call records, TCP acknowledgements, IP and Ethernet headers. Measured between two network namespaces: a private Ray
head in the machine's own, a worker node in another behind a veth pair, an echo actor on the worker. The interface's
byte counters are read before the calls and some seconds after; traffic without calls over as long a time is taken
off. Segments are those of a 1500-byte network (offloads are off: a counter would see one header for many packets).
Needs root on Linux, iproute2 and ethtool.
"""

import argparse
import logging
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ray

from outrider.contracts.errors import ConfigError

_HEAD_IP, _WORKER_IP, _PREFIX = "10.213.57.1", "10.213.57.2", 30
_ALIVE_DEADLINE_S = 60.0
_CALL_DEADLINE_S = 60.0
_STOP_DEADLINE_S = 20.0
_SETTLE_S = 6.0  # what Ray reports of calls follows within seconds, and belongs to them


class Answer(NamedTuple):
    """What the drafter's side returns: bytes, and the seconds it took."""

    data: bytes
    busy_s: float


class Echo:
    """A drafter's side without a drafter."""

    def exchange(self, generation: str, data: bytes, answer_bytes: int) -> Answer:
        """Answer with so many bytes; ``data`` and ``generation`` are only carried."""
        del generation, data
        return Answer(os.urandom(answer_bytes), 0.0)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes on the interface, headers of Ethernet and above included."""

    down_bytes: int  # to the worker
    up_bytes: int

    def minus(self, other: "Traffic") -> "Traffic":
        """What came on top of ``other``."""
        return Traffic(self.down_bytes - other.down_bytes, self.up_bytes - other.up_bytes)


def main(argv: Sequence[str]) -> None:
    """Run the bench and print its table."""
    parser = argparse.ArgumentParser(prog="outrider bench wire-bits", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 64, 1000, 100_000], help="bytes each way")
    parser.add_argument("--calls", type=int, default=2000, help="exchanges of each size")
    args = parser.parse_args(argv)
    missing = [tool for tool in ("ip", "ethtool") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        found = f"without {', '.join(missing)}" if missing else f"user id {os.geteuid()}"
        raise ConfigError("wire-bits", "root on Linux with ip and ethtool installed", found)
    with _two_nodes() as interface:
        echo = ray.remote(Echo).options(num_cpus=0, resources={"far": 1}).remote()
        print(f"{args.calls} exchanges of each size; bits per exchange")
        print(f"{'payload':>10} {'down wire':>10} {'up wire':>10} {'down extra':>10} {'up extra':>10} {'ms':>8}")
        for size in args.sizes:
            down, up, took_s = _per_exchange(interface, echo, size, args.calls)
            bits = (8 * size, 8 * down, 8 * up, 8 * (down - size), 8 * (up - size))
            print(" ".join(f"{value:>10.0f}" for value in bits), f"{took_s * 1e3:>8.2f}", flush=True)


def _per_exchange(interface: str, echo: Any, size: int, calls: int) -> tuple[float, float, float]:
    """Bytes down, bytes up and seconds of one exchange, without what is on the link anyway."""

    def exchange() -> None:
        reference = echo.exchange.remote(_generation_id(), os.urandom(size), size)
        answer: Answer = ray.get(reference, timeout=_CALL_DEADLINE_S)
        assert len(answer.data) == size

    for _ in range(20):  # connections, and the actor's first calls
        exchange()
    time.sleep(_SETTLE_S)
    began_at_s = time.monotonic()
    before = _counters(interface)
    for _ in range(calls):
        exchange()
    took_s = time.monotonic() - began_at_s
    time.sleep(_SETTLE_S)
    busy = _counters(interface).minus(before)
    before = _counters(interface)
    time.sleep(took_s + _SETTLE_S)
    net = busy.minus(_counters(interface).minus(before))
    return net.down_bytes / calls, net.up_bytes / calls, took_s / calls


def _generation_id() -> str:
    """As long as a real one: it is part of every call."""
    return secrets.token_hex(16)


def _counters(interface: str) -> Traffic:
    """Of the head's end: what it sends goes down to the worker."""
    folder = Path("/sys/class/net", interface, "statistics")
    return Traffic(int((folder / "tx_bytes").read_text()), int((folder / "rx_bytes").read_text()))


@contextmanager
def _two_nodes() -> Iterator[str]:
    """Run a head here and a worker behind a veth pair; yields the name of the head's end."""
    tag = secrets.token_hex(3)
    namespace, near, far = f"outrider-{tag}", f"orh-{tag}", f"orw-{tag}"
    inside = ("ip", "netns", "exec", namespace)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with ExitStack() as stack:
        _run("ip", "netns", "add", namespace)
        stack.callback(_run, "ip", "netns", "delete", namespace)  # and with it the veth pair
        _run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", namespace)
        for prefix, end, address in (((), near, _HEAD_IP), (inside, far, _WORKER_IP)):
            _run(*prefix, "ip", "address", "add", f"{address}/{_PREFIX}", "dev", end)
            _run(*prefix, "ip", "link", "set", end, "up")
            _run(*prefix, "ethtool", "-K", end, "tso", "off", "gso", "off", "gro", "off")
        _run(*inside, "ip", "link", "set", "lo", "up")
        stack.callback(ray.shutdown)
        ray.init(
            address="local",
            _node_ip_address=_HEAD_IP,
            num_cpus=1,
            object_store_memory=100 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        # The head has written the token that its nodes need, and set the mode for processes started from here.
        worker = subprocess.Popen(
            [
                *(*inside, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"),
                *(f"--address={ray.get_runtime_context().gcs_address}", f"--node-ip-address={_WORKER_IP}"),
                *('--resources={"far": 1}', f"--object-store-memory={100 * 2**20}"),
            ],
            env=os.environ | {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"},  # nothing there is worth waiting for
            stdout=subprocess.DEVNULL,
        )
        stack.callback(worker.wait, _STOP_DEADLINE_S)
        stack.callback(worker.terminate)
        nodes: Any = ray.nodes  # untyped
        _await(lambda: sum(node["Alive"] for node in nodes()) == 2, "the worker node to join")
        yield near


def _await(ready: Callable[[], bool], what: str) -> None:
    give_up_at_s = time.monotonic() + _ALIVE_DEADLINE_S
    while not ready():
        if time.monotonic() > give_up_at_s:
            raise ConfigError("wire-bits", f"{what} within {_ALIVE_DEADLINE_S:g} s", "it did not")
        time.sleep(0.1)


def _run(*command: str) -> None:
    """Run a tool that must succeed; what it complains about is shown."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
