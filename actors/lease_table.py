"""Which drafter serves which generation. Pure bookkeeping: the fleet actor acts on what it returns.

A lease belongs to an *owner*, a coordinator, which says again and again what it holds (``renew``). What it says is the
truth: leases it no longer names are ended, ones the table does not know (the fleet was restarted) are entered. An owner
that falls silent loses its leases.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from actors.messages import DrafterId, DrafterState, DrafterStatus
from outrider.contracts.requests import GenerationId


@dataclass(slots=True)
class _Entry:
    capacity: int
    state: DrafterState = DrafterState.STARTING
    reason: str | None = None
    leases: dict[GenerationId, str] = field(default_factory=dict)  # to their owners


class LeaseTable:
    """Drafters, whether they are ready, and the generations leased to each. A generation holds at most one lease."""

    def __init__(self) -> None:
        self._entries: dict[DrafterId, _Entry] = {}
        self._owners: dict[str, float] = {}  # when each was last heard of

    def add(self, drafter: DrafterId, capacity: int) -> None:
        """Know a drafter that is still starting; it gets no leases yet."""
        self._entries.setdefault(drafter, _Entry(capacity))

    def remove(self, drafter: DrafterId) -> frozenset[GenerationId]:
        """Forget a drafter; returns the generations whose leases end."""
        return frozenset(self._entries.pop(drafter).leases)

    def mark_ready(self, drafter: DrafterId) -> None:
        """Let a drafter be leased."""
        self._entries[drafter].state = DrafterState.READY
        self._entries[drafter].reason = None

    def mark_suspect(self, drafter: DrafterId) -> None:
        """Give a drafter no new leases; those it has stand until it is known to be lost."""
        self._entries[drafter].state = DrafterState.SUSPECT
        self._entries[drafter].reason = None

    def mark_lost(self, drafter: DrafterId) -> frozenset[GenerationId]:
        """Take a drafter out until it is ready again; returns the generations whose leases end."""
        return self._end_leases(drafter, DrafterState.STARTING, None)

    def mark_refused(self, drafter: DrafterId, reason: str) -> frozenset[GenerationId]:
        """Take a drafter out for a reason; returns the generations whose leases end."""
        return self._end_leases(drafter, DrafterState.REFUSED, reason)

    def lease(
        self,
        generation: GenerationId,
        exclude: Collection[DrafterId] = (),
        owner: str = "",
        groups: Collection[str] | None = None,
    ) -> DrafterId | None:
        """Give the generation the least loaded ready drafter with room (by share of its capacity, then name).

        Only one of ``groups`` may be given, where they are named. A lease it already holds is kept unless that drafter
        is in ``exclude``, or of another group. None if there is no drafter.
        """
        held_by = self._holder(generation)
        if held_by is not None:
            if held_by not in exclude and _is_of(held_by, groups):
                return held_by
            del self._entries[held_by].leases[generation]
        free = [
            (len(entry.leases) / entry.capacity, drafter)
            for drafter, entry in self._entries.items()
            if entry.state is DrafterState.READY and len(entry.leases) < entry.capacity
            if drafter not in exclude and _is_of(drafter, groups)
        ]
        if not free:
            return None
        _, drafter = min(free)
        self._entries[drafter].leases[generation] = owner
        return drafter

    def release(self, generation: GenerationId) -> None:
        """End the generation's lease, if it has one."""
        for entry in self._entries.values():
            entry.leases.pop(generation, None)

    def renew(self, owner: str, held: Mapping[GenerationId, DrafterId | None], now_s: float) -> None:
        """Take an owner's word for what it holds; None stands for a lease whose answer is still on its way to it."""
        self._owners[owner] = now_s
        for drafter, entry in self._entries.items():
            entry.leases = {
                generation: whose
                for generation, whose in entry.leases.items()
                if whose != owner or held.get(generation, "unheld") in (None, drafter)
            }
        for generation, held_by in held.items():
            if held_by in self._entries and self._holder(generation) is None:
                self._entries[held_by].leases[generation] = owner

    def expire(self, now_s: float, ttl_s: float) -> Mapping[GenerationId, DrafterId]:
        """End the leases of owners that were silent for ``ttl_s`` seconds; returns them."""
        for entry in self._entries.values():
            for owner in entry.leases.values():
                self._owners.setdefault(owner, now_s)  # leased since this table was made, and not heard of yet
        silent = {owner for owner, heard_at_s in self._owners.items() if now_s - heard_at_s > ttl_s}
        for owner in silent:
            del self._owners[owner]
        ended = {
            generation: drafter
            for drafter, entry in self._entries.items()
            for generation, owner in entry.leases.items()
            if owner in silent
        }
        for generation in ended:
            self.release(generation)
        return ended

    def unleased(self, drafter: DrafterId, held: Collection[GenerationId]) -> frozenset[GenerationId]:
        """Of the generations a drafter holds, those that are not leased to it."""
        return frozenset(held) - frozenset(self._entries[drafter].leases)

    def loads(self) -> Mapping[DrafterId, int]:
        """Generations leased to each ready drafter."""
        ready = DrafterState.READY
        return {drafter: len(entry.leases) for drafter, entry in self._entries.items() if entry.state is ready}

    def statuses(self) -> tuple[DrafterStatus, ...]:
        """All drafters, by name."""
        return tuple(
            DrafterStatus(
                drafter.actor_name, drafter.group, entry.state, entry.reason, len(entry.leases), entry.capacity
            )
            for drafter, entry in sorted(self._entries.items())
        )

    def _holder(self, generation: GenerationId) -> DrafterId | None:
        return next((drafter for drafter, entry in self._entries.items() if generation in entry.leases), None)

    def _end_leases(self, drafter: DrafterId, state: DrafterState, reason: str | None) -> frozenset[GenerationId]:
        entry = self._entries[drafter]
        orphans = frozenset(entry.leases)
        entry.state, entry.reason = state, reason
        entry.leases.clear()
        return orphans


def _is_of(drafter: DrafterId, groups: Collection[str] | None) -> bool:
    return groups is None or drafter.group in groups
