"""Decide which responses are begun, wait or are refused. A state machine without a clock: time is an argument.

The caller reports events (``ask``, ``withdraw``, ``stall``, ``unstall``, ``end``) and then calls ``decide``; again at
``due_at_s``, when a wait ends. Responses are considered in this order:

1. resumed responses of a class with a promise: they were begun elsewhere and need a place only;
2. responses with a promise: classes refused more often than others first, then by arrival, promises in vain last;
3. best effort: suspended responses first, then resumed ones, then by arrival.

Within one precedence accounts take turns (``account_places``); priority, then arrival, orders the responses of one.
docs/design/0037 and 0064 say why. If a promise needs a place or KV, the youngest best-effort response is *suspended*,
down to a floor: it begins no round until it goes on, and its KV may be evicted.

A response whose client has stopped reading is *stalled*: it holds neither place nor promise, and its KV may be evicted.
When the client reads on, it is suspended, and goes before responses of its account that were not begun.

A response waits for each class it allows in turn, the preferred one first. It is refused when its last wait ends or
when too many wait. Output lengths are unknown: a class's recent mean is expected of the next response.
"""

from collections import Counter
from math import inf

from outrider.admission.deciding import Decision
from outrider.admission.decisions import AdmissionReport, AdmissionRequest, Decisions
from outrider.admission.response_load import VerifierNow
from outrider.admission.responses import TrackedResponse
from outrider.admission.room import Bounds, Sums, sums_of
from outrider.admission.rules import AdmissionRules
from outrider.admission.state import AdmissionState
from outrider.contracts.requests import GenerationId


class Admission:
    def __init__(self, rules: AdmissionRules) -> None:
        """Start empty. ``rules`` may be replaced at any time; responses that wait keep the rules they came under."""
        self.rules = rules
        self._state = AdmissionState()
        self._turn_at_s = inf
        self._pressure = self._limit = 0.0
        self._decided: tuple[float, Bounds] | None = None  # of the last decision

    @property
    def active(self) -> int:
        """Number of responses with a place; without those suspended or stalled."""
        return len(self._state.active)

    @property
    def waiting(self) -> int:
        return len(self._state.waiting)

    @property
    def due_at_s(self) -> float:
        """When ``decide`` must be called at the latest, as a wait or turn ends; infinity if nobody waits."""
        return min(self._turn_at_s, min((one.until_s for one in self._state.waiting.values()), default=inf))

    def ask(self, asked: AdmissionRequest) -> None:
        """Add a response that is to be begun; a later ``decide`` answers."""
        self._state.waiting[asked.name] = TrackedResponse(asked, self.rules, since_s=asked.asked_at_s)
        self._state.accounts.service.join(asked.account)
        self._state.counts.count(asked.classes[0].name, "asked")

    def withdraw(self, name: GenerationId) -> None:
        """Remove a waiting response whose client has left. No effect on a response that was begun."""
        if (one := self._state.waiting.pop(name, None)) is not None:
            self._state.accounts.service.remove(one.account)
            self._state.counts.count(one.asked.classes[0].name, "left")

    def stall(self, name: GenerationId, now_s: float) -> None:
        """Free the place of a response whose client has stopped reading."""
        if (one := self._take(name, now_s)) is not None:
            self._state.stalled[name] = one, now_s

    def unstall(self, name: GenerationId, now_s: float) -> None:
        """Let a stalled response wait for a place as a suspended one, as its client reads on."""
        if name in self._state.stalled:
            one, since_s = self._state.stalled.pop(name)
            one.begun_at_s += now_s - since_s  # stalls do not count in the class's mean duration
            one.since_s = now_s  # it waits from now on: nothing was kept for it before
            self._state.suspended[name] = one

    def end(self, name: GenerationId, now_s: float, output_tokens: int | None = None, *, kept: bool = True) -> None:
        """Remove a response that was begun and is over.

        ``output_tokens`` is None if it was cut off, which teaches nothing about lengths or promises.
        """
        one = self._take(name, now_s)
        if name in self._state.stalled:
            one, _ = self._state.stalled.pop(name)
        if one is not None:
            self._state.accounts.service.remove(one.account)
        if one is None or output_tokens is None:
            return
        self._state.counts.count(one.slo.name, "kept" if kept else "late")
        self._state.prices.ended(one, output_tokens, now_s, kept=kept, pressure=self._pressure)

    def _take(self, name: GenerationId, now_s: float) -> TrackedResponse | None:
        self._state.accounts.count(self._state.active.values(), now_s)
        return self._state.active.pop(name, None) or self._state.suspended.pop(name, None)

    def decide(self, now_s: float, verifier: VerifierNow) -> Decisions:
        """Return what changes, given all events since the last call."""
        self._state.accounts.count(self._state.active.values(), now_s)
        decision = Decision(self._state, self.rules, verifier, now_s)
        decision.begin()
        while decision.pass_on():  # a lowered response may fit at once in its next class
            decision.begin()
        decision.refuse_beyond_bound()
        self._decided, self._turn_at_s = (now_s, decision.bounds), decision.turn_at_s
        self._limit = decision.bounds.load(decision.promised.share)
        self._pressure = decision.promised.load / self._limit if self._limit else 1.0
        return decision.decisions()

    def report(self) -> AdmissionReport:
        state = self._state
        held = sums_of(one.needs for one in state.active.values() if one.needs is not None)
        queued, kv_limit = Sums(), None
        if self._decided is not None:
            queued = sums_of(state.prices.needs(one, *self._decided) for one in state.waiting.values())
            kv_limit = self._decided[1].verifier.kv_tokens
        return AdmissionReport(
            load=held.load,
            limit=self._limit,
            kv_tokens=held.kv_tokens,
            suspended=len(state.suspended),
            stalled=len(state.stalled),
            queued_load=queued.load,
            queued_kv_tokens=queued.kv_tokens,
            kv_limit=kv_limit,
            places=self.rules.max_active,
            classes=state.counts.classes(
                Counter(one.slo.name for one in state.waiting.values()),
                Counter(one.slo.name for one in state.active.values()),
            ),
        )
