"""Convert responses under way at coordinators to a common unit, the mean response. Pure.

A response with a fast promise needs several times the verifier time of a slow one, and best effort has no promised
load, so numbers of responses do not compare. A coordinator reports periodically how full its verifier is. That share is
converted to the number of responses that would fill a verifier as much on average over all coordinators. Responses sent
or ended since the report count as one each.
"""

from collections.abc import Iterable
from dataclasses import dataclass

_NONE = 1e-9  # rounding residue of sums that are updated by differences
_MOST = 2.0  # bound of a share, as what a coordinator allows is an estimate


@dataclass(frozen=True, slots=True)
class CoordinatorLoad:
    """What a coordinator reports of itself."""

    # of what its admission allows, taken by active and waiting responses: of verifier time, KV or places, whichever is
    # scarcest; above 1 responses wait
    share: float = 0.0
    responses: float = 0.0  # number of these responses

    @property
    def bounded(self) -> float:
        """The share, bounded by ``_MOST``."""
        return min(self.share, _MOST)


NOTHING_REPORTED = CoordinatorLoad()


def filling(shares: float, responses: float) -> float:
    """Return the responses that fill a verifier on average over all reports together; 0 if not known."""
    return responses / shares if shares > _NONE else 0.0


def filling_of(reported: Iterable[CoordinatorLoad]) -> float:
    shares = responses = 0.0
    for one in reported:
        shares += one.bounded
        responses += one.responses
    return filling(shares, responses)


def beyond(reported: CoordinatorLoad, filling: float) -> float:
    """Return by how many mean responses a coordinator's load exceeds its number of responses; may be negative."""
    return filling * reported.bounded - reported.responses if filling else 0.0
