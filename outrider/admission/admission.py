"""Who is let in, who waits and who is refused. A state machine without a clock: time is an argument.

Whoever drives it tells of what happened (``ask``, ``withdraw``, ``ends``) and then has it ``decide``; again at
``due_at_s``, when somebody has waited for long enough. The order:

1. resumed responses, whose clients have been answered: they need a place, no more;
2. responses that would be promised a speed: those of classes that refusals fell on more than on others, then by
   arrival. One that has no room may be passed by others that need less for half of the time it may wait; from then on,
   or if it is of such a class, what becomes free is kept for it, unless its class was given more time than others. So
   time falls to the classes alike. Behind all of them, and only where none is made, come promises in vain: those that
   could not be kept with the verifier to itself;
3. best effort: those suspended first, then by arrival.

Of one precedence responses take turns by account (``account_places``): arrival is the order of those of one account.

Best effort takes whatever places are free, and never delays a promise: if that needs a place or KV, the youngest best
effort is *suspended*, down to a floor which promises leave to it. Suspended is not lost: it begins no round until it is
continued, and its KV may be evicted.

A response whose reader stands still is *stalled*: it has neither place nor promise until its reader goes on, and its KV
may be evicted. From then on it is suspended, and comes before what its account has not begun.

A response waits for each class it allows in turn, the preferred one first, and is refused when its last wait is over or
when more wait than may. Lengths are not known: what a class had lately is expected of the next.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from math import ceil, inf

from outrider.admission.account_places import PATIENCE_S, AccountPlaces, last_in_queue
from outrider.admission.decisions import (
    AdmissionRefused,
    AdmissionReport,
    AdmissionRequest,
    Admitted,
    ClassAdmission,
    Decisions,
    Lack,
    Shortage,
)
from outrider.admission.fairness import Fairness
from outrider.admission.history import Histories
from outrider.admission.price import VerifierNow, response_load, useful_share
from outrider.admission.responses import DecisionDraft, TrackedResponse
from outrider.admission.room import Bounds, Needs, Sums, best_effort_shortage, promised_shortage, sums_of
from outrider.admission.rules import AdmissionRules
from outrider.admission.trust import Trusts
from outrider.contracts.requests import GenerationId
from outrider.contracts.slo import SloClass

_PASSED_SHARE = 0.5  # of its wait, in which others may pass a response that has no room
_REPRICED_S = 1.0  # what active responses need is priced anew as often, at most
_LONGEST_RETRY_S = 120
_RETRY_UNKNOWN_S = 5.0
_LEAST_SHARE = 0.05  # what leaves less to rows is no dearer


class Admission:
    def __init__(self, rules: AdmissionRules) -> None:
        """Nobody asks. ``rules`` may be replaced: whoever waits then goes on waiting for as long as it was to."""
        self.rules = rules
        self._waiting: dict[GenerationId, TrackedResponse] = {}
        self._active: dict[GenerationId, TrackedResponse] = {}
        self._suspended: dict[GenerationId, TrackedResponse] = {}
        self._stalled: dict[GenerationId, tuple[TrackedResponse, float]] = {}  # and since when
        self._histories, self._trusts, self._fairness = Histories(), Trusts(), Fairness()
        self._accounts, self._turn_at_s = AccountPlaces(), inf
        self._counts: dict[str, Counter[str]] = {}
        self._pressure = self._limit = 0.0
        self._decided: tuple[float, VerifierNow] | None = None  # when last, and of what

    @property
    def active(self) -> int:
        """Responses that are being made, without those suspended."""
        return len(self._active)

    @property
    def waiting(self) -> int:
        """Responses that wait to be begun."""
        return len(self._waiting)

    @property
    def due_at_s(self) -> float:
        """When somebody will have waited for long enough, at the latest; infinity if nobody waits."""
        return min(self._turn_at_s, min((one.until_s for one in self._waiting.values()), default=inf))

    def ask(self, asked: AdmissionRequest) -> None:
        """A response is to be begun; ``decide`` says whether."""
        self._waiting[asked.name] = TrackedResponse(asked, self.rules, since_s=asked.asked_at_s)
        self._accounts.service.join(asked.account)
        self._count(asked.classes[0], "asked")

    def withdraw(self, name: GenerationId) -> None:
        """Nobody waits for a response any more that has not been begun; one that was is no matter of this."""
        if (one := self._waiting.pop(name, None)) is not None:
            self._accounts.service.remove(one.account)
            self._count(one.asked.classes[0], "left")

    def stalls(self, name: GenerationId, now_s: float) -> None:
        """Nobody reads a response that was begun: others have its place."""
        self._accounts.count(self._active.values(), now_s)
        one = self._active.pop(name, None) or self._suspended.pop(name, None)
        if one is not None:
            self._stalled[name] = one, now_s

    def reads(self, name: GenerationId, now_s: float) -> None:
        """Its reader goes on: it waits for a place, as one that is suspended."""
        if name in self._stalled:
            one, since_s = self._stalled.pop(name)
            one.begun_at_s += now_s - since_s  # how long responses take is no matter of their readers
            one.since_s = now_s  # and nothing was kept for it meanwhile
            self._suspended[name] = one

    def ends(self, name: GenerationId, now_s: float, output_tokens: int | None = None, *, kept: bool = True) -> None:
        """A response that was begun is over.

        Args:
            name: whose.
            now_s: absolute.
            output_tokens: that it had; None if it did not end by itself, which says nothing of lengths or promises.
            kept: whether its promise was.
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
        if one.promised and (kept or one.needs is None or not one.needs.in_vain):
            self._trusts.ended(one.slo.name, kept=kept, pressure=self._pressure)

    def decide(self, now_s: float, verifier: VerifierNow) -> Decisions:
        """What changes now that all this has happened."""
        self._decided = now_s, verifier
        self._accounts.count(self._active.values(), now_s)
        self._turn_at_s = inf
        made = self._round(now_s, verifier)
        self._begin_promised(made)
        self._begin_best_effort(made)
        while self._pass_on(made):  # to a class that is asked for less
            self._begin_promised(made)
            self._begin_best_effort(made)
        self._refuse_beyond_bound(made)
        self._limit = made.bounds.load(made.promised.share)
        self._pressure = made.promised.load / self._limit if self._limit else 1.0
        return made.decisions()

    def report(self) -> AdmissionReport:
        """How it stands, as of the last decision."""
        held = sums_of(one.needs for one in self._active.values() if one.needs is not None)
        waiting = Counter(one.slo.name for one in self._waiting.values())
        active = Counter(one.slo.name for one in self._active.values())
        classes = {
            name: replace(_counted(self._counts[name]), waiting=waiting[name], active=active[name])
            for name in sorted(self._counts)  # none waits or is made that was not counted
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
        """Begin those that have room, in order."""
        keeps = False  # what becomes free is kept for one before
        waiting = self._promised_waiting(made.bounds)
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
        scarce = (Lack.PLACES, Lack.MEMORY)
        pressed = any(
            made.shortages[one.asked.name].lack in scarce
            for one in self._waiting.values()
            if one.promised and one.asked.name in made.shortages
        )
        short = set[str]()  # accounts whose next has no room, or took a turn: what is free is not for those behind
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
                    other = self._accounts.gives_way(one.account, active, made.bounds.places_of)
                if other is None:
                    return  # nor does anybody give way to those behind, who hold no fewer
                if not self._take_turn(one, needs, other, made, pressed=pressed):
                    continue
            made.best_effort = made.best_effort.plus(needs)
            self._begin(one, made)

    def _take_turn(
        self, one: TrackedResponse, needs: Needs, other: TrackedResponse, made: DecisionDraft, *, pressed: bool
    ) -> bool:
        """Suspend another account's response where there is room for this one then; whether it was."""
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
        """Suspend best effort above its floor, the youngest first, as far as a promise needs its place or its KV.

        There are as many places as by the widest rules by which anybody was begun: fewer do not suspend those.
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
            self._fairness.decided(one.slo.name, refused=False, price=1.0 / max(share, _LEAST_SHARE))
        if one.turn:
            self._count(one.asked.classes[0], "lowered")

    def _pass_on(self, made: DecisionDraft) -> bool:
        """Have those who waited for long enough wait for their next class, or refuse them; whether any was passed."""
        over = [one for one in self._waiting.values() if made.now_s >= one.until_s]
        last = [one for one in over if one.turn + 1 == len(one.asked.classes)]
        for one in over:
            if one.turn + 1 < len(one.asked.classes):
                self._lower(one, made.now_s)
        self._refuse(last, made)
        return len(over) > len(last)

    def _lower(self, one: TrackedResponse, now_s: float) -> None:
        one.turn, one.since_s, one.needs = one.turn + 1, now_s, None

    def _refuse_beyond_bound(self, made: DecisionDraft) -> None:
        """Of more than may wait the last are refused (``last_in_queue``); or they have their lower class.

        No one that found room to wait under other rules is refused.
        """
        most = self.rules.max_waiting
        while len(self._waiting) + len(self._suspended) > most:
            refusable = [one for one in self._waiting.values() if one.rules == self.rules]
            last = last_in_queue([*self._waiting.values(), *self._suspended.values()], refusable, most)
            if last is None:
                return
            if last.turn + 1 < len(last.asked.classes):
                self._lower(last, made.now_s)
                self._begin_promised(made)
                self._begin_best_effort(made)
                continue
            made.shortages[last.asked.name] = Shortage(Lack.QUEUE, 1.0, most, most)
            self._refuse([last], made)

    def _refuse(self, refused: Sequence[TrackedResponse], made: DecisionDraft) -> None:
        """All at once: whoever is told when to come back is not the only one who does."""
        for one in refused:
            name, waited_s = one.asked.name, made.now_s - one.asked.asked_at_s
            shortage = made.shortages.get(name) or self._shortage_behind_others(one, made)
            retry_after_s = self._retry_after_s(one, shortage, made)
            made.refused.append(AdmissionRefused(name, one.slo, shortage, waited_s, retry_after_s))
            self._count(one.asked.classes[0], "refused")
            if one.promised:
                self._fairness.decided(one.slo.name, refused=True, price=0.0)
                self._trusts.refused(one.slo.name)
        for one in refused:
            del self._waiting[one.asked.name]
            self._accounts.service.remove(one.account)

    def _shortage_behind_others(self, one: TrackedResponse, made: DecisionDraft) -> Shortage:
        """Of one that had no turn, as room is kept for others."""
        needs = self._needs(one, made.now_s, made.verifier)
        if one.promised:
            allowed = made.bounds.load(min(made.promised.share, needs.share))
            return Shortage(Lack.LOAD, needs.load, made.promised.load, allowed)
        return Shortage(Lack.PLACES, 1.0, made.promised.places + made.best_effort.places, made.bounds.places)

    def _retry_after_s(self, one: TrackedResponse, shortage: Shortage, made: DecisionDraft) -> int:
        """When what it lacks should be there, those before it served: what is missing over how fast it becomes free."""

        def amount(other: TrackedResponse) -> float:
            needs = self._needs(other, made.now_s, made.verifier)
            if shortage.lack is Lack.LOAD:
                return needs.load
            return needs.kv_tokens if shortage.lack is Lack.MEMORY else 1.0

        before = [other for other in self._waiting.values() if other.promised or not one.promised]
        missing = sum(map(amount, before))
        if shortage.lack is not Lack.QUEUE:
            missing += shortage.held - shortage.allowed
        freed_per_s = sum(
            amount(other) / self._histories.of(other.slo.name).takes_s(other.slo.tokens_per_s)
            for other in self._active.values()
        )
        seconds = missing / freed_per_s if freed_per_s > 0.0 else _RETRY_UNKNOWN_S
        return max(1, ceil(min(seconds, _LONGEST_RETRY_S)))

    def _promised_waiting(self, bounds: Bounds) -> list[TrackedResponse]:
        """Resumed ones, those of classes that were refused too often, suspended ones; then by turn and arrival."""

        def precedence(one: TrackedResponse) -> tuple[bool, bool]:
            return not one.asked.resumed, not self._behind(one)

        suspended = [one for one in self._suspended.values() if one.promised]
        waiting = [one for one in self._waiting.values() if one.promised]
        waiting.sort(key=lambda one: one.asked.asked_at_s)
        both = sorted((*suspended, *waiting), key=precedence)
        return [one for _, alike in groupby(both, precedence) for one in self._in_turn(list(alike), bounds)]

    def _keeps_room(self, one: TrackedResponse, now_s: float) -> bool:
        """Whether no other may pass it any more."""
        waited = now_s - one.since_s >= _PASSED_SHARE * one.wait_s
        return self._behind(one) or (waited and not self._fairness.ahead(one.slo.name))

    def _behind(self, one: TrackedResponse) -> bool:
        return self._fairness.behind(one.slo.name)

    def _best_effort_waiting(self, bounds: Bounds) -> Iterable[TrackedResponse]:
        """Suspended ones first, then resumed ones, then by arrival; accounts take turns. Few of many are looked at."""
        waiting = [one for one in self._waiting.values() if not one.promised]
        waiting.sort(key=lambda one: (not one.asked.resumed, one.asked.asked_at_s))
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
        share = useful_share(slo.tokens_per_s, verifier) * self._trusts.of(slo.name)
        one.needs = Needs(load, *kv, share=share, in_vain=load > self.rules.max_load * share)
        one.priced_at_s = now_s
        return one.needs

    def _count(self, slo: SloClass, what: str) -> None:
        self._counts.setdefault(slo.name, Counter())[what] += 1


def _counted(counts: Counter[str]) -> ClassAdmission:
    return ClassAdmission(**counts)
