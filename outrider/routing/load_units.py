"""What is under way at each coordinator, counted by what it needs. Pure.

A response with a fast promise needs several times the verifier time of a slow one, and one without a promise none that
is promised: as many of them are not as much. So a coordinator tells, every so often, how full its verifier is, and
all of it together counts for as many responses as fill a verifier to there on the average of all. What was sent there
since, or has ended, counts for one each.
"""

from collections.abc import Iterable
from dataclasses import dataclass

_NONE = 1e-9  # what is left of a sum that was added to and taken from
_MOST = 2.0  # fuller than that nobody counts for: what is allowed is an estimate


@dataclass(frozen=True, slots=True)
class CoordinatorLoad:
    """What a coordinator tells of itself.

    Attributes:
        share: of what its admission allows, taken by who is answered and who waits: of verifier time, KV or places,
            whatever is scarcest; above 1 somebody waits.
        responses: that take it.
    """

    share: float = 0.0
    responses: float = 0.0

    @property
    def bounded(self) -> float:
        """The share that counts."""
        return min(self.share, _MOST)


NOTHING_REPORTED = CoordinatorLoad()


def filling(shares: float, responses: float) -> float:
    """Responses that fill a verifier, on the average of all that told so much together; 0 is not known."""
    return responses / shares if shares > _NONE else 0.0


def filling_of(reported: Iterable[CoordinatorLoad]) -> float:
    """The same of what each told."""
    shares = responses = 0.0
    for one in reported:
        shares += one.bounded
        responses += one.responses
    return filling(shares, responses)


def beyond(reported: CoordinatorLoad, filling: float) -> float:
    """By how many responses more than it has a coordinator is loaded; fewer where they need less than others do."""
    return filling * reported.bounded - reported.responses if filling else 0.0
