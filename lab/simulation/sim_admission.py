"""Simulate the responses that wait for a coordinator's admission, and those that it suspends."""

from math import inf
from typing import Protocol

from lab.simulation.agenda import Agenda
from lab.simulation.device import SimDevice
from outrider.admission.admission import Admission
from outrider.admission.decisions import AdmissionRefused, AdmissionReport, AdmissionRequest
from outrider.admission.response_load import VerifierNow
from outrider.admission.rounds import MeasuredRounds
from outrider.admission.rules import AdmissionRules

_DECIDED_EVERY_S = (
    1.0  # admission decides at least this often while a response waits, as a coordinator's heartbeat does
)


class AdmissionPort(Protocol):
    down: bool

    def verifier_now(self, rounds: MeasuredRounds) -> VerifierNow: ...

    def admit(self, device: SimDevice, now_s: float) -> None:
        """Begin a response, or go on with one that another verifier lost."""
        ...

    def refuse(self, device: SimDevice, refused: AdmissionRefused, now_s: float) -> None: ...

    def draft(self, device: SimDevice, now_s: float) -> None:
        """Begin the next round of a response that is suspended no longer."""
        ...

    def serve(self, now_s: float) -> None:
        """Plan and step, as something has changed."""
        ...


class SimAdmission:
    def __init__(self, rules: AdmissionRules, agenda: Agenda, port: AdmissionPort) -> None:
        self._admission, self._agenda, self._port = Admission(rules), agenda, port
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
        decisions = admission.decide(now_s, self._port.verifier_now(self.rounds))
        for admitted in decisions.admitted:
            device = self._begun[admitted.name] = self.waiting.pop(admitted.name)
            self._port.admit(device, now_s)
        for refused in decisions.refused:
            self._port.refuse(self.waiting.pop(refused.name), refused, now_s)
        for name in decisions.suspended:
            self._suspended[name] = self._begun[name]
        for name in decisions.continued:
            device = self._suspended.pop(name)
            if name in self._halted:
                self._halted.remove(name)
                self._port.draft(device, now_s)
        if admission.waiting and not now_s < self._decides_at_s < inf:
            self._decides_at_s = min(admission.due_at_s, now_s + _DECIDED_EVERY_S)
            self._agenda.at(self._decides_at_s, self._decided, None)

    def _decided(self, _: object, now_s: float) -> None:
        if not self._port.down:
            self._decide(now_s)
            self._port.serve(now_s)
