"""One response as admission follows it."""

from dataclasses import dataclass
from math import inf

from outrider.admission.decisions import AdmissionRequest
from outrider.admission.room import Needs
from outrider.admission.rules import AdmissionRules
from outrider.contracts.accounts import Account
from outrider.contracts.slo import SloClass


@dataclass(slots=True, eq=False)
class TrackedResponse:
    """A response that waits, is active, suspended or stalled."""

    asked: AdmissionRequest
    rules: AdmissionRules  # at the time it asked; its waits follow these
    class_index: int = 0  # index of the class that it waits for or has
    since_s: float = 0.0  # when it began to wait for that class
    begun_at_s: float = 0.0
    needs: Needs | None = None  # as last priced, at ``priced_at_s``
    priced_at_s: float = -inf

    @property
    def slo(self) -> SloClass:
        """Its class, or the one that it waits for."""
        return self.asked.classes[self.class_index]

    @property
    def promised(self) -> bool:
        return self.asked.classes[self.class_index].tokens_per_s > 0.0

    @property
    def account(self) -> Account:
        return self.asked.account

    @property
    def wait_s(self) -> float:
        """How long it may wait for its present class; a resumed response waits without bound."""
        if self.asked.resumed:
            return inf
        wait_s = self.rules.wait_s(self.slo)
        if self.asked.first_token_s is not None:
            wait_s = min(wait_s, self.asked.first_token_s / len(self.asked.classes))
        return wait_s

    @property
    def until_s(self) -> float:
        return self.since_s + self.wait_s
