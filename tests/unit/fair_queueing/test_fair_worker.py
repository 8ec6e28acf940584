"""Tasks of tenants in turn, on one thread."""

import threading
import time
import weakref
from concurrent.futures import CancelledError, wait

import pytest

from outrider.fair_queueing import worker as worker_module
from outrider.fair_queueing.worker import FairWorker

WAIT_S = 60.0


def test_tenants_take_turns_and_each_keeps_its_order() -> None:
    worker, may_begin, done = FairWorker("worker"), threading.Event(), list[str]()
    first = worker.submit(lambda: may_begin.wait(WAIT_S), "greedy")
    futures = [worker.submit(lambda at=at: done.append(f"greedy {at}"), "greedy") for at in range(4)]  # type: ignore[misc]
    futures += [worker.submit(lambda at=at: done.append(f"modest {at}"), "modest") for at in range(2)]  # type: ignore[misc]
    may_begin.set()
    assert first.result(WAIT_S)
    assert not wait(futures, WAIT_S).not_done
    assert done == ["greedy 0", "modest 0", "greedy 1", "modest 1", "greedy 2", "greedy 3"]


def test_errors_are_told_and_what_is_cancelled_is_not_run() -> None:
    worker, may_begin, ran = FairWorker("worker"), threading.Event(), list[int]()
    first = worker.submit(lambda: may_begin.wait(WAIT_S), "")
    cancelled = worker.submit(lambda: ran.append(1), "")
    failing = worker.submit(lambda: 1 / 0, "")
    behind = worker.submit(lambda: 42, "")
    assert cancelled.cancel()
    may_begin.set()
    assert behind.result(WAIT_S) == 42
    assert isinstance(failing.exception(WAIT_S), ZeroDivisionError)
    with pytest.raises(CancelledError):
        cancelled.result(WAIT_S)
    assert first.done()
    assert not ran


def test_its_thread_ends_when_nothing_is_left_and_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_IDLE_S", 0.01)
    worker = FairWorker("worker that ends")
    for _ in range(2):
        thread = worker.submit(threading.current_thread, "").result(WAIT_S)
        assert thread.name == "worker that ends"
        assert thread.daemon
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_a_thread_that_waits_takes_the_next_task_and_keeps_nothing_of_the_last() -> None:
    worker, held = FairWorker("worker"), threading.Event()
    gone, first = weakref.ref(held), worker.submit(lambda held=held: (threading.current_thread(), held)[0], "")  # type: ignore[misc]
    thread = first.result(WAIT_S)
    del held, first
    until_s = time.monotonic() + WAIT_S
    while gone() is not None and time.monotonic() < until_s:
        time.sleep(0.01)
    assert gone() is None
    assert worker.submit(threading.current_thread, "").result(WAIT_S) is thread


def test_tasks_that_come_together_do_not_wait_for_one_thread_that_is_idle() -> None:
    worker, both = FairWorker("worker", threads=3), threading.Barrier(2)
    assert worker.submit(lambda: 42, "").result(WAIT_S) == 42
    together = [worker.submit(lambda: both.wait(WAIT_S), account) for account in ("a", "b")]
    assert sorted(each.result(WAIT_S) for each in together) == [0, 1]


def test_where_no_thread_can_be_started_the_task_is_refused_and_later_ones_are_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, ran = FairWorker("worker"), list[int]()

    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails)
        with pytest.raises(RuntimeError, match="new thread"):
            worker.submit(lambda: ran.append(1), "")
    assert worker.submit(lambda: 42, "").result(WAIT_S) == 42
    assert not ran


def test_of_several_threads_one_is_left_for_others() -> None:
    worker, may_end, under_way = FairWorker("worker", threads=3), threading.Event(), threading.Semaphore(0)

    def hang() -> bool:
        under_way.release()
        return may_end.wait(WAIT_S)

    greedy = [worker.submit(hang, "greedy") for _ in range(4)]
    for _ in range(2):
        assert under_way.acquire(timeout=WAIT_S)
    assert worker.submit(lambda: 42, "modest").result(WAIT_S) == 42
    assert not under_way.acquire(blocking=False), "two of one account"
    may_end.set()
    assert all(each.result(WAIT_S) for each in greedy)
