"""Strikes a service with one fault after the other's fashion, and proves that each took effect."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.draining import drained, running_gateways
from tests.chaos.judging import Struck
from tests.chaos.links import Loopback, ports_of
from tests.chaos.processes import becomes, continued, gone, killed, pids_of, stopped
from tests.chaos.schedules import FAULTS, Fault, FaultKind, Target, Victim
from tests.cluster.served import Service

_FIRST_WITHIN_S = 2.0  # that a fault of an engine or a link waits for somebody to meet it, past its own end
_BACK_WITHIN_S = 120.0
_LINK_FAULTS = frozenset({FaultKind.SLOW, FaultKind.LOSSY, FaultKind.PARTITION})
Act = Callable[[], str]  # does something; how it is known that it took effect, empty if it did not


class Injector:
    """Strikes one service."""

    def __init__(
        self,
        service: Service,
        folder: Path,
        loopback: Loopback | None,
        update: Act | None,
        restart: Act | None = None,
        *,
        over_ray: bool = True,
    ) -> None:
        """What cannot be done here is None.

        Args:
            service: to be struck.
            folder: by which planted faults are told and tell (``planted/sitecustomize.py``).
            loopback: its links.
            update: brings up another version of the application.
            restart: kills Ray's head and starts it again.
            over_ray: coordinators and verifiers speak by Ray alone, over links that can be struck.
        """
        self._service, self._folder, self._loopback = service, folder, loopback
        self._update, self._restart = update, restart
        self._over_ray = over_ray

    def targets(self) -> tuple[Target, ...]:
        """What can be done here."""
        return tuple(target for target in FAULTS if self._can(*target))

    def _can(self, kind: FaultKind, victim: Victim) -> bool:
        if kind is FaultKind.UPDATE:
            return self._update is not None
        if kind is FaultKind.RESTART:
            return self._restart is not None
        if kind is FaultKind.DRAIN:
            return len(running_gateways(self._service)) > 1
        if kind in _LINK_FAULTS and (self._loopback is None or (victim is Victim.VERIFIER and not self._over_ray)):
            return False
        return bool(pids_of(self._service, victim))

    def strike(self, fault: Fault) -> Struck:
        """Do it, wait as long as it lasts, mend it."""
        act = {FaultKind.UPDATE: self._update, FaultKind.RESTART: self._restart}.get(fault.kind)
        if act is not None:
            at_s = time.monotonic()
            return Struck(fault, at_s, time.monotonic(), act())
        if fault.kind is FaultKind.DRAIN:
            at_s = time.monotonic()
            found = drained(self._service, fault.which, _BACK_WITHIN_S)
            return Struck(fault, at_s, time.monotonic(), found, moot=not found)
        pid = self._victim(fault)
        at_s = time.monotonic()
        if pid is None:
            return Struck(fault, at_s)
        if fault.kind is FaultKind.KILL:
            found = _of_living(killed, pid)
            return Struck(fault, at_s, at_s, found, moot=not found and gone(pid))
        with self._lasting(fault, pid) as proof:
            time.sleep(fault.lasts_s)
            found = proof()
            # A device that has just been cut off, or left by its gateway, has no connection that could be cut.
            dials = fault.victim is Victim.DEVICE and fault.kind in _LINK_FAULTS
            moot = not found and (dials or gone(pid))
        return Struck(fault, at_s, time.monotonic(), found, moot)

    def _victim(self, fault: Fault) -> int | None:
        """One that runs; after a fault of the same burst there may be none until it is back."""
        found: list[int] = []

        def some() -> bool:
            found[:] = pids_of(self._service, fault.victim)
            return bool(found)

        return found[fault.which % len(found)] if becomes(some, _BACK_WITHIN_S) else None

    @contextmanager
    def _lasting(self, fault: Fault, pid: int) -> Iterator[Act]:
        """A fault that is there while the block is open; what is yielded tells, while it is, whether it took effect."""
        if fault.kind is FaultKind.STOP:
            proof = _of_living(stopped, pid)
            try:
                yield lambda: proof
            finally:
                continued(pid)
        elif fault.kind in _LINK_FAULTS:
            assert self._loopback is not None, "drawn only where it can be done"
            try:
                ports = ports_of(pid)
            except OSError:
                ports = frozenset()
            with self._loopback.impaired(fault.kind, ports) as links:
                yield lambda: self._met(links.packets, "packets met it", pid)
        else:
            wanted, noted = ("hang", "hung") if fault.kind is FaultKind.HANG else ("lie", "lies")
            order, note = self._folder / f"{wanted}-{pid}", self._folder / f"{noted}-{pid}"
            before = _size(note)
            order.touch()
            try:
                yield lambda: self._met(lambda: _size(note) - before, "times", pid)
            finally:
                order.unlink(missing_ok=True)

    def _met(self, times: Callable[[], int], unit: str, pid: int) -> str:
        """Wait a little longer where nobody has met it yet."""
        becomes(lambda: times() > 0 or gone(pid), _FIRST_WITHIN_S)
        return f"process {pid}: {times()} {unit}" if times() else ""


def _of_living(act: Callable[[int], str], pid: int) -> str:
    """Another fault may have been faster: then there is nothing to do."""
    try:
        return act(pid)
    except ProcessLookupError:
        return ""


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def told_faults(targets: Sequence[Target]) -> str:
    """What is left out on this machine, in a line; empty if nothing is."""
    missing = [f"{kind} {victim}" for kind, victim in FAULTS if (kind, victim) not in targets]
    return f"not possible here: {', '.join(missing)}" if missing else ""
