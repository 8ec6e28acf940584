"""Background work that repeats during a measurement."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(every_s: float, work: Callable[[], None]) -> Iterator[None]:
    """Call ``work`` at an interval in its own thread while the block is open; none runs after it."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(every_s):
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
