"""State of admission: its responses, and what one call of ``decide`` has decided so far."""

from dataclasses import dataclass, field
from math import inf

from outrider.admission.decisions import AdmissionRefused, AdmissionRequest, Admitted, Decisions, Shortage
from outrider.admission.price import VerifierNow
from outrider.admission.room import Bounds, Needs, Sums
from outrider.admission.rules import AdmissionRules
from outrider.contracts.accounts import Account
from outrider.contracts.requests import GenerationId
from outrider.contracts.slo import SloClass


@dataclass(slots=True, eq=False)
class TrackedResponse:
    """One that waits, is made, or is suspended."""

    asked: AdmissionRequest
    rules: AdmissionRules  # when it asked: it waits by these
    turn: int = 0  # which of its classes it waits for or has
    since_s: float = 0.0  # it has waited for that one
    begun_at_s: float = 0.0
    needs: Needs | None = None  # as priced last, ``priced_at_s``
    priced_at_s: float = -inf

    @property
    def slo(self) -> SloClass:
        """Its class, or the one it waits for."""
        return self.asked.classes[self.turn]

    @property
    def promised(self) -> bool:
        """Whether that promises anything."""
        return self.asked.classes[self.turn].tokens_per_s > 0.0

    @property
    def account(self) -> Account:
        """Who it is charged to."""
        return self.asked.account

    @property
    def wait_s(self) -> float:
        """That it may wait for its present class; a resumed one's client waits as long as it takes."""
        if self.asked.resumed:
            return inf
        wait_s = self.rules.wait_s(self.slo)
        if self.asked.first_token_s is not None:
            wait_s = min(wait_s, self.asked.first_token_s / len(self.asked.classes))
        return wait_s

    @property
    def until_s(self) -> float:
        """When that is over."""
        return self.since_s + self.wait_s


@dataclass(slots=True)
class DecisionDraft:
    """What one call of ``decide`` has decided so far."""

    now_s: float
    verifier: VerifierNow
    bounds: Bounds
    promised: Sums
    best_effort: Sums
    admitted: list[Admitted] = field(default_factory=list)
    refused: list[AdmissionRefused] = field(default_factory=list)
    suspended: list[GenerationId] = field(default_factory=list)
    continued: list[GenerationId] = field(default_factory=list)
    shortages: dict[GenerationId, Shortage] = field(default_factory=dict)

    def decisions(self) -> Decisions:
        return Decisions(tuple(self.admitted), tuple(self.refused), tuple(self.suspended), tuple(self.continued))
