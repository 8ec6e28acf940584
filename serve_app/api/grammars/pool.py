"""A few processes that validate grammars, behind a queue that is fair between accounts.

Threads of the pool's own wait for the processes: the event loop never does, nor the executor in which prompts are
tokenised. A process that is killed when a grammar's time is used up, or that a grammar ends, is replaced by a warm one.
"""

import asyncio
import logging
import threading
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from outrider.contracts.errors import NotAdmittedError
from outrider.events import event
from outrider.fair_queueing.queue import FairQueue
from outrider.grammar.validating import GrammarSource, GrammarVerdict
from serve_app.api.grammars.process import Lost, ValidatorProcess
from serve_app.api.grammars.verdicts import VerdictCache, key_of

PROCESSES = 2
SPARES = 1
MAX_WAITING = 64  # different grammars of one account
MAX_WAITING_IN_ALL = 256  # 16 MiB of text at the default ``structured.max_schema_kib``
_CACHE_BYTES = 8 * 2**20
_GRACE_S = 0.05  # of processor time, beyond that to compile: for the messages

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Job:
    """One grammar of one account, and who waits for it."""

    account: str
    source: GrammarSource
    max_compile_s: float
    key: bytes
    waiters: list["Future[GrammarVerdict]"] = field(default_factory=list)


class GrammarPool:
    """Validates grammars. Nothing runs before the first one is asked for, or ``start``."""

    def __init__(self, processes: int = PROCESSES, spares: int = SPARES) -> None:
        """With ``processes`` at work at a time and ``spares`` that are warm."""
        self._processes, self._spares = processes, spares
        self._changed = threading.Condition()
        self._queue: FairQueue[_Job] = FairQueue(MAX_WAITING, MAX_WAITING_IN_ALL, max(processes - 1, 1))
        self._jobs: dict[bytes, _Job] = {}  # that wait or are under way
        self._verdicts = VerdictCache(_CACHE_BYTES)
        self._warm: deque[ValidatorProcess] = deque()  # oldest first
        self._busy: set[ValidatorProcess] = set()
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def start(self) -> None:
        """Start the processes; they warm up by themselves."""
        with self._changed:
            if self._is_closed or len(self._threads) == self._processes:
                return
            try:
                while len(self._warm) + len(self._busy) < self._processes + self._spares:
                    self._warm.append(ValidatorProcess())
            except OSError as error:
                _log_failure(error)  # later ones may start, and each job tries again
            while len(self._threads) < self._processes:
                thread = threading.Thread(target=self._work, name=f"grammars-{len(self._threads)}", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the machine has no room for it now
                    _log_failure(error)
                    if self._threads:
                        return
                    raise OSError("no thread can be started that validates grammars") from error
                self._threads.append(thread)

    def close(self) -> None:
        """End the processes; whoever waits is cancelled."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            waiters = [waiter for job in self._jobs.values() for waiter in job.waiters]
            self._jobs.clear()
            for process in self._busy:
                process.kill()
        for waiter in waiters:
            waiter.cancel()
        for thread in self._threads:
            thread.join()
        while self._warm:
            self._warm.popleft().close()

    @property
    def pids(self) -> list[int]:
        with self._changed:
            return sorted(process.pid for process in (*self._warm, *self._busy))

    async def validate(self, source: GrammarSource, max_compile_s: float, account: str) -> GrammarVerdict:
        """What is wrong with a grammar, or its text for verifiers.

        Raises:
            NotAdmittedError: too many of this account, or of all, wait.
            OSError: no process can be started.
        """
        future = self.submit(source, max_compile_s, account)
        return await asyncio.wrap_future(future)

    def submit(self, source: GrammarSource, max_compile_s: float, account: str) -> "Future[GrammarVerdict]":
        """Likewise, from any thread; whoever cancels it does not wait any more."""
        self.start()
        future: Future[GrammarVerdict] = Future()
        key = key_of(account, source)
        with self._changed:
            if (known := self._verdicts.get(key)) is not None:
                future.set_result(known)
                return future
            job = self._jobs.get(key)
            if job is None:
                job = _Job(account, source, max_compile_s, key)
                if not self._queue.put(account, job):
                    waiting = self._queue.waiting(account)
                    message = f"needs room to validate a grammar, found {waiting} waiting for this client; try again"
                    raise NotAdmittedError(message, retry_after_s=1)
                self._jobs[key] = job
                self._changed.notify()
            job.waiters.append(future)
        future.add_done_callback(lambda done: self._withdraw(job) if done.cancelled() else None)
        return future

    def _withdraw(self, job: _Job) -> None:
        with self._changed:
            if all(waiter.cancelled() for waiter in job.waiters) and self._jobs.get(job.key) is job:
                self._queue.remove(job.account, job)
                del self._jobs[job.key]

    def _work(self) -> None:
        """Of one thread: take a job, have a process do it, tell those who wait."""
        while (taken := self._take()) is not None:
            account, job = taken
            outcome: GrammarVerdict | Lost | Exception
            try:
                outcome = self._outcome(job)
            except Exception as error:  # noqa: BLE001 (told to those who wait)
                _log_failure(error)
                outcome = error
            try:
                self._end(job, outcome)
                self._refill()
            except Exception as error:  # noqa: BLE001 (whatever it is, others' grammars come next)
                _log_failure(error)
            finally:
                with self._changed:
                    self._queue.release(account)
                    self._changed.notify_all()

    def _take(self) -> tuple[str, _Job] | None:
        """The next job; None: there will be none."""
        with self._changed:
            while not self._is_closed:
                if (taken := self._queue.take()) is not None:
                    return taken
                self._changed.wait()
        return None

    def _outcome(self, job: _Job) -> GrammarVerdict | Lost:
        """Of a warm process; another one is asked if that one was lost by no fault of the grammar."""
        tries = self._processes + self._spares + 1
        for _ in range(tries):
            outcome = self._asked(job)
            if isinstance(outcome, GrammarVerdict) or self._is_closed:
                return outcome
            event(log, "grammar_process_replaced", logging.WARNING, reason=outcome.value)
            if outcome is not Lost.GONE:
                return outcome
        raise OSError(f"lost {tries} grammar validators by no fault of a grammar")

    def _asked(self, job: _Job) -> GrammarVerdict | Lost:
        with self._changed:
            process = self._warm.popleft() if self._warm else ValidatorProcess()
            self._busy.add(process)
        outcome: GrammarVerdict | Lost = Lost.GONE
        try:
            process.wait_until_warm()
            outcome = process.validate(job.source, job.max_compile_s + _GRACE_S)
        except OSError as error:
            event(log, "grammar_process_failed", logging.WARNING, reason=str(error))
        finally:
            if not isinstance(outcome, GrammarVerdict):
                process.close()
            with self._changed:
                self._busy.discard(process)
                if isinstance(outcome, GrammarVerdict):
                    self._warm.appendleft(process)
        return outcome

    def _refill(self) -> None:
        """Replace processes that were lost. The account whose grammars these had waits until their heirs are warm.

        Raises:
            OSError: one cannot be started now; behind the next job it is tried again.
        """
        while True:
            with self._changed:
                if self._is_closed or len(self._warm) + len(self._busy) >= self._processes + self._spares:
                    return
                process = ValidatorProcess()
                self._busy.add(process)
            is_warm = False
            try:
                process.wait_until_warm()
                is_warm = True
            finally:
                if not is_warm:
                    process.close()
                with self._changed:
                    self._busy.discard(process)
                    if is_warm:
                        self._warm.append(process)

    def _end(self, job: _Job, outcome: GrammarVerdict | Lost | Exception) -> None:
        with self._changed:
            if self._jobs.get(job.key) is job:
                del self._jobs[job.key]
            if isinstance(outcome, GrammarVerdict):
                self._verdicts.put(job.key, outcome)
        for waiter in job.waiters:
            with suppress(InvalidStateError):  # it was cancelled meanwhile
                if isinstance(outcome, Exception):
                    waiter.set_exception(outcome)
                else:
                    waiter.set_result(_of_lost(outcome, job.max_compile_s) if isinstance(outcome, Lost) else outcome)


def _log_failure(error: Exception) -> None:
    event(log, "grammar_process_failed", logging.ERROR, reason=str(error) or type(error).__name__)


def _of_lost(lost: Lost, max_compile_s: float) -> GrammarVerdict:
    if lost is Lost.DEADLINE:
        most = f"{max_compile_s * 1e3:g} ms of a processor"
        return GrammarVerdict(needed=f"to be compiled within {most}", found=f"one that takes more than {most}")
    return GrammarVerdict(needed="to be compiled within its memory", found="one that could not be")
