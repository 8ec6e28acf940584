"""Check whether one response more fits: sums over what the active responses need, against bounds. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Protocol

from outrider.admission.decisions import ScarceResource, Shortage
from outrider.admission.response_load import VerifierNow


@dataclass(frozen=True, slots=True)
class Needs:
    """What one response needs while it is active."""

    load: float  # verifier seconds per second
    kv_tokens: float  # mean of its positions at a random moment, and their variance
    kv_variance: float
    share: float = 1.0  # of the time, left to rows in passes as short as its speed demands; 1 for best effort
    in_vain: bool = False  # its promise could not be kept even alone on the verifier

    @property
    def bound(self) -> float:
        """Share of time that it leaves to all; 1 for a promise in vain, for which passes are not shortened."""
        return 1.0 if self.in_vain else self.share


@dataclass(frozen=True, slots=True)
class Sums:
    """Needs of several responses together."""

    places: int = 0
    load: float = 0.0
    share: float = 1.0  # the least of their bounds
    kv_tokens: float = 0.0
    kv_variance: float = 0.0

    def plus(self, needs: Needs) -> "Sums":
        return self.beside(sums_of([needs]))

    def beside(self, other: "Sums") -> "Sums":
        return Sums(
            self.places + other.places,
            self.load + other.load,
            min(self.share, other.share),
            self.kv_tokens + other.kv_tokens,
            self.kv_variance + other.kv_variance,
        )

    @property
    def kv_nearly_always(self) -> float:
        """Positions that are rarely exceeded: mean and one standard deviation, as sums of many are nearly normal."""
        return self.kv_tokens + sqrt(self.kv_variance)


def sums_of(needs: Iterable[Needs]) -> Sums:
    places, load, share, kv_tokens, kv_variance = 0, 0.0, 1.0, 0.0, 0.0
    for one in needs:
        places += 1
        load += one.load
        share = min(share, one.bound)
        kv_tokens += one.kv_tokens
        kv_variance += one.kv_variance
    return Sums(places, load, share, kv_tokens, kv_variance)


class ResourceHolder(Protocol):
    """A response whose needs may have been priced."""

    needs: Needs | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may be held in all, and the floor that promises leave to best effort now."""

    places: int
    floor_places: int
    floor_share: float  # of KV
    max_load: float
    weighs: bool  # whether load and KV are bounded at all
    verifier: VerifierNow

    @property
    def kv_tokens(self) -> float:
        return inf if self.verifier.kv_tokens is None or not self.weighs else float(self.verifier.kv_tokens)

    def places_of(self, one: ResourceHolder) -> float:
        """Return the places that a response counts as: at least one, or its share of KV in places."""
        return 1.0 if one.needs is None else max(1.0, self.places * one.needs.kv_tokens / max(self.kv_tokens, 1.0))

    def load(self, share: float) -> float:
        """Return the load that promises may need where passes leave this share of time to rows."""
        return self.max_load * share


def promised_shortage(needs: Needs, promised: Sums, bounds: Bounds, *, resumed: bool) -> Shortage | None:
    """Return why a promise does not fit beside the active promises; None if it does.

    A promise without others is always let in: an idle verifier does what it can, and a wrong estimate must not refuse
    for ever. That holds for a promise in vain too, but none is begun beside others. A resumed response was let in
    before, so it needs a place only. Best effort is no obstacle, as it can be suspended down to its floor.
    """
    places = bounds.places - bounds.floor_places
    if promised.places >= places:
        return Shortage(ScarceResource.PLACES, 1.0, promised.places, places)
    if resumed or not promised.places or not bounds.weighs:
        return None
    allowed = bounds.load(min(promised.share, needs.share))
    if needs.in_vain or promised.load + needs.load > allowed:
        return Shortage(ScarceResource.LOAD, needs.load, promised.load, allowed)
    kv_allowed = bounds.kv_tokens * (1.0 - bounds.floor_share)
    if promised.plus(needs).kv_nearly_always > kv_allowed:
        return Shortage(ScarceResource.MEMORY, needs.kv_tokens, promised.kv_nearly_always, kv_allowed)
    return None


def best_effort_shortage(
    needs: Needs, promised: Sums, best_effort: Sums, bounds: Bounds, *, pressed: bool, resumed: bool
) -> Shortage | None:
    """Return why a response without a promise does not fit; None if it does.

    ``pressed``: a promise waits for a place or KV; then best effort gets no more than its floor.
    """
    together = promised.beside(best_effort)
    if together.places >= bounds.places or (pressed and best_effort.places >= bounds.floor_places):
        return Shortage(ScarceResource.PLACES, 1.0, together.places, bounds.places)
    if resumed or not best_effort.places or not bounds.weighs:
        return None
    if together.plus(needs).kv_nearly_always > bounds.kv_tokens:
        return Shortage(ScarceResource.MEMORY, needs.kv_tokens, together.kv_nearly_always, bounds.kv_tokens)
    return None
