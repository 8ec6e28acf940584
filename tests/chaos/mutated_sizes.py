"""Replies of devices that are of no honest size: read in this process, and sent to a service that runs.

The service's part: a device's process is replaced by one that answers one of its methods with too much. It is to be
taken out with the reason, while the fleet answers, and memory and log of fleet and coordinators stay as they are.
"""

import contextlib
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from outrider.wire.replies import DrafterCard, UnreadableReplyError, holding, holding_bytes, read_reply, reply_bytes
from tests.chaos.giant import Case, Giant
from tests.chaos.mutated_live import Tried
from tests.cluster.served import Service, eventually

ITEMS = (0, 1, 10**5, 10**7)
METHODS = ("card", "prove", "open", "exchange", "probe", "held", "close", "forget")
_MOST_HELD = 128  # of a group of 32 generations
_PEAK_BYTES = 2**20
_ASKED_BYTES = 2**16  # of an answer that is read: what a round asked for
_WITHIN_S = 180.0
_STATUS_S = 10.0  # of the fleet's answer: an order of magnitude above a busy machine's
_GROWN_BYTES = 100 * 2**20
_LOG_BYTES = 2**20  # a case
_LIVE_METHODS = ("held", "card", "exchange", "open")
_REASONS = ("needs a reply of at most", "needs a reply in plain bytes", "needs a list of generations", "needs at most")


CASES = tuple(Case(method, items) for method in METHODS for items in (*ITEMS, None))


def sizes() -> list[str]:
    """Read every case as fleet and coordinators do; what is wrong."""
    return [f"{case}: {wrong}" for case in CASES if (wrong := _read(case))]


def _read(case: Case) -> str:
    data = memoryview(case.data())
    most = _ASKED_BYTES if case.method in ("exchange", "probe") else reply_bytes(case.method)
    if case.method == "held":
        most = holding_bytes(_MOST_HELD)
    tracemalloc.start()
    began_s = time.thread_time()
    try:
        reply = read_reply(data, most)
        if case.method == "held":
            holding(reply, _MOST_HELD)
        refused = False
    except UnreadableReplyError:
        refused = True
    finally:
        spent_s, peak_bytes = time.thread_time() - began_s, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    if peak_bytes > _PEAK_BYTES or spent_s > 1.0:
        return f"took {spent_s:.3f} s of the loop and {peak_bytes} bytes"
    return "" if refused == (len(data) > most) else f"refused: {refused}, of {len(data)} bytes"


def live(service: Service, number: int) -> Tried:
    """Some cases at a service that runs and makes responses, one drafter's process after another replaced."""
    tried = Tried()
    cases = [Case(method, items) for items in (10**5, None, 10**7) for method in _LIVE_METHODS][:number]
    name = next(each["name"] for each in service.drafters("ready"))
    card = ray.get(service.drafter(name).card.remote(), timeout=_WITHIN_S)
    for case in cases:
        tried.kinds[case.method] += 1
        tried.wrong += [f"{case}: {wrong}" for wrong in _meet(service, name, card, case)]
        with contextlib.suppress(ValueError):
            if _is_here(service, name, case):
                ray.kill(service.drafter(name), no_restart=True)
        eventually(lambda: name in {each["name"] for each in service.drafters("ready")}, _WITHIN_S)
    return tried


def _meet(service: Service, name: str, card: DrafterCard, case: Case) -> Iterator[str]:
    """Put the giant in the drafter's place until it is told why it was taken out; what is wrong."""
    pids = [pid for kind in ("FleetActor", "ServeReplica:outrider:Coordinator") for pid in service.pids(kind)]
    memory_before, log_before = {pid: _resident_bytes(pid) for pid in pids}, _log_bytes(service)
    told_before, slowest_s = _told(service, name), 0.0
    give_up_at_s = time.monotonic() + _WITHIN_S
    while _told(service, name) == told_before:
        if not _is_here(service, name, case):
            _move_in(service, name, card, case)
        began_s = time.monotonic()
        service.get("/status")
        slowest_s = max(slowest_s, time.monotonic() - began_s)
        if began_s > give_up_at_s:
            yield "it was not taken out"
            break
        time.sleep(0.2)
    if slowest_s > _STATUS_S:
        yield f"the fleet took {slowest_s:.1f} s to answer"
    for pid, before in memory_before.items():
        if (grown := _resident_bytes(pid) - before) > _GROWN_BYTES:
            yield f"process {pid} grew by {grown} bytes"
    if (written := _log_bytes(service) - log_before) > _LOG_BYTES:
        yield f"{written} bytes of log"


def _move_in(service: Service, name: str, card: DrafterCard, case: Case) -> None:
    with contextlib.suppress(ValueError):
        ray.kill(service.drafter(name), no_restart=True)
    giant: Any = ray.remote(Giant).options(
        name=name, namespace=service.config.cluster.namespace, lifetime="detached", num_cpus=0, get_if_exists=True
    )
    giant.remote(card, case)


def _is_here(service: Service, name: str, case: Case) -> bool:
    try:
        found: object = ray.get(service.drafter(name).which.remote(), timeout=_WITHIN_S)
    except (RayError, ValueError, AttributeError):  # it was stopped, or a genuine one is in its place
        return False
    return found == case


def _told(service: Service, name: str) -> int:
    """How often it was said of a drafter that it sends what cannot be read."""
    told = service.events("drafter_refused", "drafter_given_up", drafter=name)
    return sum(any(reason in each["reason"] for reason in _REASONS) for each in told)


def _resident_bytes(pid: int) -> int:
    """Of a process alone: what it shares is the object store's."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * 4096


def _log_bytes(service: Service) -> int:
    return sum(file.stat().st_size for file in service.logs.glob("worker*.err"))
