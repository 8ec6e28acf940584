"""A few processes that validate grammars, behind a queue that is fair between accounts.

The pool's own threads wait for the processes, so that neither the event loop nor the executor that tokenises prompts
does. A process that exceeds a grammar's time limit is killed; it is replaced by a warm one, as is one that crashes.
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
MAX_WAITING = 64  # distinct grammars of one account
MAX_WAITING_IN_ALL = 256  # 16 MiB of text at ``StructuredLimits.max_bytes``
_CACHE_BYTES = 8 * 2**20
_GRACE_S = 0.05  # of CPU time, for the messages, on top of the time to compile

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Job:
    """One grammar of one account, and the futures that wait for it."""

    account: str
    source: GrammarSource
    max_compile_s: float
    key: bytes
    waiters: list["Future[GrammarVerdict]"] = field(default_factory=list)


class GrammarPool:
    """Validates grammars. Starts nothing before ``start`` or the first grammar."""

    def __init__(self, processes: int = PROCESSES, spares: int = SPARES) -> None:
        """``processes`` work at a time; ``spares`` more are kept warm."""
        self._processes, self._spares = processes, spares
        self._changed = threading.Condition()
        self._queue: FairQueue[_Job] = FairQueue(MAX_WAITING, MAX_WAITING_IN_ALL, max(processes - 1, 1))
        self._jobs: dict[bytes, _Job] = {}  # waiting or in progress
        self._verdicts = VerdictCache(_CACHE_BYTES)
        self._warm: deque[ValidatorProcess] = deque()  # oldest first
        self._busy: set[ValidatorProcess] = set()
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def start(self) -> None:
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
                except RuntimeError as error:  # the machine has no resources for it now
                    _log_failure(error)
                    if self._threads:
                        return
                    raise OSError("no thread can be started that validates grammars") from error
                self._threads.append(thread)

    def close(self) -> None:
        """End the processes and cancel all waiting futures."""
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
        """Return a grammar's error, or its text for verifiers.

        Raises:
            NotAdmittedError: too many grammars of this account, or of all, wait.
            OSError: no process can be started.
        """
        future = self.submit(source, max_compile_s, account)
        return await asyncio.wrap_future(future)

    def submit(self, source: GrammarSource, max_compile_s: float, account: str) -> "Future[GrammarVerdict]":
        """As ``validate``, from any thread; cancelling the future stops waiting."""
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
                    message = f"needs a place in the grammar queue, found {waiting} waiting for this client; try again"
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
        """Loop of one thread: take a job, run it in a process, resolve its futures."""
        while (taken := self._take()) is not None:
            account, job = taken
            outcome: GrammarVerdict | Lost | Exception
            try:
                outcome = self._outcome(job)
            except Exception as error:  # noqa: BLE001 (passed to the waiting futures)
                _log_failure(error)
                outcome = error
            try:
                self._end(job, outcome)
                self._refill()
            except Exception as error:  # noqa: BLE001 (whatever it is, other grammars come next)
                _log_failure(error)
            finally:
                with self._changed:
                    self._queue.release(account)
                    self._changed.notify_all()

    def _take(self) -> tuple[str, _Job] | None:
        """Return the next job; None when the pool is closed."""
        with self._changed:
            while not self._is_closed:
                if (taken := self._queue.take()) is not None:
                    return taken
                self._changed.wait()
        return None

    def _outcome(self, job: _Job) -> GrammarVerdict | Lost:
        """Run a job in a warm process, and in another one if that is lost through no fault of the grammar."""
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
        """Replace lost processes. The account whose grammars lost them waits until the replacements are warm."""
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
            with suppress(InvalidStateError):  # cancelled meanwhile
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
