"""Responses that ask an admission whose verifier needs figures that can be followed by hand."""

from dataclasses import replace

from outrider.admission.admission import Admission
from outrider.admission.decisions import AdmissionRequest, Decisions
from outrider.admission.response_load import VerifierNow
from outrider.admission.rounds import RoundShape
from outrider.admission.rules import AdmissionRules
from outrider.contracts.cost import LinearCostModel
from outrider.contracts.slo import BEST_EFFORT, SloClass

TWO, FOUR, EIGHT = (SloClass(f"speed_{speed}", float(speed)) for speed in (2, 4, 8))
TENTH_PER_BLOCK = LinearCostModel(0.01, 0.0, 0.0, 0.0)  # 10 ms a position, nothing for a pass: 8 tokens/s need 0.08
VERIFIER = VerifierNow(TENTH_PER_BLOCK, RoundShape(rounds=1))
RULES = AdmissionRules(max_load=0.8001, max_active=10, max_waiting=20, max_wait_s=10.0, best_effort_max_wait_s=100.0)


def asked(name: str, *classes: SloClass, at_s: float = 0.0, **fields: object) -> AdmissionRequest:
    """One whose prompt costs nothing."""
    return AdmissionRequest(name, classes or (BEST_EFFORT,), prompt_tokens=0, asked_at_s=at_s, **fields)  # type: ignore[arg-type]


def admission(**rules: object) -> Admission:
    """With ``RULES``, but for some."""
    return Admission(replace(RULES, **rules))  # type: ignore[arg-type]


def ask(to: Admission, *responses: AdmissionRequest, now_s: float = 0.0, verifier: VerifierNow = VERIFIER) -> Decisions:
    """Have them ask, and have it decide."""
    for response in responses:
        to.ask(response)
    return to.decide(now_s, verifier)


def begun(decisions: Decisions) -> list[str]:
    """Who was let in, in order."""
    return [one.name for one in decisions.admitted]


def refused(decisions: Decisions) -> list[str]:
    """Who was not."""
    return [one.name for one in decisions.refused]
