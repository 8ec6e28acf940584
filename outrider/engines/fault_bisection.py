"""Find the member of a failed pass that causes the failure, by bisection. Pure.

A failed pass over n members is repeated in halves, so one culprit costs about 2 log2 n passes. A member that fails
alone is tried once more, behind all others; if it fails again, it is a culprit. Every other member ends up in a pass
without the culprit. A pass that fails for lack of memory also bounds the size of passes; the bound is learned.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

_MOST_REASON_CHARS = 300
_WENT_BEFORE_GROWTH = 32  # successful passes at the bound before it grows
_GROWTH = 8  # it grows by an eighth of itself
MOST_FAILURES = 2  # culprits in a row, without a successful pass, above which the engine counts as broken


class FaultKind(StrEnum):
    PASS = "pass"  # noqa: S105 (no password)  # an exception that a member may have caused
    MEMORY = "memory"  # out of memory for a pass of this size
    DEVICE = "device"  # the accelerator's context is lost: every later call fails
    LOST = "lost"  # a process of the engine died
    NON_FINITE = "non_finite"  # the pass succeeded, but a member's logits are NaN or infinite: only that member fails


_MEMORY_TYPES = frozenset({"MemoryError", "OutOfMemoryError"})
_DEVICE_TYPES = frozenset({"AcceleratorError"})
_MEMORY_TEXTS = ("out of memory", "can't allocate memory", "cannot allocate memory")
_DEVICE_TEXTS = ("cuda error", "hip error", "cublas_status", "cudnn_status", "device-side assert", "nccl error")


def fault_kind(error: BaseException) -> FaultKind:
    """Classify an exception by its type, or by its text where libraries raise plain ``RuntimeError``."""
    types, text = {each.__name__ for each in type(error).__mro__}, str(error).lower()
    if "VerifierLostError" in types:
        return FaultKind.LOST
    if types & _MEMORY_TYPES or any(part in text for part in _MEMORY_TEXTS):
        return FaultKind.MEMORY
    if types & _DEVICE_TYPES or any(part in text for part in _DEVICE_TEXTS):
        return FaultKind.DEVICE
    return FaultKind.PASS


class Fault(NamedTuple):
    """Cause of a failed pass, without the exception: its traceback would keep the pass's tensors alive."""

    kind: FaultKind
    reason: str


def fault_of(error: BaseException) -> Fault:
    return Fault(fault_kind(error), reason_of(error))


def reason_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_MOST_REASON_CHARS]


@dataclass(frozen=True, slots=True)
class PassBound:
    """Largest number of members in a pass, learned from out-of-memory failures; ``most`` None: no bound."""

    most: int | None = None
    went: int = 0  # successful passes of that size since the bound last changed

    def after_failure(self, members: int) -> "PassBound":
        """Return the bound after a pass of ``members`` ran out of memory: half of them."""
        return PassBound(max(1, members // 2))

    def after_pass(self, members: int) -> "PassBound":
        """Return the bound after a successful pass: an eighth larger once 32 passes of its size succeeded."""
        if self.most is None or members < self.most:
            return self
        if self.went + 1 < _WENT_BEFORE_GROWTH:
            return PassBound(self.most, self.went + 1)
        return PassBound(self.most + max(1, self.most // _GROWTH))

    def parts(self, members: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Split members, in their order, into parts no larger than the bound."""
        size = len(members) if self.most is None else self.most
        return tuple(members[start : start + size] for start in range(0, len(members), max(1, size)))


@dataclass(frozen=True, slots=True)
class FaultBisection:
    """Remaining passes of one step."""

    # members of each remaining pass, the next pass first. A member that failed alone goes last.
    groups: tuple[tuple[int, ...], ...]
    warned: frozenset[int] = frozenset()  # members that failed alone once
    culprits: tuple[int, ...] = ()  # members that failed alone twice, in that order
    served: int = 0  # number of members whose pass succeeded
    bound: PassBound = field(default_factory=PassBound)  # on the size of a pass

    @classmethod
    def of(cls, members: int, bound: PassBound) -> "FaultBisection":
        """Return the first passes of a step, members in their order."""
        return cls(bound.parts(tuple(range(members))), bound=bound)

    @property
    def next(self) -> tuple[int, ...] | None:
        return self.groups[0] if self.groups else None

    def went(self) -> "FaultBisection":
        group, *rest = self.groups
        return replace(
            self, groups=tuple(rest), served=self.served + len(group), bound=self.bound.after_pass(len(group))
        )

    def failed(self, kind: FaultKind) -> "FaultBisection":
        group, *rest = self.groups
        bound = self.bound.after_failure(len(group)) if kind is FaultKind.MEMORY else self.bound
        if len(group) > 1:
            half = (len(group) + 1) // 2
            groups = (*bound.parts(group[:half]), *bound.parts(group[half:]), *rest)
            return replace(self, groups=groups, bound=bound)
        (member,) = group
        if member in self.warned:
            return replace(self, groups=tuple(rest), culprits=(*self.culprits, member), bound=bound)
        # Behind all others, so that none of them waits for the repetition.
        return replace(self, groups=(*rest, group), warned=self.warned | {member}, bound=bound)


@dataclass(frozen=True, slots=True)
class ConsecutiveFailures:
    """Generations that failed alone since a pass last succeeded; if there are several, the engine itself fails."""

    names: frozenset[str] = frozenset()

    def after(self, culprits: frozenset[str], served: int) -> "ConsecutiveFailures":
        """Return the state after a step with these culprits, in which ``served`` members succeeded."""
        return ConsecutiveFailures(culprits if served else self.names | culprits)

    @property
    def against_engine(self) -> bool:
        """Whether the engine itself counts as broken."""
        return len(self.names) > MOST_FAILURES
