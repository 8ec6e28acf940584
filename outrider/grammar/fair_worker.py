"""One thread that works off tasks, those of accounts in turn."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from outrider.grammar.fair_queue import FairQueue

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    run: Callable[[], Any]
    future: "Future[Any]"


class FairWorker:
    """Runs tasks one after the other. Thread-safe. Its thread lives as long as there is something to do."""

    def __init__(self, name: str) -> None:
        """Nothing to do; ``name`` is the thread's."""
        self._name = name
        self._lock = threading.Lock()
        self._waiting: FairQueue[_Task] = FairQueue(sys.maxsize, sys.maxsize, max_taken=1)  # whoever submits has bounds
        self._running = False

    def submit(self, task: Callable[[], _T], account: str) -> "Future[_T]":
        """Run a task behind its account's others. One that is cancelled before its turn is not run."""
        future: Future[_T] = Future()
        with self._lock:
            self._waiting.put(account, _Task(task, future))
            begin, self._running = not self._running, True
        if begin:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return future

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            account, task = taken
            if task.future.set_running_or_notify_cancel():
                try:
                    result = task.run()
                except BaseException as error:  # noqa: BLE001 (told to whoever waits)
                    task.future.set_exception(error)
                else:
                    task.future.set_result(result)
            with self._lock:
                self._waiting.release(account)

    def _next(self) -> tuple[str, _Task] | None:
        with self._lock:
            taken = self._waiting.take()
            self._running = taken is not None
            return taken
