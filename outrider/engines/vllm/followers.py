"""The other processes of a tensor-parallel group: each does what this one does, at the same time. Free of vLLM.

Ranks meet inside every pass. One that has died keeps the others waiting in a collective that no exception can leave, so
a watching thread ends this process if a call does not come back: whoever started it starts another.
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
_CALL_DEADLINE_S = 300.0  # far beyond any pass
GRACE_S = 10.0  # for a call to fail by itself, once a follower is gone
_END_S = 5.0  # for a follower to end by itself, once its pipe is closed
LOST_EXIT = 70  # EX_SOFTWARE

Answer = Callable[[str, Sequence[Any], dict[str, Any]], object]


class Followers:
    """Processes that each answer every call of this one, in order."""

    def __init__(self, prepare: Callable[..., Answer], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Start a process for each of ``arguments``; it calls ``prepare(*arguments)``, whose result takes its calls.

        Their first answer, to be collected, says that this is done.
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
        """Do this process's part of what the followers were told, and collect theirs.

        Args:
            work: this process's part.
            deadline_s: for each follower, once it is done; None waits as long as they live.

        Returns:
            What ``work`` gives, then their answers, by rank.

        Raises:
            VerifierLostError: one of them has died, has failed or is late. Nothing can be called any more.
        """
        self._called = True
        try:
            own = work()
            return [own, *(self._answer(rank, deadline_s) for rank in range(len(self._calls)))]
        except Exception as error:  # whatever it was, the ranks no longer stand at the same call
            self._lost = self._lost or f"{type(error).__name__}: {error}"
            self._check()
            raise
        finally:
            self._called = False

    def broadcast(self, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Have every follower make a call; ``beside`` is to come next."""
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
            raise VerifierLostError(f"needs an answer of every vLLM worker, found: {self._lost}; start the engine anew")

    def _watch(self) -> None:
        ended = connection.wait([process.sentinel for process in self._processes])
        if self._closing:
            return
        process = next(process for process in self._processes if process.sentinel in ended)
        process.join(_END_S)  # it may be seen to end before its exit code is there
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
    except Exception as error:  # noqa: BLE001 (told there)
        calls.send((True, f"{type(error).__name__}: {error}"))


def _end_with_parent() -> None:
    """Even in the middle of a pass whose other ranks are gone."""
    parent = parent_process()
    assert parent is not None, "it was started by one"
    connection.wait([parent.sentinel])
    os._exit(0)
