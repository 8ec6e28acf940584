"""Simulate one verifier with its coordinator: admission, rounds, steps and commits of the responses sent to it.

A simulation of one verifier has one ``SimVerifier``, a simulated fleet has many on one agenda. This module decides what
a coordinator decides. Its ``VerifierListener`` makes the requests and decides what follows a response's end.

What is modelled: a decision on who joins takes ``dispatch_s`` to reach the verifier, and a step's result takes
``reply_s`` (and the coordinator's own CPU time) to be committed. Meanwhile the verifier steps on by itself.
"""

from math import inf
from typing import Protocol

from lab.simulation.agenda import Agenda
from lab.simulation.device import SimDevice
from lab.simulation.drafted_rounds import NO_DRAFT
from lab.simulation.scenario import CoordinatorRules
from lab.simulation.server import SimStep, SimulatedServer, StepChanges
from outrider.admission.admission import Admission
from outrider.admission.decisions import AdmissionRefused, AdmissionReport, AdmissionRequest
from outrider.admission.response_load import VerifierNow
from outrider.admission.rounds import MeasuredRounds
from outrider.admission.rules import AdmissionRules
from outrider.rounds.present_load import PresentLoad
from outrider.rounds.promise_tracker import PromiseTracker
from outrider.scheduling.attribution import SpikeDetector
from outrider.scheduling.ledger import Ledger
from outrider.selection.modes import DRAFT

# Admission decides at least this often while a response waits, as a coordinator's heartbeat does.
_DECIDED_EVERY_S = 1.0

# A step's end is on the agenda before the changes planned during it, so at equal times the end runs first and the next
# step begins without them. A late plan is therefore made so much earlier that its changes still count.
_JUST_BEFORE_S = 1e-6


class CoordinatorCpu:
    __slots__ = ("_free_at_s", "_round_s", "_token_s", "busy_s")

    def __init__(self, round_s: float, token_s: float = 0.0) -> None:
        """Set the CPU time of each round in a step and of each committed token."""
        self._round_s, self._token_s = round_s, token_s
        self._free_at_s = 0.0
        self.busy_s = 0.0  # in all

    def done_at_s(self, at_s: float, step: SimStep) -> float:
        """Return when the result of a step that arrives at ``at_s`` is processed, first come, first served."""
        took_s = self._round_s * len(step.members)
        if self._token_s:
            took_s += self._token_s * sum(device.draft.accepted + 1 for device in step.members)
        self.busy_s += took_s
        self._free_at_s = max(at_s, self._free_at_s) + took_s
        return self._free_at_s


class SimAdmission:
    """The responses that wait for a coordinator's admission, and those that it suspends."""

    def __init__(self, rules: AdmissionRules, agenda: Agenda, verifier: "SimVerifier") -> None:
        self._admission, self._agenda, self._verifier = Admission(rules), agenda, verifier
        self.rounds = MeasuredRounds()
        self.waiting: dict[str, SimDevice] = {}  # the server does not know them
        self._begun: dict[str, SimDevice] = {}  # these may be suspended
        self._suspended: dict[str, SimDevice] = {}
        self._halted: set[str] = set()  # suspended responses whose next round is due
        self._decides_at_s = inf

    def report(self) -> AdmissionReport:
        return self._admission.report()

    def ask(self, device: SimDevice, now_s: float, *, resumed: bool) -> None:
        """Request a place for a response. Its length is not told, as in the product."""
        self.waiting[device.name] = device
        asked = AdmissionRequest(device.name, (device.account.slo,), device.prompt_tokens, now_s, resumed=resumed)
        self._admission.ask(asked)
        self._decide(now_s)

    def end(self, device: SimDevice, now_s: float) -> None:
        del self._begun[device.name]
        self._suspended.pop(device.name, None)
        self._admission.end(device.name, now_s, device.committed, kept=device.promised.kept)
        self._decide(now_s)

    def suspends(self, device: SimDevice) -> bool:
        return device.name in self._suspended

    def halt(self, device: SimDevice) -> None:
        """Take note that a suspended response's next round is due."""
        self._halted.add(device.name)

    def _decide(self, now_s: float) -> None:
        """Carry out admission's decisions, and schedule the next ones while a response waits."""
        admission = self._admission
        decisions = admission.decide(now_s, self._verifier.verifier_now(self.rounds))
        for admitted in decisions.admitted:
            device = self._begun[admitted.name] = self.waiting.pop(admitted.name)
            self._verifier.admit(device, now_s)
        for refused in decisions.refused:
            self._verifier.refuse(self.waiting.pop(refused.name), refused, now_s)
        for name in decisions.suspended:
            self._suspended[name] = self._begun[name]
        for name in decisions.continued:
            device = self._suspended.pop(name)
            if name in self._halted:
                self._halted.remove(name)
                self._verifier.draft(device, now_s)
        if admission.waiting and not now_s < self._decides_at_s < inf:
            self._decides_at_s = min(admission.due_at_s, now_s + _DECIDED_EVERY_S)
            self._agenda.at(self._decides_at_s, self._decided, None)

    def _decided(self, _: object, now_s: float) -> None:
        if not self._verifier.down:
            self._decide(now_s)
            self._verifier.serve(now_s)


class VerifierListener(Protocol):
    def admitted(self, device: SimDevice, now_s: float) -> None:
        """Handle the begin of a response, or of its continuation after the loss of another verifier."""
        ...

    def stepped(self, step: SimStep) -> None: ...

    def first_token(self, device: SimDevice, now_s: float) -> None: ...

    def round(self, device: SimDevice, tokens: int, now_s: float) -> None:
        """Handle the commit of a round after the first token."""
        ...

    def over(self, device: SimDevice, now_s: float) -> None:
        """Handle the commit of a response's last token; the verifier still has its KV and its place."""
        ...

    def next(self, device: SimDevice, now_s: float) -> None:
        """Handle the release of an ended response's place; the device may make another request."""
        ...

    def refused(self, device: SimDevice, refused: AdmissionRefused, now_s: float) -> None: ...


class SimVerifier:
    """A coordinator and its verifier. Once ``down`` (lost), events that are still on the agenda have no effect."""

    def __init__(
        self,
        agenda: Agenda,
        server: SimulatedServer,
        listener: VerifierListener,
        rules: CoordinatorRules,
        *,
        load: PresentLoad | None = None,
        cpu: CoordinatorCpu | None = None,
    ) -> None:
        """Create a verifier without any responses.

        ``load`` is updated with what is measured, if given. Without ``cpu`` the coordinator's own work takes no time.
        """
        self._agenda, self._server, self._listener = agenda, server, listener
        self._load, self._cpu = load, cpu
        self._rules, self._plan_at_s = rules, 0.0  # no plan is made before
        self._spikes = SpikeDetector()
        self._admission = None if rules.admission is None else SimAdmission(rules.admission, agenda, self)
        self._begun: dict[str, SimDevice] = {}
        self.down = False

    def ask(self, device: SimDevice, now_s: float) -> None:
        device.ask(now_s, self._tracker_of(device, now_s))
        if self._admission is None:
            self._begin(device, now_s)
        else:
            device.done = True  # no promise counts before it begins
            self._admission.ask(device, now_s, resumed=False)
        self.serve(now_s)

    def resume(self, device: SimDevice, now_s: float) -> None:
        """Continue a response that another verifier lost; its ledger goes on, so the lost time is a debt."""
        if self._admission is None:
            self._go_on(device, now_s)
        else:
            self._admission.ask(device, now_s, resumed=True)
        self.serve(now_s)

    def lose(self) -> list[SimDevice]:
        """Lose coordinator and verifier; return the devices whose responses were here, begun or not, by name."""
        self.down = True
        waiting = {} if self._admission is None else self._admission.waiting
        return [one for _, one in sorted((waiting | self._begun).items())]

    def again(self, device: SimDevice, now_s: float) -> None:
        """Begin another round in place of the one under way, whose draft is lost."""
        self.draft(device, now_s)
        self.serve(now_s)

    def report(self) -> AdmissionReport | None:
        return None if self._admission is None else self._admission.report()

    def verifier_now(self, rounds: MeasuredRounds) -> VerifierNow:
        return self._server.now(rounds.shape(DRAFT))

    def admit(self, device: SimDevice, now_s: float) -> None:
        """Begin a response, or go on with one that another verifier lost."""
        if device.done:
            self._begin(device, now_s)
        else:
            self._go_on(device, now_s)

    def refuse(self, device: SimDevice, refused: AdmissionRefused, now_s: float) -> None:
        self._listener.refused(device, refused, now_s)

    def _begin(self, device: SimDevice, now_s: float) -> None:
        device.done = False
        device.arrived_at_s = now_s
        # A first token's deadline counts from here, not from the request.
        device.promised = self._tracker_of(device, now_s)
        self._begun[device.name] = device
        self._listener.admitted(device, now_s)
        self._server.enqueue(device, now_s)

    def _go_on(self, device: SimDevice, now_s: float) -> None:
        """Begin with a round of the target alone: it recomputes the prefix and commits the token after it."""
        device.begin_round(NO_DRAFT, now_s)
        self._begun[device.name] = device
        self._listener.admitted(device, now_s)
        self._server.enqueue(device, now_s)

    def _tracker_of(self, device: SimDevice, now_s: float) -> PromiseTracker:
        promised = device.account.tokens_per_s
        ledger = Ledger(promised, now_s + self._rules.first_token_s if promised else inf)
        return PromiseTracker(ledger, self._server.deadlines, self._spikes, self._server.kv_is_short)

    def serve(self, now_s: float) -> None:
        """Begin a step if the verifier is idle and has blocks, and plan who joins its steps.

        With a ``dispatch_s`` a plan made now cannot reach a step that begins now, so the step is begun first. Without
        one the plan counts at once, so it is made first.
        """
        server = self._server
        if server.dispatch_s > 0.0:
            self._step(now_s)
        if now_s < self._plan_at_s:
            return
        if self._rules.plans_once and server.is_stepping:
            self._plan_at_s = inf
        changes = server.let_in(now_s)
        if changes is not None:
            later_s = changes.hold_s or server.dispatch_s
            if later_s > 0.0:
                self._agenda.at(now_s + later_s, self._apply, changes)
            else:
                server.apply(changes)
        if server.dispatch_s == 0.0:
            self._step(now_s)

    def _apply(self, changes: StepChanges, now_s: float) -> None:
        if not self.down:
            self._server.apply(changes)
            self.serve(now_s)

    def _planned(self, _: object, now_s: float) -> None:
        if not self.down:
            self.serve(now_s)

    def _step(self, now_s: float) -> None:
        step = self._server.step(now_s)
        if step is not None:
            self._listener.stepped(step)
            ends_at_s = step.entry.ends_at_s
            self._agenda.at(ends_at_s, self._ended, step)
            if self._rules.plans_late:
                self._plan_at_s = max(now_s, ends_at_s - self._server.dispatch_s - _JUST_BEFORE_S)
                self._agenda.at(self._plan_at_s, self._planned, step)

    def _ended(self, step: SimStep, now_s: float) -> None:
        if self.down:
            return
        self._server.ended(step)
        if self._rules.plans_once:
            self._plan_at_s = 0.0
        told_at_s = now_s + self._server.reply_s
        if self._cpu is not None:
            told_at_s = self._cpu.done_at_s(told_at_s, step)
        if told_at_s > now_s:
            self._agenda.at(told_at_s, self._completed, step)
            self.serve(now_s)
        else:
            self._completed(step, now_s)

    def _completed(self, step: SimStep, now_s: float) -> None:
        if self.down:
            return
        if self._load is not None:
            self._load.batch(len(step.members), DRAFT, step.entry.took_s)
        for device in self._server.completed(step):
            self._commit(device, now_s, follows=device.number in step.going_on)
        self.serve(now_s)

    def _commit(self, device: SimDevice, now_s: float, *, follows: bool) -> None:
        """Commit a verified block and begin what follows; ``follows``: the verifier makes the next round by itself."""
        tokens = device.draft.accepted + 1
        device.committed += tokens
        if device.first_at_s is None:
            device.first_at_s = now_s
            self._listener.first_token(device, now_s)
        else:
            self._listener.round(device, tokens, now_s)
            if self._admission is not None:
                away_s = now_s - device.began_at_s - device.queue_s - device.verify_s
                self._admission.rounds.round(device.own_rows, tokens, away_s, DRAFT)
        if self._load is not None and not device.follows:
            other_s = now_s - device.arrived_at_s - device.queue_s - device.verify_s
            self._load.round(device.queue_s, other_s, DRAFT)
        device.promised.committed(tokens, now_s)
        if follows:
            self._follow(device, now_s)
        elif device.committed < device.output_tokens:
            self.draft(device, now_s)
        else:
            self._end(device, now_s)

    def _end(self, device: SimDevice, now_s: float) -> None:
        device.done = True
        self._listener.over(device, now_s)
        self._server.over(device)
        del self._begun[device.name]
        if self._admission is not None:
            self._admission.end(device, now_s)
        self._listener.next(device, now_s)

    def _follow(self, device: SimDevice, now_s: float) -> None:
        """Begin a round of an autonomous run; its grant is renewed as long as nothing is to be drafted."""
        left = device.autonomous_rounds
        device.begin_round(NO_DRAFT, now_s)
        device.follows = True
        remaining_tokens = device.output_tokens - device.committed
        stays_autonomous = device.workload.stays_autonomous(
            device.committed, remaining_tokens, device.promised.promise(now_s)
        )
        if not stays_autonomous or (self._admission is not None and self._admission.suspends(device)):
            device.autonomous_rounds = left
        self._server.continue_run(device, now_s, left)

    def draft(self, device: SimDevice, now_s: float) -> None:
        """Begin a round. Its time of arrival is computed at once: nothing that happens later can change it.

        The exception is a fleet's drafter that leaves; ``fleet.losses`` then moves ``arrived_at_s``.
        """
        if self._admission is not None and self._admission.suspends(device):
            self._admission.halt(device)
            return
        remaining_tokens = device.output_tokens - device.committed
        draft = device.workload.draft(device.committed, remaining_tokens, device.promised.promise(now_s))
        device.begin_round(draft, now_s)
        if draft.bits is None:
            self._server.enqueue(device, now_s)
            return
        self._server.expect(device, now_s)
        device.arrived_at_s = arrives_at_s = device.back_at_s(draft, draft.bits, now_s)
        self._agenda.at(arrives_at_s, self._receive, device)

    def _receive(self, device: SimDevice, now_s: float) -> None:
        if not self.down and device.arrived_at_s == now_s:  # else the block was lost with its drafter
            self._server.enqueue(device, now_s)
            self.serve(now_s)
