"""Contain failures of drafter steps: only the generation that makes a step fail loses its draft.

Culprits are found as in a verifier's passes (``outrider.engines.fault_bisection``). An engine that fails at several
generations in a row, or whose device is lost, has to be replaced.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from outrider.contracts.drafting import DraftAnswer, DrafterEngine
from outrider.contracts.errors import DrafterBrokenError
from outrider.contracts.requests import GenerationId
from outrider.engines.fault_bisection import ConsecutiveFailures, Fault, FaultBisection, FaultKind, PassBound, fault_of
from outrider.events import event

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DraftStep:
    """Answers of a step, and generations it failed at, with the reason; the engine has forgotten these."""

    answers: list[DraftAnswer] = field(default_factory=list)
    failed: dict[GenerationId, str] = field(default_factory=dict)


class ContainedDrafts:
    """The steps of one engine, for all its blocks. Not thread-safe."""

    def __init__(self, engine: DrafterEngine) -> None:
        self._engine = engine
        self._bound, self._failures = PassBound(), ConsecutiveFailures()

    def step(self) -> DraftStep:
        """Step as the engine does, in as many passes as needed; ``DrafterBrokenError`` if the engine itself fails."""
        names, made = self._engine.started(), DraftStep()
        attempts, reasons = FaultBisection.of(len(names), self._bound), dict[GenerationId, str]()
        if not names:
            made.answers.extend(self._engine.step())
        while (group := attempts.next) is not None:
            among = [names[place] for place in group]
            fault = self._pass(among, made)
            if fault is None:
                attempts = attempts.went()
                continue
            kind, reason = fault
            event(log, "draft_step_failed", logging.ERROR, kind=kind, generations=among, reason=reason)
            if kind in (FaultKind.DEVICE, FaultKind.LOST):
                raise DrafterBrokenError(f"the engine is unusable: {reason}")
            attempts = attempts.failed(kind)
            reasons |= dict.fromkeys(among, reason)
        self._bound = attempts.bound
        culprits = frozenset(names[place] for place in attempts.culprits)
        if names:
            self._failures = self._failures.after(culprits, attempts.served)
        if self._failures.against_engine:
            raise DrafterBrokenError(
                f"fails for one generation after another, the last by: {next(iter(reasons.values()))}"
            )
        for name in culprits:
            self._engine.close(name)
            made.failed[name] = reasons[name]
        return made

    def _pass(self, among: Collection[GenerationId], made: DraftStep) -> Fault | None:
        try:
            made.answers.extend(self._engine.step(among))
        except Exception as error:  # noqa: BLE001 (bisection finds the generation that raises it)
            return fault_of(error)
        return None
