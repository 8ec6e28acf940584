"""What routers know coordinators by: who calls are meant for, and the name of what each tells of its verifier.

In a module of its own: Serve sends the request router's by value, and a class sent so is another one than everybody's.
"""

from dataclasses import dataclass

# Of Serve's routing statistics:
VERIFIER_UP = "verifier_up"  # whether its verifier answers
TARGET, TOKEN_MAP = "target", "token_map"  # which that is, and what its token ids mean
PLACES = "places"  # responses it takes: those it makes and those that wait
TAKEN, BY_RESPONSES = "taken", "by_responses"  # of what its admission allows, as a share, and by how many of them


@dataclass(frozen=True, slots=True)
class Listener:
    """First argument of such a call."""

    ingress: str
    coordinator: str  # the id of its replica
