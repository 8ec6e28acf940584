"""Ends a detached actor that nobody has asked for anything for long: nothing outlives the application it was made for.

Whoever needs it again makes it anew. A thread sees to it, as an actor that was restarted may never be called at all.
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
    """Watch over the actor of this process from now on.

    Args:
        heard_at_s: when it was asked last, by ``clock``.
        end: what to do when that is ``after_s`` seconds ago; it is tried again if it raises.
        after_s: how long it may be silent.
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
    """Kill a named actor for good, if it runs."""
    try:
        actor = ray.get_actor(name, namespace=namespace)
    except ValueError:
        return
    ray.kill(actor, no_restart=True)
