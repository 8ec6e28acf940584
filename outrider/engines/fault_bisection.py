"""Who of a pass that went wrong is to blame: in halves, until it failed alone, twice. Pure.

A pass over several members that fails is tried again in halves, one that fails alone once more behind all others, and
then it is guilty. Whoever shared a pass with it is in a pass of its own in the end. Where memory was short the groups
are no larger than a bound, which is learnt.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

_WENT_BEFORE_GROWTH = 32  # passes at the bound, before it is tried a little above
_GROWTH = 8  # by an eighth of itself
MOST_FAILURES = 2  # members that may fail alone, one after the other, before it is the engine that does


class FaultKind(StrEnum):
    """What went wrong with a pass."""

    PASS = "pass"  # noqa: S105 (no password)  # an exception, for which a member may be to blame
    MEMORY = "memory"  # there was too little for so large a pass
    DEVICE = "device"  # the accelerator's state is gone: every later call fails
    LOST = "lost"  # a process of the engine is
    NON_FINITE = "non_finite"  # it went well, but the numbers of a member are no numbers: that one alone ends


_MEMORY_TYPES = frozenset({"MemoryError", "OutOfMemoryError"})
_DEVICE_TYPES = frozenset({"AcceleratorError"})
_MEMORY_TEXTS = ("out of memory", "can't allocate memory", "cannot allocate memory")
_DEVICE_TEXTS = ("cuda error", "hip error", "cublas_status", "cudnn_status", "device-side assert", "nccl error")


def fault_kind(error: BaseException) -> FaultKind:
    """What an exception of a pass stands for, by its type and, as libraries raise plain ones, by its text."""
    types, text = {each.__name__ for each in type(error).__mro__}, str(error).lower()
    if "VerifierLostError" in types:
        return FaultKind.LOST
    if types & _MEMORY_TYPES or any(part in text for part in _MEMORY_TEXTS):
        return FaultKind.MEMORY
    if types & _DEVICE_TYPES or any(part in text for part in _DEVICE_TEXTS):
        return FaultKind.DEVICE
    return FaultKind.PASS


@dataclass(frozen=True, slots=True)
class PassBound:
    """How many members a pass may have, as far as memory has taught; None: any number."""

    most: int | None = None
    went: int = 0  # passes as large as that, since

    def after_failure(self, members: int) -> "PassBound":
        """There was no memory for a pass of so many."""
        return PassBound(max(1, members // 2))

    def after_pass(self, members: int) -> "PassBound":
        """There was for one of so many: after a while a little more is tried."""
        if self.most is None or members < self.most:
            return self
        if self.went + 1 < _WENT_BEFORE_GROWTH:
            return PassBound(self.most, self.went + 1)
        return PassBound(self.most + max(1, self.most // _GROWTH))

    def parts(self, members: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """These in their order, no more than the bound in each part."""
        size = len(members) if self.most is None else self.most
        return tuple(members[start : start + size] for start in range(0, len(members), max(1, size)))


@dataclass(frozen=True, slots=True)
class FaultBisection:
    """What is left to be tried of one step.

    Attributes:
        groups: members to be in a pass together, the next first. A member that failed alone is the last.
        warned: members that failed alone once.
        culprits: members that did so twice, in that order.
        served: members whose pass went well.
        bound: of passes.
    """

    groups: tuple[tuple[int, ...], ...]
    warned: frozenset[int] = frozenset()
    culprits: tuple[int, ...] = ()
    served: int = 0
    bound: PassBound = field(default_factory=PassBound)

    @classmethod
    def of(cls, members: int, bound: PassBound) -> "FaultBisection":
        """All members of a step, in their order."""
        return cls(bound.parts(tuple(range(members))), bound=bound)

    @property
    def next(self) -> tuple[int, ...] | None:
        """Who is to be in the next pass; None if nothing is left."""
        return self.groups[0] if self.groups else None

    def went(self) -> "FaultBisection":
        """The next pass was made, and went well."""
        group, *rest = self.groups
        return replace(
            self, groups=tuple(rest), served=self.served + len(group), bound=self.bound.after_pass(len(group))
        )

    def failed(self, kind: FaultKind) -> "FaultBisection":
        """The next pass was made, and went wrong."""
        group, *rest = self.groups
        bound = self.bound.after_failure(len(group)) if kind is FaultKind.MEMORY else self.bound
        if len(group) > 1:
            half = (len(group) + 1) // 2
            groups = (*bound.parts(group[:half]), *bound.parts(group[half:]), *rest)
            return replace(self, groups=groups, bound=bound)
        (member,) = group
        if member in self.warned:
            return replace(self, groups=tuple(rest), culprits=(*self.culprits, member), bound=bound)
        return replace(self, groups=(*rest, group), warned=self.warned | {member}, bound=bound)


@dataclass(frozen=True, slots=True)
class ConsecutiveFailures:
    """Who failed alone since a pass last went well: if there are several, the engine fails, not they."""

    names: frozenset[str] = frozenset()

    def after(self, culprits: frozenset[str], served: int) -> "ConsecutiveFailures":
        """A step was made: so many went well, and these are guilty."""
        return ConsecutiveFailures(culprits if served else self.names | culprits)

    @property
    def against_engine(self) -> bool:
        """Whether it is the engine that fails."""
        return len(self.names) > MOST_FAILURES
