"""The other ranks of a tensor-parallel group: processes that make the same calls at the same time. Free of vLLM.

Ranks meet in collectives in every pass. If one dies there, the others wait in a collective that no exception can leave.
A watching thread then ends this process if its call does not return; its owner starts another one.
"""

import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from typing import Any

from outrider.contracts.errors import VerifierLostError
from outrider.events import event

_LOG = logging.getLogger(__name__)
_CALL_DEADLINE_S = 300.0  # far above any pass
GRACE_S = 10.0  # for a call to fail by itself after a follower died
_END_S = 5.0  # for a follower to end by itself after its pipe is closed
LOST_EXIT = 70  # EX_SOFTWARE

Answer = Callable[[str, Sequence[Any], dict[str, Any]], object]


class Followers:
    """Processes that answer every call of this one, in order."""

    def __init__(self, prepare: Callable[..., Answer], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Start a process for each of ``arguments``; it calls ``prepare(*arguments)``, whose result handles its calls.

        Collect their first answers with ``beside``: they report that ``prepare`` has returned.
        """
        context = get_context("spawn")  # forking a process with threads (Ray's, torch's) can deadlock
        self._calls: list[connection.Connection] = []
        self._processes: list[SpawnProcess] = []
        self._called, self._closing = False, False
        self._lost: str | None = None
        for rank, own in enumerate(arguments, 1):
            here, there = context.Pipe()
            process = context.Process(target=_follow, args=(there, prepare, own), name=f"rank-{rank}", daemon=True)
            process.start()
            there.close()
            self._calls.append(here)
            self._processes.append(process)
        threading.Thread(target=self._watch, name="followers", daemon=True).start()

    def beside(self, work: Callable[[], object], *, deadline_s: float | None = _CALL_DEADLINE_S) -> list[Any]:
        """Do this process's part of the last broadcast, then collect the followers' answers.

        Args:
            work: this process's part.
            deadline_s: for each follower's answer after that; None waits as long as they live.

        Returns:
            The result of ``work``, then the followers' answers by rank.

        Raises:
            VerifierLostError: a follower died, failed or is late. No further call is possible.
        """
        self._called = True
        try:
            own = work()
            return [own, *(self._answer(rank, deadline_s) for rank in range(len(self._calls)))]
        except Exception as error:  # of any type: the ranks no longer make the same call
            self._lost = self._lost or f"{type(error).__name__}: {error}"
            self._check()
            raise
        finally:
            self._called = False

    def broadcast(self, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Send a call to every follower; ``beside`` must come next."""
        self._check()
        data = pickle.dumps((method, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            for calls in self._calls:
                calls.send_bytes(data)
        except OSError as error:
            self._lost = self._lost or str(error)
            self._check()

    def close(self) -> None:
        self._closing = True
        for calls in self._calls:
            calls.close()
        for process in self._processes:
            process.join(_END_S)
            if process.is_alive():
                process.kill()
                process.join()

    def _answer(self, rank: int, deadline_s: float | None) -> object:
        calls = self._calls[rank]
        if not calls.poll(deadline_s):
            raise TimeoutError(f"rank {rank + 1} is late by {deadline_s:g} s")
        failed, answer = calls.recv()
        if failed:
            raise RuntimeError(f"rank {rank + 1}: {answer}")
        return answer

    def _check(self) -> None:
        if self._lost is not None:
            raise VerifierLostError(f"needs an answer of every vLLM worker, found: {self._lost}; restart the engine")

    def _watch(self) -> None:
        ended = connection.wait([process.sentinel for process in self._processes])
        if self._closing:
            return
        process = next(process for process in self._processes if process.sentinel in ended)
        process.join(_END_S)  # the sentinel may be ready before the exit code
        self._lost = self._lost or f"{process.name} has ended with exit code {process.exitcode}"
        time.sleep(GRACE_S)
        if self._called and not self._closing:
            event(_LOG, "vllm_worker_lost", logging.ERROR, worker=process.name, exit_code=process.exitcode)
            logging.shutdown()
            os._exit(LOST_EXIT)


def _follow(calls: connection.Connection, prepare: Callable[..., Answer], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer = prepare(*arguments)
        calls.send((False, None))
        while True:
            method, args, kwargs = pickle.loads(calls.recv_bytes())  # noqa: S301 (of the parent process)
            calls.send((False, answer(method, args, kwargs)))
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:  # noqa: BLE001 (reported to the leading process)
        calls.send((True, f"{type(error).__name__}: {error}"))


def _end_with_parent() -> None:
    """End with the parent process, even in a pass whose other ranks are gone."""
    parent = parent_process()
    assert parent is not None, "it was started by one"
    connection.wait([parent.sentinel])
    os._exit(0)
