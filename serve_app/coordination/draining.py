"""Shares which coordinators are draining, from this process's request router to the ingress.

The state is a module's: Serve creates the router, from a class that it pickled by value, and gives no access to it.
"""

import time
from collections.abc import Mapping

from outrider.routing.draining import DrainWatch, RoutedCoordinator

_WATCH = DrainWatch()


def update(there: Mapping[str, RoutedCoordinator]) -> None:
    """Take in the coordinators that get requests. Called by the router."""
    _WATCH.update(there, time.monotonic())


def died(coordinator: str) -> None:
    _WATCH.died(coordinator)


def should_migrate(coordinator: str, after_s: float | None) -> bool:
    """Return whether its responses are to move now; ``after_s``: seconds of draining before that, None: never."""
    return after_s is not None and _WATCH.should_migrate(coordinator, after_s, time.monotonic())
