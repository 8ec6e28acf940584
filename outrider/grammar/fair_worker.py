"""One thread that works off tasks, those of accounts in turn."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


class FairWorker:
    """Runs tasks one after the other. Thread-safe. Its thread lives as long as there is something to do."""

    def __init__(self, name: str) -> None:
        """Nothing to do; ``name`` is the thread's."""
        self._name = name
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}  # by account, the next one first
        self._running = False

    def submit(self, task: Callable[[], _T], account: str) -> "Future[_T]":
        """Run a task behind its account's others. One that is cancelled before its turn is not run."""
        future: Future[_T] = Future()
        with self._lock:
            self._waiting.setdefault(account, deque()).append((future, task))
            begin, self._running = not self._running, True
        if begin:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return future

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            future, task = taken
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = task()
            except BaseException as error:  # noqa: BLE001 (told to whoever waits)
                future.set_exception(error)
            else:
                future.set_result(result)

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._lock:
            if not self._waiting:
                self._running = False
                return None
            account, tasks = next(iter(self._waiting.items()))
            del self._waiting[account]
            taken = tasks.popleft()
            if tasks:
                self._waiting[account] = tasks  # behind all others
            return taken
