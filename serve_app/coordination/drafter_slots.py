"""Places at drafters that a coordinator has leased: of its generations, and some at hand for those to come. Pure.

In a small cluster none are at hand: each generation's lease is asked for and given back by a call of its own. Where
there are many coordinators the fleet allows some, given in bulk by the answers to heartbeats. A generation then takes
one of these, and leaves it behind when it ends; the next heartbeat says so, and what it says is the truth, so that no
call is needed for either. Only who finds none at hand asks for itself, until one has asked in vain; then it is left to
the next heartbeat. A place keeps the name of whoever had it last.

A heartbeat tells what has changed since the last one that was answered: everything the first time, when the fleet asks
for it, and now and then, so that nothing stays wrong that once was.
"""

import random
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from actors.heartbeats import FleetNews, Heartbeat, NewsMark, packed, state_of
from actors.messages import CoordinatorReport, DrafterId, FleetSettings
from outrider.contracts.requests import GenerationId

_REMEMBERED = 10  # heartbeats: so many places are wanted as were taken between two of these at most
_EVERYTHING_EVERY = 60  # heartbeats

Place = tuple[DrafterId, Any]  # with the drafter's handle


class DrafterSlots:
    def __init__(self, owner: str) -> None:
        """None yet; ``owner`` is the coordinator's id."""
        self.owner = owner
        self._held: dict[GenerationId, DrafterId | None] = {}  # all; None: the answer is on its way
        self._places: dict[GenerationId, Place] = {}  # of generations
        self._spare: dict[GenerationId, Place] = {}  # at hand, the longest unused first
        self._allowed: int | None = None  # to be at hand; None: leases are asked for and given back one by one
        self._vain: set[frozenset[str] | None] = set()  # groups that were asked for in vain since the last heartbeat
        self._taken = self._named = 0
        self._recent: deque[int] = deque(maxlen=_REMEMBERED)
        self._session, self._number = random.getrandbits(48), 0
        self._acknowledged: int | None = None  # the number of a heartbeat that the fleet has taken in; None: of none
        self._changed = set[GenerationId]()  # names, since the last heartbeat
        self._unconfirmed = set[GenerationId]()  # and between the one that was taken in and that
        self._known: NewsMark | None = None
        self._settings_number: int | None = None

    @property
    def in_use(self) -> int:
        """Generations that have leased a drafter, or are about to."""
        return len(self._held) - len(self._spare)

    @property
    def held(self) -> Mapping[GenerationId, DrafterId | None]:
        """All leases; None where the answer is on its way."""
        return self._held

    @property
    def at_hand(self) -> int:
        """Places that no generation uses."""
        return len(self._spare)

    def take(
        self, generation: GenerationId, exclude: Collection[DrafterId], groups: frozenset[str] | None
    ) -> Place | None:
        """One that is at hand, of ``groups`` if any are named."""
        self._taken += 1
        self._drop(generation)
        for name, (drafter, _) in self._spare.items():
            if drafter not in exclude and (groups is None or drafter.group in groups):
                place = self._spare[name]
                self._drop(name)
                self._has(generation, place)
                return place
        return None

    def asks(self, generation: GenerationId, groups: frozenset[str] | None) -> bool:
        """Whether to ask the fleet for one at once. What is asked for counts as held, so that no heartbeat ends it."""
        if groups in self._vain:
            return False
        self._hold(generation, None)
        return True

    def answered(self, generation: GenerationId, groups: frozenset[str] | None, place: Place | None) -> None:
        """What was asked for is here, or is not to be had."""
        if place is not None:
            self._has(generation, place)
            return
        self._drop(generation)
        if self._allowed is not None:
            self._vain.add(groups)

    def release(self, generation: GenerationId) -> bool:
        """A generation has ended; whether the fleet is to be told of its place at once."""
        place = self._places.get(generation)
        self._drop(generation)
        if place is not None and len(self._spare) < self._most:
            self._has_spare(generation, place)
        return self._allowed is None

    def lost(self, drafter: DrafterId) -> None:
        """It did not answer, or not as it should: nobody else is to be sent there."""
        for name in [name for name, (at, _) in self._spare.items() if at == drafter]:
            self._drop(name)

    def heartbeat(self, report: CoordinatorReport, settings: FleetSettings) -> Heartbeat:
        """What the fleet is to be told now."""
        self._recent.append(self._taken)
        self._taken = 0
        self._vain.clear()
        for name in list(self._spare)[: max(0, len(self._spare) - self._most)]:
            self._drop(name)
        lacking = self._most - len(self._spare)
        wanted = tuple(f"place {self.owner} {self._named + number}" for number in range(lacking))
        self._named += lacking
        if self._number % _EVERYTHING_EVERY == 0:
            self._acknowledged = None
        self._number += 1
        self._unconfirmed |= self._changed
        self._changed.clear()
        everything = self._acknowledged is None
        named = self._held if everything else self._unconfirmed
        return Heartbeat(
            state_of(report),
            packed(report),
            self._session,
            self._number,
            held={name: self._held[name] for name in named if name in self._held},
            ended=() if everything else tuple(name for name in named if name not in self._held),
            since=self._acknowledged,
            settings=settings if everything else None,
            settings_number=self._settings_number,
            spare=frozenset(self._spare),
            wanted=wanted,
            known=self._known,
        )

    def heard(self, news: FleetNews) -> None:
        """What it has answered to the last heartbeat."""
        self._known = news.mark
        if news.settings_number is not None:
            self._settings_number = news.settings_number
        self._unconfirmed.clear()
        if news.tell_all:
            self._acknowledged = None
            return
        self._acknowledged, self._allowed = self._number, news.most_spare
        for name in news.withdrawn:
            if name in self._spare:
                self._drop(name)
        for name, drafter, handle in news.places:
            self._has_spare(name, (drafter, handle))

    @property
    def _most(self) -> int:
        """Places to have at hand."""
        return min(self._allowed or 0, max(self._recent, default=0))

    def _has(self, generation: GenerationId, place: Place) -> None:
        self._places[generation] = place
        self._hold(generation, place[0])

    def _has_spare(self, name: GenerationId, place: Place) -> None:
        self._spare[name] = place
        self._hold(name, place[0])

    def _hold(self, name: GenerationId, drafter: DrafterId | None) -> None:
        self._held[name] = drafter
        self._changed.add(name)

    def _drop(self, name: GenerationId) -> None:
        if name in self._held:
            del self._held[name]
            self._changed.add(name)
        self._places.pop(name, None)
        self._spare.pop(name, None)
