"""One decision of admission: which responses are begun, suspended, continued, passed to their next class or refused."""

from collections.abc import Sequence
from math import inf

from outrider.admission.account_places import PATIENCE_S, last_in_queue
from outrider.admission.decisions import AdmissionRefused, Admitted, Decisions, ScarceResource, Shortage
from outrider.admission.precedence import best_effort_in_order, keeps_room, promised_in_order
from outrider.admission.response_load import VerifierNow
from outrider.admission.responses import TrackedResponse
from outrider.admission.room import Bounds, Needs, best_effort_shortage, promised_shortage, sums_of
from outrider.admission.rules import AdmissionRules
from outrider.admission.state import AdmissionState
from outrider.contracts.requests import GenerationId

_LEAST_SHARE = 0.05  # bounds a class's price at 20


class Decision:
    """What one call of ``Admission.decide`` changes.

    Attributes:
        promised: needs of the active promises; ``best_effort``: of the others.
    """

    def __init__(self, state: AdmissionState, rules: AdmissionRules, verifier: VerifierNow, now_s: float) -> None:
        self._state, self._rules, self.now_s = state, rules, now_s
        active = state.active.values()
        others = (*active, *state.suspended.values(), *state.waiting.values())
        wanted = any(not one.promised for one in others)
        self.bounds = Bounds(
            places=rules.max_active,
            floor_places=rules.floor_places if wanted else 0,
            floor_share=rules.best_effort_floor if wanted else 0.0,
            max_load=rules.max_load,
            weighs=rules.weighs,
            verifier=verifier,
        )
        self.promised = sums_of([self._needs(one) for one in active if one.promised])
        self.best_effort = sums_of([self._needs(one) for one in active if not one.promised])
        self.turn_at_s = inf  # when an account that waits for its turn has it; infinity if none does
        self._admitted, self._refused = list[Admitted](), list[AdmissionRefused]()
        self._newly_suspended, self._continued = list[GenerationId](), list[GenerationId]()
        self._shortages: dict[GenerationId, Shortage] = {}

    def decisions(self) -> Decisions:
        changes = self._newly_suspended, self._continued
        return Decisions(tuple(self._admitted), tuple(self._refused), *map(tuple, changes))

    def begin(self) -> None:
        self._begin_promised()
        self._begin_best_effort()

    def _begin_promised(self) -> None:
        keeps = False  # what becomes free is kept for a response before
        waiting = promised_in_order(self._state, self.bounds)
        # Promises in vain go last; the sort is stable.
        waiting.sort(key=lambda one: self._needs(one).in_vain and not one.asked.resumed)
        for one in waiting:
            resumed = one.asked.resumed
            if keeps and not resumed:
                continue
            needs = self._needs(one)
            shortage = promised_shortage(needs, self.promised, self.bounds, resumed=resumed)
            if shortage is None:
                self._make_room(needs)
                self.promised = self.promised.plus(needs)
                self._begin(one)
                continue
            self._shortages[one.asked.name] = shortage
            keeps = keeps or keeps_room(one, self.now_s, self._state.fairness)

    def _begin_best_effort(self) -> None:
        scarce = (ScarceResource.PLACES, ScarceResource.MEMORY)
        pressed = any(
            self._shortages[one.asked.name].resource in scarce
            for one in self._state.waiting.values()
            if one.promised and one.asked.name in self._shortages
        )
        # accounts whose next response does not fit or waits for its turn; those behind it wait as well
        short = set[str]()
        for one in best_effort_in_order(self._state, self.bounds):
            if one.account.name in short:
                continue
            needs = self._needs(one)
            shortage = best_effort_shortage(
                needs, self.promised, self.best_effort, self.bounds, pressed=pressed, resumed=one.asked.resumed
            )
            if short or shortage is not None:
                short.add(one.account.name)
                if shortage is not None:
                    self._shortages[one.asked.name] = shortage
                active = list(self._state.active.values())
                other = None
                if self._state.accounts.several:
                    other = self._state.accounts.pick_to_suspend(one.account, active, self.bounds.places_of)
                if other is None:
                    return  # the responses behind hold no fewer places: nobody gives way to them either
                if not self._take_turn(one, needs, other, pressed=pressed):
                    continue
            self.best_effort = self.best_effort.plus(needs)
            self._begin(one)

    def _take_turn(self, one: TrackedResponse, needs: Needs, other: TrackedResponse, *, pressed: bool) -> bool:
        """Suspend ``other`` of another account if ``one`` fits then; return whether it was suspended."""
        own = [each.begun_at_s for each in self._state.active.values() if each.account.name == one.account.name]
        turn_at_s = max((one.since_s, *own)) + PATIENCE_S
        if one.asked.name in self._state.waiting and self.now_s < turn_at_s:
            self.turn_at_s = min(self.turn_at_s, turn_at_s)
            return False
        rest = [
            each.needs
            for each in self._state.active.values()
            if each is not other and not each.promised and each.needs is not None
        ]
        best_effort = sums_of(rest)
        if best_effort_shortage(needs, self.promised, best_effort, self.bounds, pressed=pressed, resumed=False):
            return False
        self.best_effort = best_effort
        self._suspend(other)
        return True

    def _suspend(self, one: TrackedResponse) -> None:
        name = one.asked.name
        self._state.suspended[name] = self._state.active.pop(name)
        if name in self._continued:
            self._continued.remove(name)
        else:
            self._newly_suspended.append(name)

    def _make_room(self, needs: Needs) -> None:
        """Suspend best effort above its floor, youngest first, while a promise needs the place or KV.

        The number of places is the largest under whose rules an active response was begun: rules with fewer places
        suspend none of these.
        """
        if not self.best_effort.places:
            return
        above_floor = sorted(
            (one for one in self._state.active.values() if not one.promised), key=lambda one: one.begun_at_s
        )[self.bounds.floor_places :]
        places = max(self.bounds.places, *(one.rules.max_active for one in self._state.active.values()))
        while above_floor:
            together = self.promised.beside(self.best_effort)
            fits = together.plus(needs).kv_nearly_always <= self.bounds.kv_tokens
            if together.places < places and fits:
                return
            self._suspend(above_floor.pop())
            self.best_effort = sums_of(
                one.needs for one in self._state.active.values() if not one.promised and one.needs is not None
            )

    def _begin(self, one: TrackedResponse) -> None:
        name = one.asked.name
        self._state.active[name] = one
        if self._state.suspended.pop(name, None) is not None:
            if name in self._newly_suspended:
                self._newly_suspended.remove(name)
            else:
                self._continued.append(name)
            return
        del self._state.waiting[name]
        one.begun_at_s = self.now_s
        self._admitted.append(Admitted(name, one.slo, self.now_s - one.asked.asked_at_s))
        self._state.counts.count(one.slo.name, "admitted")
        if one.promised:
            share = 1.0 if one.needs is None else one.needs.share
            self._state.fairness.decided(one.slo.name, refused=False, time_factor=1.0 / max(share, _LEAST_SHARE))
        if one.class_index:
            self._state.counts.count(one.asked.classes[0].name, "lowered")

    def pass_on(self) -> bool:
        """Move responses whose wait is over to their next class, or refuse them; return whether any was moved."""
        over = [one for one in self._state.waiting.values() if self.now_s >= one.until_s]
        last = [one for one in over if one.class_index + 1 == len(one.asked.classes)]
        for one in over:
            if one.class_index + 1 < len(one.asked.classes):
                self._lower(one)
        self._refuse(last)
        return len(over) > len(last)

    def _lower(self, one: TrackedResponse) -> None:
        one.class_index, one.since_s, one.needs = one.class_index + 1, self.now_s, None

    def refuse_beyond_bound(self) -> None:
        """Refuse or lower responses while more wait than allowed, in the order of ``last_in_queue``.

        A response that was accepted into the queue under other rules is not refused.
        """
        most = self._rules.max_waiting
        while len(self._state.waiting) + len(self._state.suspended) > most:
            refusable = [one for one in self._state.waiting.values() if one.rules == self._rules]
            last = last_in_queue([*self._state.waiting.values(), *self._state.suspended.values()], refusable, most)
            if last is None:
                return
            if last.class_index + 1 < len(last.asked.classes):
                self._lower(last)
                self.begin()
                continue
            self._shortages[last.asked.name] = Shortage(ScarceResource.QUEUE, 1.0, most, most)
            self._refuse([last])

    def _refuse(self, refused: Sequence[TrackedResponse]) -> None:
        """Refuse responses. All are counted as waiting until each has its retry time, as all of them will come back."""
        for one in refused:
            name, waited_s = one.asked.name, self.now_s - one.asked.asked_at_s
            shortage = self._shortages.get(name) or self._shortage_behind_others(one)
            retry_after_s = self._retry_after_s(one, shortage)
            self._refused.append(AdmissionRefused(name, one.slo, shortage, waited_s, retry_after_s))
            self._state.counts.count(one.asked.classes[0].name, "refused")
            if one.promised:
                self._state.fairness.decided(one.slo.name, refused=True, time_factor=0.0)
                self._state.prices.refused(one)
        for one in refused:
            del self._state.waiting[one.asked.name]
            self._state.accounts.service.remove(one.account)

    def _shortage_behind_others(self, one: TrackedResponse) -> Shortage:
        """Return the shortage of a response that was not tried, because what is free is kept for others."""
        needs = self._needs(one)
        if one.promised:
            allowed = self.bounds.load(min(self.promised.share, needs.share))
            return Shortage(ScarceResource.LOAD, needs.load, self.promised.load, allowed)
        return Shortage(ScarceResource.PLACES, 1.0, self.promised.places + self.best_effort.places, self.bounds.places)

    def _retry_after_s(self, one: TrackedResponse, shortage: Shortage) -> int:
        before = [other for other in self._state.waiting.values() if other.promised or not one.promised]
        active = self._state.active.values()
        return self._state.prices.retry_after_s(shortage, before, active, self.now_s, self.bounds)

    def _needs(self, one: TrackedResponse) -> Needs:
        return self._state.prices.needs(one, self.now_s, self.bounds)
