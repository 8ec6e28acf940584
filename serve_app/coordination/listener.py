"""By whom calls are made that are meant for one coordinator.

In a module of its own: Serve sends the request router's by value, and a class sent so is another one than everybody's.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listener:
    """First argument of such a call."""

    ingress: str
    coordinator: str  # the id of its replica
