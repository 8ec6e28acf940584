"""Whether there is room for one response more: arithmetic over what those hold that are being made. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Protocol

from outrider.admission.decisions import Lack, Shortage
from outrider.admission.price import VerifierNow


@dataclass(frozen=True, slots=True)
class Needs:
    """What one response needs while it is made."""

    load: float  # verifier seconds per second
    kv_tokens: float  # positions at a random moment: their mean and variance
    kv_variance: float
    share: float = 1.0  # of the time, left to rows in passes as short as it asks for; 1 of one that asks for nothing
    in_vain: bool = False  # its promise could not be kept with the verifier to itself

    @property
    def bound(self) -> float:
        """The share that it leaves to all: nobody has shorter passes for what is in vain."""
        return 1.0 if self.in_vain else self.share


@dataclass(frozen=True, slots=True)
class Sums:
    """What several responses hold together."""

    places: int = 0
    load: float = 0.0
    share: float = 1.0  # the least of theirs
    kv_tokens: float = 0.0
    kv_variance: float = 0.0

    def plus(self, needs: Needs) -> "Sums":
        return Sums(
            self.places + 1,
            self.load + needs.load,
            min(self.share, needs.bound),
            self.kv_tokens + needs.kv_tokens,
            self.kv_variance + needs.kv_variance,
        )

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
        """Positions that are not exceeded often: the mean and one deviation, as sums of many are nearly normal."""
        return self.kv_tokens + sqrt(self.kv_variance)


def sums_of(needs: Iterable[Needs]) -> Sums:
    """Of any number of responses."""
    places, load, share, kv_tokens, kv_variance = 0, 0.0, 1.0, 0.0, 0.0
    for one in needs:
        places += 1
        load += one.load
        share = min(share, one.bound)
        kv_tokens += one.kv_tokens
        kv_variance += one.kv_variance
    return Sums(places, load, share, kv_tokens, kv_variance)


class ResourceHolder(Protocol):
    """Who may hold something."""

    needs: Needs | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may be held: by all, and what of it promises leave to best effort now."""

    places: int
    floor_places: int
    floor_share: float  # of KV
    max_load: float
    weighs: bool
    verifier: VerifierNow

    @property
    def kv_tokens(self) -> float:
        return inf if self.verifier.kv_tokens is None or not self.weighs else float(self.verifier.kv_tokens)

    def places_of(self, one: ResourceHolder) -> float:
        """As how many places it counts: one, or as many as its share of KV would be."""
        return 1.0 if one.needs is None else max(1.0, self.places * one.needs.kv_tokens / max(self.kv_tokens, 1.0))

    def load(self, share: float) -> float:
        """What promises may need, where so much of the time is left to rows."""
        return self.max_load * share


def promised_shortage(needs: Needs, promised: Sums, bounds: Bounds, *, resumed: bool) -> Shortage | None:
    """Why a promise cannot be made now, given what those hold that have one; None if it can.

    One alone is always let in: an idle verifier does what it can. So is one in vain, but nobody waits for it to end or
    has shorter passes for it. A resumed one was let in already: it needs a place.
    Best effort is no obstacle, as it can be suspended down to its floor.
    """
    places = bounds.places - bounds.floor_places
    if promised.places >= places:
        return Shortage(Lack.PLACES, 1.0, promised.places, places)
    if resumed or not promised.places or not bounds.weighs:
        return None
    allowed = bounds.load(min(promised.share, needs.share))
    if needs.in_vain or promised.load + needs.load > allowed:
        return Shortage(Lack.LOAD, needs.load, promised.load, allowed)
    kv_allowed = bounds.kv_tokens * (1.0 - bounds.floor_share)
    if promised.plus(needs).kv_nearly_always > kv_allowed:
        return Shortage(Lack.MEMORY, needs.kv_tokens, promised.kv_nearly_always, kv_allowed)
    return None


def best_effort_shortage(
    needs: Needs, promised: Sums, best_effort: Sums, bounds: Bounds, *, pressed: bool, resumed: bool
) -> Shortage | None:
    """Why one without a promise cannot be begun now; None if it can.

    ``pressed``: a promise waits for a place or for KV. Then best effort gets its floor and no more.
    """
    together = promised.beside(best_effort)
    if together.places >= bounds.places or (pressed and best_effort.places >= bounds.floor_places):
        return Shortage(Lack.PLACES, 1.0, together.places, bounds.places)
    if resumed or not best_effort.places or not bounds.weighs:
        return None
    if together.plus(needs).kv_nearly_always > bounds.kv_tokens:
        return Shortage(Lack.MEMORY, needs.kv_tokens, together.kv_nearly_always, bounds.kv_tokens)
    return None
