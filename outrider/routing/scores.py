"""Rank coordinators for a request: cached prefix against load. Pure.

Load is counted in mean responses (``load_units``).
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from outrider.routing.load_units import NOTHING_REPORTED, CoordinatorLoad, beyond, filling_of

Name = TypeVar("Name")
_NOTHING: Mapping[Any, CoordinatorLoad] = MappingProxyType({})

# A cached prefix attracts requests, and a queue of them repels the next. A verifier that is full delays a new response
# about as much as computing this many prompt tokens would, and one under way by its part of that.
FULL_TOKENS = 2000
LOAD_TOKENS = 64  # price of one response under way, if it is not known how many fill a verifier
LEAST_LOAD_TOKENS = 32  # lowest price, as many responses may fill only places: each takes time of every pass as well

Rank = tuple[bool, float, int]


def tokens_per_response(filling: float) -> float:
    """Return the prompt tokens that one response counts for, where ``filling`` fill a verifier; 0: not known."""
    return max(LEAST_LOAD_TOKENS, FULL_TOKENS / filling) if filling else LOAD_TOKENS


def rank(load: float, cached_tokens: float, dispatched: int, *, full: bool, each_tokens: float) -> Rank:
    """Return the rank of one candidate, the least is the best; arguments as in ``ranked``."""
    return full, each_tokens * load - cached_tokens, dispatched


def takers(candidates: Sequence[Name], loading: Collection[Name], lost: Sequence[Name]) -> list[Name]:
    """Return the candidates that have a verifier; if none has, those that lost it first.

    Args:
        candidates: all coordinators.
        loading: those whose verifiers were not ready when last asked.
        lost: those found without a verifier since then, the latest last.
    """
    well = [name for name in candidates if name not in loading and name not in lost]
    if well:
        return well
    lost_as = {name: lost.index(name) if name in lost else -1 for name in candidates}
    first = min(lost_as.values(), default=-1)
    return [name for name in candidates if lost_as[name] == first]


def ranked(
    candidates: Sequence[Name],
    cached_tokens: Mapping[Name, int],
    ongoing: Mapping[Name, int],
    dispatched: Mapping[Name, int],
    capacity: Mapping[Name, int],
    reported: Mapping[Name, CoordinatorLoad] = _NOTHING,
) -> list[Name]:
    """Return candidates, best first.

    Args:
        candidates: coordinators that may be chosen.
        cached_tokens: resident tokens of the request's prefix; those left out have none.
        ongoing: responses under way at each.
        dispatched: requests ever sent to each; the least used wins ties, so that load spreads.
        capacity: responses that each takes; full ones come last, whatever they have cached.
        reported: how full each said it was; responses are weighted by it.
    """
    fills = filling_of(reported.values())
    loads = {name: ongoing.get(name, 0) + beyond(reported.get(name, NOTHING_REPORTED), fills) for name in candidates}
    each_tokens = tokens_per_response(fills)

    def rank_of(name: Name) -> Rank:
        full = ongoing.get(name, 0) >= capacity[name]
        return rank(
            loads[name], cached_tokens.get(name, 0), dispatched.get(name, 0), full=full, each_tokens=each_tokens
        )

    return sorted(candidates, key=rank_of)
