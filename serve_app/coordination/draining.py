"""Coordinators that are drained, as this process's request router knows.

A module's, for Serve makes the router, of a class that it sent by value, and shows it to nobody.
"""

import time
from collections.abc import Mapping

from outrider.routing.draining import DrainWatch, RoutedCoordinator

_WATCH = DrainWatch()


def update(there: Mapping[str, RoutedCoordinator]) -> None:
    """By the router: these are all that are given anything."""
    _WATCH.update(there, time.monotonic())


def died(coordinator: str) -> None:
    """By the router: one is gone."""
    _WATCH.died(coordinator)


def should_migrate(coordinator: str, after_s: float | None) -> bool:
    """Whether a response that it makes goes on elsewhere now; ``after_s``: seconds, None is never."""
    return after_s is not None and _WATCH.should_migrate(coordinator, after_s, time.monotonic())
