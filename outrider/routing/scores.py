"""Rank coordinators for a request: cached prefix against load. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

Name = TypeVar("Name")

# A response under way delays a new one about as much as computing this many prompt tokens would. So a cached prefix
# attracts requests, and a long queue of them repels the next.
LOAD_TOKENS = 64

Rank = tuple[bool, int, int]


def rank(ongoing: int, cached_tokens: int, dispatched: int, capacity: int) -> Rank:
    """Of one candidate, the least is the best; the arguments are those of ``ranked``."""
    return ongoing >= capacity, LOAD_TOKENS * ongoing - cached_tokens, dispatched


def takers(candidates: Sequence[Name], loading: Collection[Name], lost: Sequence[Name]) -> list[Name]:
    """Who may be given a response at all: whoever has a verifier; where nobody has, who lost it first.

    Args:
        candidates: all there are.
        loading: those whose verifiers were not ready when they were last asked.
        lost: those that were found without one since then, the last one at the end.
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
) -> list[Name]:
    """Best first.

    Args:
        candidates: who may be chosen.
        cached_tokens: of the request's prefix, resident at each; those left out have none.
        ongoing: responses under way at each.
        dispatched: requests ever sent to each; among equals the least used is first, so that load spreads.
        capacity: responses each takes; those that are full come last, whatever they have cached.
    """

    def rank_of(name: Name) -> Rank:
        load = ongoing.get(name, 0)
        return rank(load, cached_tokens.get(name, 0), dispatched.get(name, 0), capacity[name])

    return sorted(candidates, key=rank_of)
