"""Records which drafter is leased to which generation. Pure: the fleet actor acts on what the table returns.

A lease belongs to an *owner*, a coordinator, whose heartbeats repeat what it holds (``renew``). A heartbeat is the
truth: leases that it no longer names are ended, and leases that the table does not know (the fleet was restarted) are
entered. An owner that falls silent loses its leases. Owner and table compare only what has changed since the last
heartbeat.

To be fast with many drafters, only ``loads``, ``rows`` and calls that end many leases iterate over all drafters or
over leases of other owners.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from actors.messages import DialledStatus, DrafterId, DrafterRow, DrafterState, FleetSums
from outrider.contracts.requests import GenerationId
from outrider.routing.lazy_heap import LazyHeap

_NONE_HELD = DrafterId("", -1)  # no drafter has this name


@dataclass(slots=True)
class _LeaseEntry:
    capacity: int
    state: DrafterState = DrafterState.STARTING
    reason: str | None = None
    leases: dict[GenerationId, str] = field(default_factory=dict)  # owner by generation

    @property
    def room(self) -> int:
        """Number of free slots; 0 unless the drafter is ready."""
        return max(0, self.capacity - len(self.leases)) if self.state is DrafterState.READY else 0


class LeaseTable:
    """Drafters, whether they are ready, and the generations leased to each. A generation holds at most one lease."""

    def __init__(self) -> None:
        self._entries: dict[DrafterId, _LeaseEntry] = {}
        self._at: dict[tuple[str, int], DrafterId] = {}
        self._names: list[DrafterId] | None = None  # all drafters, sorted; None: to be sorted anew
        self._holders: dict[GenerationId, DrafterId] = {}
        self._of_owner: dict[str, set[GenerationId]] = {}  # only owners that have leases
        self._owners: dict[str, float] = {}  # when each was last heard of
        self._heard = set[str]()  # owners that have sent a heartbeat to this table
        self._unsettled: dict[str, set[GenerationId]] = {}  # leases that may differ from the owner's last heartbeat
        self._with_room: dict[str, LazyHeap[int]] = {}  # by group: drafters with free slots, by share in use
        self._states = Counter[tuple[str, DrafterState]]()  # drafters in each, by group
        self._leased = Counter[str]()  # by group
        self._room = self._places = 0

    @property
    def places(self) -> int:
        """Number of slots of ready drafters, leased or free."""
        return self._places

    @property
    def room(self) -> int:
        """Number of free slots of ready drafters."""
        return self._room

    def add(self, drafter: DrafterId, capacity: int) -> None:
        """Add a drafter that is still starting; ``mark_ready`` lets it be leased. A known drafter stays as it is."""
        if drafter not in self._entries:
            self._entries[drafter] = _LeaseEntry(capacity)
            self._at[drafter.group, drafter.index] = drafter
            self._states[drafter.group, DrafterState.STARTING] += 1
            self._names = None

    def remove(self, drafter: DrafterId) -> frozenset[GenerationId]:
        """Remove a drafter; return the generations whose leases end."""
        orphans = self.mark_lost(drafter)
        self._states[drafter.group, self._entries.pop(drafter).state] -= 1
        del self._at[drafter.group, drafter.index]
        self._names = None
        return orphans

    def mark_ready(self, drafter: DrafterId) -> None:
        self._change(drafter, DrafterState.READY, None)

    def mark_suspect(self, drafter: DrafterId) -> None:
        """Lease a drafter no more; its present leases last until it is known to be lost."""
        self._change(drafter, DrafterState.SUSPECT, None)

    def mark_lost(self, drafter: DrafterId) -> frozenset[GenerationId]:
        """Take a drafter out until ``mark_ready``; return the generations whose leases end."""
        return self._end_leases(drafter, DrafterState.STARTING, None)

    def mark_refused(self, drafter: DrafterId, reason: str) -> frozenset[GenerationId]:
        """Take a drafter out for ``reason``, which ``rows`` show; return the generations whose leases end."""
        return self._end_leases(drafter, DrafterState.REFUSED, reason)

    def lease(
        self,
        generation: GenerationId,
        exclude: Collection[DrafterId] = (),
        owner: str = "",
        groups: Collection[str] | None = None,
    ) -> DrafterId | None:
        """Lease the generation the ready drafter with the smallest share of its slots in use (then by name).

        Only drafters of ``groups`` are leased (None: of all). A lease that the generation already holds is kept, unless
        its drafter is in ``exclude`` or not in ``groups``. None if no drafter has a free slot.
        """
        held_by = self._holders.get(generation)
        if held_by is not None:
            if held_by not in exclude and (groups is None or held_by.group in groups):
                return held_by
            self.release(generation)
        best: tuple[float, DrafterId] | None = None
        for group, strikes in self._with_room.items():
            if groups is None or group in groups:
                index = strikes.first({one.index for one in exclude if one.group == group and one in self._entries})
                if index is not None:
                    found = strikes.rank(index), self._at[group, index]
                    best = found if best is None else min(best, found)
        if best is None:
            return None
        self._give(generation, best[1], owner)
        self._unsettle(owner, generation)
        return best[1]

    def release(self, generation: GenerationId) -> None:
        if generation in self._holders:
            self._unsettle(self._take(generation), generation)

    def renew(
        self,
        owner: str,
        held: Mapping[GenerationId, DrafterId | None],
        now_s: float,
        changed: Collection[GenerationId] | None = None,
    ) -> None:
        """Make the table agree with what an owner says it holds.

        Args:
            owner: a coordinator's id.
            held: all its leases; None as drafter: the answer to its call has not reached it, so the lease is kept.
            now_s: on the clock that ``expire`` uses.
            changed: names for which ``held`` differs from the last heartbeat; None: perhaps all. The others are checked
                only if the table differed from the last heartbeat or has changed since.
        """
        unsettled = self._unsettled.pop(owner, ())
        if changed is None or owner not in self._heard:
            names = {*held, *self._of_owner.get(owner, ())}
        else:
            names = {*changed, *unsettled}
        self._owners[owner] = now_s
        self._heard.add(owner)
        for name in names:
            drafter = self._holders.get(name)
            if drafter is not None and held.get(name, _NONE_HELD) not in (None, drafter) and self._owns(owner, name):
                self._take(name)
        left = set[GenerationId]()
        for name in names:
            held_by = held.get(name)
            if held_by is None:
                continue
            if name not in self._holders and held_by in self._entries:
                self._give(name, held_by, owner)
            if self._holders.get(name) != held_by or not self._owns(owner, name):
                left.add(name)  # its drafter is unknown here, or another owner holds it: check again next time
        if left:
            self._unsettled[owner] = left

    def expire(self, now_s: float, ttl_s: float) -> Mapping[GenerationId, DrafterId]:
        """End and return the leases of owners that were silent for ``ttl_s`` seconds."""
        for owner in self._of_owner:
            self._owners.setdefault(owner, now_s)  # it leased before its first heartbeat to this table
        silent = [owner for owner, heard_at_s in self._owners.items() if now_s - heard_at_s > ttl_s]
        ended = dict[GenerationId, DrafterId]()
        for owner in silent:
            del self._owners[owner]
            self._heard.discard(owner)
            ended |= {generation: self._holders[generation] for generation in self._of_owner.get(owner, ())}
        for generation in ended:
            self.release(generation)
        for owner in self._unsettled.keys() - self._owners.keys():
            del self._unsettled[owner]
        return ended

    def unleased(self, drafter: DrafterId, held: Collection[GenerationId]) -> frozenset[GenerationId]:
        return frozenset(held) - self._entries[drafter].leases.keys()

    def is_ready(self, drafter: DrafterId) -> bool:
        entry = self._entries.get(drafter)
        return entry is not None and entry.state is DrafterState.READY

    def has_ready(self, group: str) -> bool:
        return self._states[group, DrafterState.READY] > 0

    def loads(self) -> Mapping[DrafterId, int]:
        ready = DrafterState.READY
        return {drafter: len(entry.leases) for drafter, entry in self._entries.items() if entry.state is ready}

    def sums(self) -> FleetSums:
        """Return the numbers of drafters and leases by group, in time independent of the number of drafters."""
        return FleetSums(dict(self._states), dict(self._leased))

    def rows(
        self, in_memory: Mapping[DrafterId, int], dialled: Callable[[DrafterId], DialledStatus | None] = lambda _: None
    ) -> list[DrafterRow]:
        """Return all drafters, sorted.

        ``in_memory``: number of generations each held when it was last asked. ``dialled``: of devices that dialled in.
        """
        if self._names is None:
            self._names = sorted(self._entries)
        return [self._row(drafter, in_memory.get(drafter), dialled(drafter)) for drafter in self._names]

    def _row(self, drafter: DrafterId, in_memory: int | None, dialled: DialledStatus | None) -> DrafterRow:
        entry, name = self._entries[drafter], drafter.actor_name
        state, reason = entry.state, entry.reason
        return name, drafter.group, state, reason, len(entry.leases), entry.capacity, in_memory, dialled

    def _owns(self, owner: str, generation: GenerationId) -> bool:
        return generation in self._of_owner.get(owner, ())

    def _unsettle(self, owner: str, generation: GenerationId) -> None:
        """Note that a lease changed other than by its owner's heartbeat, so that the next ``renew`` compares it."""
        self._unsettled.setdefault(owner, set()).add(generation)

    def _give(self, generation: GenerationId, drafter: DrafterId, owner: str) -> None:
        entry = self._entries[drafter]
        room = entry.room
        entry.leases[generation] = owner
        self._leased[drafter.group] += 1
        self._holders[generation] = drafter
        self._of_owner.setdefault(owner, set()).add(generation)
        self._rank(drafter, room)

    def _take(self, generation: GenerationId) -> str:
        """End a lease and return its owner."""
        drafter = self._holders.pop(generation)
        entry = self._entries[drafter]
        room = entry.room
        self._leased[drafter.group] -= 1
        owner = entry.leases.pop(generation)
        self._disown(generation, owner)
        self._rank(drafter, room)
        return owner

    def _disown(self, generation: GenerationId, owner: str) -> None:
        mine = self._of_owner[owner]
        mine.discard(generation)
        if not mine:
            del self._of_owner[owner]

    def _end_leases(self, drafter: DrafterId, state: DrafterState, reason: str | None) -> frozenset[GenerationId]:
        entry = self._entries[drafter]
        orphans = frozenset(entry.leases)
        self._leased[drafter.group] -= len(orphans)
        self._change(drafter, state, reason)
        for generation, owner in entry.leases.items():
            del self._holders[generation]
            self._disown(generation, owner)
            self._unsettle(owner, generation)
        entry.leases.clear()
        return orphans

    def _change(self, drafter: DrafterId, state: DrafterState, reason: str | None) -> None:
        entry = self._entries[drafter]
        before, before_state = entry.room, entry.state
        entry.state, entry.reason = state, reason
        by = (state is DrafterState.READY) - (before_state is DrafterState.READY)
        self._states[drafter.group, before_state] -= 1
        self._states[drafter.group, state] += 1
        self._places += by * entry.capacity
        self._rank(drafter, before)

    def _rank(self, drafter: DrafterId, room_before: int) -> None:
        """Update the sums and the heap after a drafter's leases or state have changed."""
        entry = self._entries[drafter]
        room = entry.room
        self._room += room - room_before
        strikes = self._with_room.setdefault(drafter.group, LazyHeap[int]())
        if room:
            strikes.set(drafter.index, len(entry.leases) / entry.capacity)
        elif room_before:
            strikes.drop(drafter.index)
