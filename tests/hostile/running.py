"""Runs cases one by one against a service, with a well-behaved client beside, and measures what each costs."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.hostile.cases import Case, Target, driven
from tests.hostile.measures import Beside, Notes, Usage, alive
from tests.hostile.promises import TIMES, Family, Figure, broken_promises
from tests.hostile.raw_http import CLOSED, SILENT, Answer
from tests.hostile.service import KEYS, ROOT, Service

_MEASURED = ("ingress", "coordinator", "fleet", "verifier", "gateway")
_CALM_WITHIN_S, _CALM_WAIT_S = 60.0, 0.03
_BACK_WITHIN_S = 90.0
_IDLE_FOR_S = 15.0
_NICE = 5
_HOPELESS = 8  # times the bound: then it was no chance
_TRIES = 3  # of a case that breaks promises of time alone: what a busy machine caused does not come again


@dataclass(frozen=True, slots=True)
class Result:
    """One case.

    Attributes:
        figures: held against the promises.
        cpu_s: of processor time, by kind of process: what does not hang on who else uses the machine.
        late_s: how late the client beside was woken at worst: what the machine itself adds to each wait.
        wrong: what is not as it has to be, a line each.
    """

    family: Family
    name: str
    answer: Answer
    figures: dict[Figure, float]
    cpu_s: dict[str, float]
    lasted_s: float
    late_s: float
    tokens_per_s: float
    tries: int
    wrong: tuple[str, ...] = ()

    @property
    def cost(self) -> tuple[int, float]:
        """What cases are compared by."""
        return len(self.wrong), sum(self.figures.get(figure, 0.0) for figure in TIMES)


@dataclass(slots=True)
class Campaign:
    """Cases against one service."""

    service: Service
    busy: bool
    results: list[Result] = field(default_factory=list)
    restarts: int = 0
    _notes: Notes | None = None
    _idle_cpu: float = 0.0  # share of a processor that the ingress uses for the client beside
    _idle_silence_s: float = 0.0  # the longest of its streams while nobody is hostile
    _hostile: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, initializer=_give_way))

    def run(self, cases: Sequence[Case], until_s: float) -> int:
        """As many as there is time for; how many."""
        done = 0
        for case in cases:
            if time.monotonic() > until_s or self.service.killed_for_memory > 5:
                break
            result = self.one(case)
            self.results.append(result)
            print(_line(result), flush=True)
            done += 1
        return done

    def one(self, case: Case) -> Result:
        """A case, again if nothing but time was broken; the best of its tries."""
        best: Result | None = None
        for tried in range(1, _TRIES + 1):
            self._calm()
            result = self._measured(case, tried)
            if best is None or result.cost < best.cost:
                best = result
            if not self._by_time_alone(result):
                break
        assert best is not None, "tried once at least"
        return best

    def _by_time_alone(self, result: Result) -> bool:
        promises = broken_promises(result.family, result.figures, busy=self.busy)
        by_time = [promise for promise in promises if promise.figure in TIMES]
        bearable = all(result.figures[each.figure] < _HOPELESS * each.most(busy=self.busy) for each in by_time)
        return bool(by_time) and len(by_time) == len(result.wrong) and bearable

    def _measured(self, case: Case, tried: int) -> Result:
        before = {kind: list(self.service.pids(kind)) for kind in _MEASURED}
        usage = {kind: Usage(pids) for kind, pids in before.items()}
        target = Target(self.service.port, self.service)
        began_s = time.monotonic()
        answer = self._hostile.submit(asyncio.run, driven(case, target)).result()
        ended_s = time.monotonic()
        self._settle(ended_s)
        watched_until_s = max(ended_s, min(time.monotonic(), ended_s + 1.0))
        cpu_s = {kind: round(each.cpu_s, 3) for kind, each in usage.items()}
        growth = {kind: round(each.growth_mib, 1) for kind, each in usage.items()}
        lost = [f"{kind} {pid}" for kind, pids in before.items() for pid in pids if not alive(pid)]
        seen = self._seen(began_s, watched_until_s)
        target.figures |= _figures(answer, seen, growth, len(lost), self._idle_silence_s)
        own_s = self._idle_cpu * (time.monotonic() - began_s)
        target.figures[Figure.INGRESS_CPU_S] = max(0.0, round(cpu_s["ingress"] - own_s, 3))
        wrong = [*target.wrong, *(f"ended: {each}" for each in lost)]
        if not case.may_fail and (answer.status == 0 or answer.status >= 500):
            wrong.append(f"answered with {answer.status or answer.code} {answer.detail}")
        wrong += [
            f"{promise.what}: {target.figures[promise.figure]:.2f}, promised {promise.most(busy=self.busy):g}"
            for promise in broken_promises(case.family, target.figures, busy=self.busy)
            if promise.figure is not Figure.LOST
        ]
        wrong += [f"beside: {each}" for each in seen.broken[:2]]
        if lost:
            self._bring_back()
        return Result(
            case.family, case.name, answer, target.figures, cpu_s, round(ended_s - began_s, 3), seen.late_s,
            round(seen.tokens_per_s, 1), tried, tuple(wrong),
        )  # fmt: skip

    def _seen(self, began_s: float, ended_s: float) -> Beside:
        assert self._notes is not None, "a client runs beside"
        return self._notes.between(began_s, ended_s)

    def _settle(self, since_s: float) -> None:
        """Wait until the others have got on, so that a wait under way is known to its end."""
        assert self._notes is not None, "a client runs beside"
        give_up_at_s = time.monotonic() + _CALM_WITHIN_S
        while not self._notes.settled(since_s) and time.monotonic() < give_up_at_s:
            time.sleep(_CALM_WAIT_S)

    def _calm(self) -> None:
        """Before a case nothing of the last one may be under way."""
        self.service.bound()
        self._settle(time.monotonic())

    def _bring_back(self) -> None:
        if not self.service.whole_again(_BACK_WITHIN_S):
            print("the service does not come back; it is started anew", flush=True)
            self.restarts += 1
            self.service.restart()
        self._settle(time.monotonic())

    @contextlib.contextmanager
    def beside(self, key: str = KEYS["alice"]) -> Iterator[None]:
        """Run the well-behaved client while the block is open."""
        path = self.service.layout.folder / "beside.txt"
        path.write_text("")
        command = [sys.executable, "-m", "tests.hostile.beside", str(self.service.port), key, str(path)]
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
        self._notes = Notes(path)
        try:
            self._settle(time.monotonic())
            usage, began_s = Usage(self.service.pids("ingress")), time.monotonic()
            time.sleep(_IDLE_FOR_S)
            self._idle_cpu = usage.cpu_s / (time.monotonic() - began_s)
            seen = self._seen(began_s, time.monotonic())
            self._idle_silence_s = max(0.0, seen.silence_s - seen.late_s)
            print(f"undisturbed, a stream is silent for at most {self._idle_silence_s:.2f} s", flush=True)
            yield
        finally:
            process.kill()
            process.wait()
            self._notes.close()
            self._notes = None


def _give_way() -> None:
    """Hostile clients would be elsewhere: here they take what the service leaves of the processors."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def _figures(
    answer: Answer, seen: Beside, growth: dict[str, float], lost: int, idle_silence_s: float
) -> dict[Figure, float]:
    """Waits are told less what the machine added to all of them, a stream's silence less what it has undisturbed."""
    figures = {
        Figure.LOOP_S: max(0.0, round(seen.loop_s - seen.late_s, 3)),
        Figure.SILENCE_S: max(0.0, round(seen.silence_s - seen.late_s - idle_silence_s, 3)),
        Figure.FIRST_TOKEN_S: round(seen.first_token_s, 3),
        Figure.BROKEN: float(len(seen.broken)),
        Figure.INGRESS_MIB: growth["ingress"],
        Figure.COORDINATOR_MIB: growth["coordinator"],
        Figure.FLEET_MIB: growth["fleet"],
        Figure.GATEWAY_MIB: growth["gateway"],
        Figure.LOST: float(lost),
    }
    if answer.refused and answer.code not in (CLOSED, SILENT):
        figures[Figure.REFUSED_S] = round(answer.answered_s, 3)
    return figures


def as_data(result: Result) -> dict[str, Any]:
    """For JSON."""
    data = asdict(result)
    return data | {"figures": {str(figure): value for figure, value in result.figures.items()}}


def _line(result: Result) -> str:
    told = result.answer
    figures = result.figures
    seen = (
        f"loop {figures[Figure.LOOP_S]:.2f} s, silence {figures[Figure.SILENCE_S]:.2f} s, "
        f"first {figures[Figure.FIRST_TOKEN_S]:.2f} s, +{figures[Figure.INGRESS_MIB]:.0f} MiB, "
        f"cpu {result.cpu_s['ingress']:.2f} s, late {result.late_s:.2f} s"
    )
    head = f"{'BROKEN ' if result.wrong else ''}{result.family} | {result.name}"
    answered = f"{told.status or told.code} {told.code if told.status else ''} in {told.answered_s:.2f} s"
    return f"{head}: {answered}; {seen}" + "".join(f"\n    {line}" for line in result.wrong)
