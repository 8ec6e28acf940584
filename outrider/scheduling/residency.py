"""Choose whose KV is evicted when memory is short, and whether it is swapped to host memory first. Pure.

Engines and simulator share the rule. The sequence due last goes first: verifiers serve by deadline, so it also comes
back last. Among responses that return again and again, the least recently used would be the next one needed. Best
effort has no deadline and goes before all others. Eviction takes a sequence from its end and no further than needed, as
what remains need not be computed again.

``KvStore`` (engines) and ``KvMemory`` (simulator) choose the candidates: never a sequence admitted to the pass, and one
that waits for the pass only if there is no other.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeVar


class Holder(Protocol):
    @property
    def due_at_s(self) -> float:
        """Deadline of its response's next round; infinity for best effort."""

    @property
    def last_used(self) -> int: ...


AnyHolder = TypeVar("AnyHolder", bound=Holder)


def first_to_go(holders: Iterable[AnyHolder]) -> AnyHolder | None:
    """Return the holder due last; of equal ones the least recently used; None if there are no holders."""
    return max(holders, key=_reach, default=None)


def _reach(holder: Holder) -> tuple[float, int]:
    return holder.due_at_s, -holder.last_used


@dataclass(frozen=True, slots=True)
class SwapPrices:
    """Seconds to restore one evicted KV block, by copying or by computing; measured, or from a model of the machine."""

    out_s: float = inf  # copying it to host memory; ``in_s``: copying it back
    in_s: float = inf
    recompute_s: float = 0.0  # computing its positions in a pass that runs anyway

    @property
    def copying_pays(self) -> bool:
        return self.out_s + self.in_s < self.recompute_s
