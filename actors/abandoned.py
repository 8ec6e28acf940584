"""Ends a detached actor that has not been called for long, so that it does not outlive its application.

A caller that needs it again creates a new one. A thread watches, as a restarted actor may never be called at all.
"""

import logging
import threading
import time
from collections.abc import Callable

import ray

from outrider.events import event

ABANDONED_S = 60.0  # longer than an application takes to be brought up again, or to be updated in place
_LOOKS_EVERY_S = 1.0

log = logging.getLogger(__name__)


def end_when_abandoned(
    heard_at_s: Callable[[], float],
    end: Callable[[], None],
    after_s: float = ABANDONED_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> threading.Thread:
    """Start a daemon thread that ends this process's actor once it is abandoned.

    Args:
        heard_at_s: returns when the actor was last called, by ``clock``.
        end: called once that is ``after_s`` ago, and again if it raises. Runs in the thread.
        after_s: seconds without a call after which the actor is abandoned.
        clock: monotonic, in seconds.
        pause: waits so many seconds.
    """

    def watch() -> None:
        while True:
            pause(_LOOKS_EVERY_S)
            if clock() - heard_at_s() <= after_s:
                continue
            event(log, "abandoned", logging.WARNING, after_s=after_s)
            try:
                end()
            except Exception:
                log.exception("ending_failed")
            else:
                return

    thread = threading.Thread(target=watch, name="abandoned", daemon=True)
    thread.start()
    return thread


def end_named(name: str, namespace: str) -> None:
    try:
        actor = ray.get_actor(name, namespace=namespace)
    except ValueError:
        return
    ray.kill(actor, no_restart=True)
