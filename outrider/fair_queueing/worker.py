"""Run tasks on threads, with accounts in turn."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from outrider.fair_queueing.queue import FairQueue

_IDLE_S = 10.0  # until a thread ends: starting one costs more than most tasks, and delays the submitter

_STACK_SIZE = threading.Lock()  # the setting is the process's
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedTask:
    run: Callable[[], Any]
    future: "Future[Any]"


@contextmanager
def stack_size(stack_bytes: int) -> Iterator[None]:
    """Start threads with stacks of this size; 0: of the system's."""
    with _STACK_SIZE:
        before = threading.stack_size(stack_bytes)
        try:
            yield
        finally:
            threading.stack_size(before)


class FairWorker:
    """Runs tasks in fair order. Thread-safe. Its threads end some seconds after the last task."""

    def __init__(self, name: str, threads: int = 1, stack_bytes: int = 0) -> None:
        """Start without threads. If ``threads`` > 1, an account may occupy all but one; 0: the system's stack size."""
        self._name, self._threads, self._stack_bytes = name, threads, stack_bytes
        self._lock = threading.Condition()
        self._waiting: FairQueue[_QueuedTask] = FairQueue(
            sys.maxsize, sys.maxsize, max(threads - 1, 1)
        )  # whoever submits has bounds
        self._running = self._idle = 0

    def submit(self, task: Callable[[], _T], account: str) -> "Future[_T]":
        """Queue a task, which may be cancelled before its turn; ``RuntimeError`` if no more threads start."""
        future: Future[_T] = Future()
        with self._lock:
            self._waiting.put(account, _QueuedTask(task, future))
            begin = self._idle < len(self._waiting) and self._running < self._threads
            self._running += begin
            self._lock.notify()
        if begin:
            try:
                with stack_size(self._stack_bytes):
                    threading.Thread(target=self._run, name=self._name, daemon=True).start()
            except RuntimeError:
                with self._lock:
                    self._running -= 1
                future.cancel()
                raise
        return future

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            self._do(*taken)
            del taken  # frees what the task holds while this thread waits

    def _do(self, account: str, task: _QueuedTask) -> None:
        if task.future.set_running_or_notify_cancel():
            try:
                result = task.run()
            except BaseException as error:  # noqa: BLE001 (told to whoever waits)
                task.future.set_exception(error)
            else:
                task.future.set_result(result)
        with self._lock:
            self._waiting.release(account)

    def _next(self) -> tuple[str, _QueuedTask] | None:
        with self._lock:
            notified = True
            while (taken := self._waiting.take()) is None and notified:
                self._idle += 1
                notified = self._lock.wait(_IDLE_S)
                self._idle -= 1
            self._running -= taken is None
            return taken
