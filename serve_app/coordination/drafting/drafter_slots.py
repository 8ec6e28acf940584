"""Keeps a coordinator's drafter leases, those of its generations and spare slots, and writes its heartbeats. Pure.

In a small cluster there are no spare slots: each generation leases and releases by a call of its own. Where there are
many coordinators the fleet grants spare slots in bulk, in its answers to heartbeats. A generation then takes a spare
slot and leaves it behind when it ends. No call is needed for either, as the fleet takes the next heartbeat for the
truth. A generation that finds no spare slot asks the fleet, until one such call was in vain; the others then wait for
the next heartbeat. A lease is entered under the name of the generation that had it last.

A heartbeat carries what has changed since the last one that was answered. It carries everything the first time, when
the fleet asks for it, and every 60 heartbeats, so that no difference between the two lasts.
"""

import random
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from actors.heartbeats import FleetNews, Heartbeat, NewsMark, packed, state_of
from actors.messages import CoordinatorReport, DrafterId, FleetSettings
from outrider.contracts.requests import GenerationId

_REMEMBERED = 10  # heartbeats; spare slots wanted: the most that were taken between two of these
_EVERYTHING_EVERY = 60  # heartbeats

Place = tuple[DrafterId, Any]  # with the drafter's handle


class DrafterSlots:
    def __init__(self, owner: str) -> None:
        """Start without leases; ``owner`` is the coordinator's id."""
        self.owner = owner
        self._held: dict[GenerationId, DrafterId | None] = {}  # all leases; None: asked for, not answered yet
        self._places: dict[GenerationId, Place] = {}  # of generations
        self._spare: dict[GenerationId, Place] = {}  # spare slots, the longest unused first
        self._allowed: int | None = None  # most spare slots; None: leases are asked for and given back one by one
        self._vain: set[frozenset[str] | None] = set()  # groups that were asked for in vain since the last heartbeat
        self._taken = self._named = 0
        self._recent: deque[int] = deque(maxlen=_REMEMBERED)
        self._session, self._number = random.getrandbits(48), 0
        self._acknowledged: int | None = None  # number of the last heartbeat that was answered; None: send everything
        self._changed = set[GenerationId]()  # names whose lease has changed since the last heartbeat
        self._unconfirmed = set[GenerationId]()  # names in heartbeats that were not answered
        self._known: NewsMark | None = None
        self._settings_number: int | None = None

    @property
    def in_use(self) -> int:
        """Generations that have leased a drafter, or are about to."""
        return len(self._held) - len(self._spare)

    @property
    def held(self) -> Mapping[GenerationId, DrafterId | None]:
        """All leases; None where the fleet has not answered yet."""
        return self._held

    @property
    def at_hand(self) -> int:
        return len(self._spare)

    def take(
        self, generation: GenerationId, exclude: Collection[DrafterId], groups: frozenset[str] | None
    ) -> Place | None:
        """Take a spare slot of ``groups`` (None: of any) for a generation; None if there is none."""
        self._taken += 1
        self._drop(generation)
        for name, (drafter, _) in self._spare.items():
            if drafter not in exclude and (groups is None or drafter.group in groups):
                place = self._spare[name]
                self._drop(name)
                self._place(generation, place)
                return place
        return None

    def begin_lease(self, generation: GenerationId, groups: frozenset[str] | None) -> bool:
        """Return whether the caller is to ask the fleet now; if so, count the lease as held.

        A heartbeat may overtake the answer, and the fleet ends leases that a heartbeat does not name.
        """
        if groups in self._vain:
            return False
        self._hold(generation, None)
        return True

    def answered(self, generation: GenerationId, groups: frozenset[str] | None, place: Place | None) -> None:
        """Enter the fleet's answer to a call that ``begin_lease`` allowed; None: it had none."""
        if place is not None:
            self._place(generation, place)
            return
        self._drop(generation)
        if self._allowed is not None:
            self._vain.add(groups)

    def release(self, generation: GenerationId) -> bool:
        """End a generation's lease or keep it as a spare slot; return whether to call the fleet at once."""
        place = self._places.get(generation)
        self._drop(generation)
        if place is not None and len(self._spare) < self._most:
            self._place_spare(generation, place)
        return self._allowed is None

    def lost(self, drafter: DrafterId) -> None:
        """Drop the spare slots at a drafter that did not answer or answered wrongly."""
        for name in [name for name, (at, _) in self._spare.items() if at == drafter]:
            self._drop(name)

    def heartbeat(self, report: CoordinatorReport, settings: FleetSettings) -> Heartbeat:
        """Return the next heartbeat. Its answer, if one comes, must be given to ``heard`` before the next call."""
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
            self._place_spare(name, (drafter, handle))

    @property
    def _most(self) -> int:
        return min(self._allowed or 0, max(self._recent, default=0))

    def _place(self, generation: GenerationId, place: Place) -> None:
        self._places[generation] = place
        self._hold(generation, place[0])

    def _place_spare(self, name: GenerationId, place: Place) -> None:
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
