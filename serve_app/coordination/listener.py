"""Defines what coordinators and routers share: names of routing statistics, and the target of a call (``Listener``).

It is a module of its own because Serve pickles the request router's module by value: a class defined there would be a
different class in the router, and ``isinstance`` would fail.
"""

from dataclasses import dataclass

# Of Serve's routing statistics:
VERIFIER_UP = "verifier_up"  # whether its verifier answers
TARGET, TOKEN_MAP = "target", "token_map"  # the verifier's ``ModelCard.target`` and the hash of its token map
PLACES = "places"  # most responses it takes, running and waiting
TAKEN, BY_RESPONSES = "taken", "by_responses"  # share of its admission's capacity in use, and by how many responses


@dataclass(frozen=True, slots=True)
class Listener:
    """First argument of a call that is meant for one coordinator."""

    ingress: str
    coordinator: str  # replica id
