"""Whose KV goes where there is not memory for all of it, and whether it is copied away before. Pure.

One rule for engines and simulator. Whoever is due last goes first: it is who comes back last, as verifiers serve by
deadline, and of those that come round again and again the least recently used would be the very next to be needed. Best
effort is owed nothing and goes before them all. A sequence is taken from its end and no further than is needed: what
is left of it need not be computed again.

``KvStore`` (engines) and ``KvMemory`` (simulator) say who may be taken from at all: never who is admitted to the pass,
and others of it only if nobody else is left.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeVar


class Holder(Protocol):
    """A sequence with KV."""

    @property
    def due_at_s(self) -> float:
        """The deadline of its response's next round; infinity where nothing is owed."""
        ...

    @property
    def last_used(self) -> int:
        """Rank of its last use."""
        ...


AnyHolder = TypeVar("AnyHolder", bound=Holder)


def first_to_go(holders: Iterable[AnyHolder]) -> AnyHolder | None:
    """Who is due last, and of those due alike who was used least recently; None of none."""
    return max(holders, key=_reach, default=None)


def _reach(holder: Holder) -> tuple[float, int]:
    return holder.due_at_s, -holder.last_used


@dataclass(frozen=True, slots=True)
class SwapPrices:
    """What it takes to have one KV block again that was given up; measured on the machine, or a model of one."""

    out_s: float = inf  # copying it to host memory; ``in_s`` copying it back
    in_s: float = inf
    recompute_s: float = 0.0  # computing its positions in a pass that runs anyway

    @property
    def copying_pays(self) -> bool:
        """Whether a block is copied, both ways, in less time than it is computed."""
        return self.out_s + self.in_s < self.recompute_s
