"""Decide which responses are begun, wait or are refused. A state machine without a clock: time is an argument.

The caller reports events (``ask``, ``withdraw``, ``stall``, ``unstall``, ``end``) and then calls ``decide``; again at
``due_at_s``, when a wait ends. Responses are considered in this order:

1. resumed responses of a class with a promise: they were begun elsewhere and need a place only;
2. responses with a promise: first those of classes refused more often than others, then by arrival. If one does not
   fit, smaller ones may pass it for half of its wait. After that, or if its class was refused more often, what becomes
   free is kept for it, unless its class was given more verifier time than others. So classes get equal time. Behind all
   of these, and only while no promise is active, come promises in vain: those that could not be kept even with the
   verifier to themselves;
3. best effort, after all promises: suspended responses first, then resumed ones, then by arrival.

Within one precedence accounts take turns (``account_places``); priority, then arrival, orders the responses of one.

Best effort takes any free place and never delays a promise. If a promise needs a place or KV, the youngest best-effort
response is *suspended*, down to a floor that promises leave to it. A suspended response begins no round until it is
continued, and its KV may be evicted.

A response whose client has stopped reading is *stalled*: it holds neither place nor promise, and its KV may be evicted.
When the client reads on, it is suspended, and goes before responses of its account that were not begun.

A response waits for each class it allows in turn, the preferred one first. It is refused when its last wait ends or
when too many wait. Output lengths are unknown: a class's recent mean is expected of the next response.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from math import ceil, inf

from outrider.admission.account_places import PATIENCE_S, AccountPlaces, by_priority, last_in_queue
from outrider.admission.decisions import (
    AdmissionRefused,
    AdmissionReport,
    AdmissionRequest,
    Admitted,
    ClassAdmission,
    Decisions,
    ScarceResource,
    Shortage,
)
from outrider.admission.fairness import Fairness
from outrider.admission.history import Histories
from outrider.admission.response_load import VerifierNow, response_load, useful_share
from outrider.admission.responses import DecisionDraft, TrackedResponse
from outrider.admission.room import Bounds, Needs, Sums, best_effort_shortage, promised_shortage, sums_of
from outrider.admission.rules import AdmissionRules
from outrider.admission.share_correction import ShareCorrections
from outrider.contracts.requests import GenerationId
from outrider.contracts.slo import SloClass

_PASSED_SHARE = 0.5  # of a response's wait: until then others may pass it
_REPRICED_S = 1.0  # shortest time between two prices of one response
_LONGEST_RETRY_S = 120
_RETRY_UNKNOWN_S = 5.0  # where nothing active will free what is missing
_LEAST_SHARE = 0.05  # bounds a class's price at 20


class Admission:
    def __init__(self, rules: AdmissionRules) -> None:
        """Start empty. ``rules`` may be replaced at any time; responses that wait keep the rules they came under."""
        self.rules = rules
        self._waiting: dict[GenerationId, TrackedResponse] = {}
        self._active: dict[GenerationId, TrackedResponse] = {}
        self._suspended: dict[GenerationId, TrackedResponse] = {}
        self._stalled: dict[GenerationId, tuple[TrackedResponse, float]] = {}  # with the time it stalled
        self._histories, self._corrections, self._fairness = Histories(), ShareCorrections(), Fairness()
        self._accounts, self._turn_at_s = AccountPlaces(), inf
        self._counts: dict[str, Counter[str]] = {}
        self._pressure = self._limit = 0.0
        self._decided: tuple[float, VerifierNow] | None = None  # arguments of the last decision

    @property
    def active(self) -> int:
        """Number of responses with a place; without those suspended or stalled."""
        return len(self._active)

    @property
    def waiting(self) -> int:
        """Number of responses that wait to be begun."""
        return len(self._waiting)

    @property
    def due_at_s(self) -> float:
        """When ``decide`` must be called at the latest, as a wait or turn ends; infinity if nobody waits."""
        return min(self._turn_at_s, min((one.until_s for one in self._waiting.values()), default=inf))

    def ask(self, asked: AdmissionRequest) -> None:
        """Add a response that is to be begun; a later ``decide`` answers."""
        self._waiting[asked.name] = TrackedResponse(asked, self.rules, since_s=asked.asked_at_s)
        self._accounts.service.join(asked.account)
        self._count(asked.classes[0], "asked")

    def withdraw(self, name: GenerationId) -> None:
        """Remove a waiting response whose client has left. No effect on a response that was begun."""
        if (one := self._waiting.pop(name, None)) is not None:
            self._accounts.service.remove(one.account)
            self._count(one.asked.classes[0], "left")

    def stall(self, name: GenerationId, now_s: float) -> None:
        """Free the place of a response whose client has stopped reading."""
        self._accounts.count(self._active.values(), now_s)
        one = self._active.pop(name, None) or self._suspended.pop(name, None)
        if one is not None:
            self._stalled[name] = one, now_s

    def unstall(self, name: GenerationId, now_s: float) -> None:
        """Let a stalled response wait for a place as a suspended one, as its client reads on."""
        if name in self._stalled:
            one, since_s = self._stalled.pop(name)
            one.begun_at_s += now_s - since_s  # stalls do not count in the class's mean duration
            one.since_s = now_s  # it waits from now on: nothing was kept for it before
            self._suspended[name] = one

    def end(self, name: GenerationId, now_s: float, output_tokens: int | None = None, *, kept: bool = True) -> None:
        """Remove a response that was begun and is over.

        Args:
            name: its generation.
            now_s: absolute time.
            output_tokens: its length; None if it was cut off, which teaches nothing about lengths or promises.
            kept: whether its promise was kept.
        """
        self._accounts.count(self._active.values(), now_s)
        stalled, _ = self._stalled.pop(name, (None, 0.0))
        one = stalled or self._active.pop(name, None) or self._suspended.pop(name, None)
        if one is not None:
            self._accounts.service.remove(one.account)
        if one is None or output_tokens is None:
            return
        self._histories.ended(one.slo.name, output_tokens, now_s - one.begun_at_s)
        self._count(one.slo, "kept" if kept else "late")
        # That a promise in vain was late says nothing about prices.
        if one.promised and (kept or one.needs is None or not one.needs.in_vain):
            self._corrections.ended(one.slo.name, kept=kept, pressure=self._pressure)

    def decide(self, now_s: float, verifier: VerifierNow) -> Decisions:
        """Return what changes, given all events since the last call."""
        self._decided = now_s, verifier
        self._accounts.count(self._active.values(), now_s)
        self._turn_at_s = inf
        made = self._round(now_s, verifier)
        self._begin_promised(made)
        self._begin_best_effort(made)
        while self._pass_on(made):  # a lowered response may fit at once in its next class
            self._begin_promised(made)
            self._begin_best_effort(made)
        self._refuse_beyond_bound(made)
        self._limit = made.bounds.load(made.promised.share)
        self._pressure = made.promised.load / self._limit if self._limit else 1.0
        return made.decisions()

    def report(self) -> AdmissionReport:
        """Return the state as of the last decision."""
        held = sums_of(one.needs for one in self._active.values() if one.needs is not None)
        waiting = Counter(one.slo.name for one in self._waiting.values())
        active = Counter(one.slo.name for one in self._active.values())
        classes = {
            name: replace(_counted(self._counts.get(name, Counter())), waiting=waiting[name], active=active[name])
            for name in sorted({*self._counts, *waiting, *active})
        }
        queued, kv_limit = Sums(), None
        if self._decided is not None:
            queued = sums_of(self._needs(one, *self._decided) for one in self._waiting.values())
            kv_limit = self._decided[1].kv_tokens
        return AdmissionReport(
            load=held.load,
            limit=self._limit,
            kv_tokens=held.kv_tokens,
            suspended=len(self._suspended),
            stalled=len(self._stalled),
            queued_load=queued.load,
            queued_kv_tokens=queued.kv_tokens,
            kv_limit=kv_limit,
            places=self.rules.max_active,
            classes=classes,
        )

    def _begin_promised(self, made: DecisionDraft) -> None:
        """Begin promises that fit, in order."""
        keeps = False  # what becomes free is kept for a response before
        waiting = self._promised_waiting(made.bounds)
        # Promises in vain go last; the sort is stable.
        waiting.sort(key=lambda one: self._needs(one, made.now_s, made.verifier).in_vain and not one.asked.resumed)
        for one in waiting:
            resumed = one.asked.resumed
            if keeps and not resumed:
                continue
            needs = self._needs(one, made.now_s, made.verifier)
            shortage = promised_shortage(needs, made.promised, made.bounds, resumed=resumed)
            if shortage is None:
                self._make_room(needs, made)
                made.promised = made.promised.plus(needs)
                self._begin(one, made)
                continue
            made.shortages[one.asked.name] = shortage
            keeps = keeps or self._keeps_room(one, made.now_s)

    def _begin_best_effort(self, made: DecisionDraft) -> None:
        scarce = (ScarceResource.PLACES, ScarceResource.MEMORY)
        pressed = any(
            made.shortages[one.asked.name].resource in scarce
            for one in self._waiting.values()
            if one.promised and one.asked.name in made.shortages
        )
        # accounts whose next response does not fit or waits for its turn; those behind it wait as well
        short = set[str]()
        for one in self._best_effort_waiting(made.bounds):
            if one.account.name in short:
                continue
            needs = self._needs(one, made.now_s, made.verifier)
            shortage = best_effort_shortage(
                needs, made.promised, made.best_effort, made.bounds, pressed=pressed, resumed=one.asked.resumed
            )
            if short or shortage is not None:
                short.add(one.account.name)
                if shortage is not None:
                    made.shortages[one.asked.name] = shortage
                active = list(self._active.values())
                other = None
                if self._accounts.several:
                    other = self._accounts.pick_to_suspend(one.account, active, made.bounds.places_of)
                if other is None:
                    return  # the responses behind hold no fewer places: nobody gives way to them either
                if not self._take_turn(one, needs, other, made, pressed=pressed):
                    continue
            made.best_effort = made.best_effort.plus(needs)
            self._begin(one, made)

    def _take_turn(
        self, one: TrackedResponse, needs: Needs, other: TrackedResponse, made: DecisionDraft, *, pressed: bool
    ) -> bool:
        """Suspend ``other`` of another account if ``one`` fits then; return whether it was suspended."""
        own = [each.begun_at_s for each in self._active.values() if each.account.name == one.account.name]
        turn_at_s = max((one.since_s, *own)) + PATIENCE_S
        if one.asked.name in self._waiting and made.now_s < turn_at_s:
            self._turn_at_s = min(self._turn_at_s, turn_at_s)
            return False
        rest = [
            each.needs
            for each in self._active.values()
            if each is not other and not each.promised and each.needs is not None
        ]
        best_effort = sums_of(rest)
        if best_effort_shortage(needs, made.promised, best_effort, made.bounds, pressed=pressed, resumed=False):
            return False
        made.best_effort = best_effort
        self._suspend(other, made)
        return True

    def _suspend(self, one: TrackedResponse, made: DecisionDraft) -> None:
        name = one.asked.name
        self._suspended[name] = self._active.pop(name)
        if name in made.continued:
            made.continued.remove(name)
        else:
            made.suspended.append(name)

    def _make_room(self, needs: Needs, made: DecisionDraft) -> None:
        """Suspend best effort above its floor, youngest first, while a promise needs the place or KV.

        The number of places is the largest under whose rules an active response was begun: rules with fewer places
        suspend none of these.
        """
        if not made.best_effort.places:
            return
        above_floor = sorted(
            (one for one in self._active.values() if not one.promised), key=lambda one: one.begun_at_s
        )[made.bounds.floor_places :]
        places = max(made.bounds.places, *(one.rules.max_active for one in self._active.values()))
        while above_floor:
            together = made.promised.beside(made.best_effort)
            fits = together.plus(needs).kv_nearly_always <= made.bounds.kv_tokens
            if together.places < places and fits:
                return
            self._suspend(above_floor.pop(), made)
            made.best_effort = sums_of(
                one.needs for one in self._active.values() if not one.promised and one.needs is not None
            )

    def _begin(self, one: TrackedResponse, made: DecisionDraft) -> None:
        name = one.asked.name
        self._active[name] = one
        if self._suspended.pop(name, None) is not None:
            if name in made.suspended:
                made.suspended.remove(name)
            else:
                made.continued.append(name)
            return
        del self._waiting[name]
        one.begun_at_s = made.now_s
        made.admitted.append(Admitted(name, one.slo, made.now_s - one.asked.asked_at_s))
        self._count(one.slo, "admitted")
        if one.promised:
            share = 1.0 if one.needs is None else one.needs.share
            self._fairness.decided(one.slo.name, refused=False, time_factor=1.0 / max(share, _LEAST_SHARE))
        if one.class_index:
            self._count(one.asked.classes[0], "lowered")

    def _pass_on(self, made: DecisionDraft) -> bool:
        """Move responses whose wait is over to their next class, or refuse them; return whether any was moved."""
        over = [one for one in self._waiting.values() if made.now_s >= one.until_s]
        last = [one for one in over if one.class_index + 1 == len(one.asked.classes)]
        for one in over:
            if one.class_index + 1 < len(one.asked.classes):
                self._lower(one, made.now_s)
        self._refuse(last, made)
        return len(over) > len(last)

    def _lower(self, one: TrackedResponse, now_s: float) -> None:
        one.class_index, one.since_s, one.needs = one.class_index + 1, now_s, None

    def _refuse_beyond_bound(self, made: DecisionDraft) -> None:
        """Refuse or lower responses while more wait than allowed, in the order of ``last_in_queue``.

        A response that was accepted into the queue under other rules is not refused.
        """
        most = self.rules.max_waiting
        while len(self._waiting) + len(self._suspended) > most:
            refusable = [one for one in self._waiting.values() if one.rules == self.rules]
            last = last_in_queue([*self._waiting.values(), *self._suspended.values()], refusable, most)
            if last is None:
                return
            if last.class_index + 1 < len(last.asked.classes):
                self._lower(last, made.now_s)
                self._begin_promised(made)
                self._begin_best_effort(made)
                continue
            made.shortages[last.asked.name] = Shortage(ScarceResource.QUEUE, 1.0, most, most)
            self._refuse([last], made)

    def _refuse(self, refused: Sequence[TrackedResponse], made: DecisionDraft) -> None:
        """Refuse responses. All are counted as waiting until each has its retry time, as all of them will come back."""
        for one in refused:
            name, waited_s = one.asked.name, made.now_s - one.asked.asked_at_s
            shortage = made.shortages.get(name) or self._shortage_behind_others(one, made)
            retry_after_s = self._retry_after_s(one, shortage, made)
            made.refused.append(AdmissionRefused(name, one.slo, shortage, waited_s, retry_after_s))
            self._count(one.asked.classes[0], "refused")
            if one.promised:
                self._fairness.decided(one.slo.name, refused=True, time_factor=0.0)
                self._corrections.refused(one.slo.name)
        for one in refused:
            del self._waiting[one.asked.name]
            self._accounts.service.remove(one.account)

    def _shortage_behind_others(self, one: TrackedResponse, made: DecisionDraft) -> Shortage:
        """Return the shortage of a response that was not tried, because what is free is kept for others."""
        needs = self._needs(one, made.now_s, made.verifier)
        if one.promised:
            allowed = made.bounds.load(min(made.promised.share, needs.share))
            return Shortage(ScarceResource.LOAD, needs.load, made.promised.load, allowed)
        return Shortage(ScarceResource.PLACES, 1.0, made.promised.places + made.best_effort.places, made.bounds.places)

    def _retry_after_s(self, one: TrackedResponse, shortage: Shortage, made: DecisionDraft) -> int:
        """Return the seconds until it should fit behind those before it: what is missing over its rate of release."""

        def amount(other: TrackedResponse) -> float:
            needs = self._needs(other, made.now_s, made.verifier)
            if shortage.resource is ScarceResource.LOAD:
                return needs.load
            return needs.kv_tokens if shortage.resource is ScarceResource.MEMORY else 1.0

        before = [other for other in self._waiting.values() if other.promised or not one.promised]
        missing = sum(map(amount, before))
        if shortage.resource is not ScarceResource.QUEUE:
            missing += shortage.in_use - shortage.allowed
        # An active response frees what it holds once in its class's mean duration.
        freed_per_s = sum(
            amount(other) / self._histories.of(other.slo.name).mean_duration_s(other.slo.tokens_per_s)
            for other in self._active.values()
        )
        seconds = missing / freed_per_s if freed_per_s > 0.0 else _RETRY_UNKNOWN_S
        return max(1, ceil(min(seconds, _LONGEST_RETRY_S)))

    def _promised_waiting(self, bounds: Bounds) -> list[TrackedResponse]:
        """Return resumed responses, then classes refused too often, then others; accounts take turns in each."""

        def precedence(one: TrackedResponse) -> tuple[bool, bool]:
            return not one.asked.resumed, not self._is_behind(one)

        suspended = [one for one in self._suspended.values() if one.promised]
        waiting = [one for one in self._waiting.values() if one.promised]
        waiting = by_priority(sorted(waiting, key=lambda one: one.asked.asked_at_s))
        both = sorted((*suspended, *waiting), key=precedence)
        return [one for _, alike in groupby(both, precedence) for one in self._in_turn(list(alike), bounds)]

    def _keeps_room(self, one: TrackedResponse, now_s: float) -> bool:
        """Return whether no other response may pass it any more."""
        waited = now_s - one.since_s >= _PASSED_SHARE * one.wait_s
        return self._is_behind(one) or (waited and not self._fairness.is_ahead(one.slo.name))

    def _is_behind(self, one: TrackedResponse) -> bool:
        return self._fairness.is_behind(one.slo.name)

    def _best_effort_waiting(self, bounds: Bounds) -> Iterable[TrackedResponse]:
        """Return suspended responses, then resumed ones, then by arrival; accounts take turns. May be lazy."""
        waiting = [one for one in self._waiting.values() if not one.promised]
        waiting = by_priority(sorted(waiting, key=lambda one: (not one.asked.resumed, one.asked.asked_at_s)))
        return self._in_turn([*(one for one in self._suspended.values() if not one.promised), *waiting], bounds)

    def _in_turn(self, waiting: list[TrackedResponse], bounds: Bounds) -> Iterable[TrackedResponse]:
        if not self._accounts.several:
            return waiting
        return self._accounts.order(waiting, self._active.values(), bounds.places_of)

    def _round(self, now_s: float, verifier: VerifierNow) -> DecisionDraft:
        rules, promised, best_effort = self.rules, list[Needs](), list[Needs]()
        for one in self._active.values():
            (promised if one.promised else best_effort).append(self._needs(one, now_s, verifier))
        wanted = best_effort or any(
            not one.promised for each in (self._suspended, self._waiting) for one in each.values()
        )
        floor_share = rules.best_effort_floor if wanted else 0.0
        bounds = Bounds(
            places=rules.max_active,
            floor_places=rules.floor_places if wanted else 0,
            floor_share=floor_share,
            max_load=rules.max_load,
            weighs=rules.weighs,
            verifier=verifier,
        )
        return DecisionDraft(now_s, verifier, bounds, sums_of(promised), sums_of(best_effort))

    def _needs(self, one: TrackedResponse, now_s: float, verifier: VerifierNow) -> Needs:
        if one.needs is not None and now_s - one.priced_at_s < _REPRICED_S:
            return one.needs
        asked, slo, history = one.asked, one.slo, self._histories.of(one.slo.name)
        load = response_load(slo.tokens_per_s, asked.prompt_tokens, history.tokens(asked.most_tokens), verifier)
        kv = history.kv(asked.prompt_tokens, asked.most_tokens, verifier.block_tokens)
        # In vain: its load exceeds the capacity left by passes as short as its own speed requires.
        share = useful_share(slo.tokens_per_s, verifier) * self._corrections.of(slo.name)
        one.needs = Needs(load, *kv, share=share, in_vain=load > self.rules.max_load * share)
        one.priced_at_s = now_s
        return one.needs

    def _count(self, slo: SloClass, what: str) -> None:
        self._counts.setdefault(slo.name, Counter())[what] += 1


def _counted(counts: Counter[str]) -> ClassAdmission:
    return ClassAdmission(**counts)
