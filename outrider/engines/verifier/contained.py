"""Passes of a verifier engine, contained: what goes wrong with one block is told of that block alone.

Decided by ``attempts``; here passes are made, and errors read. An engine leaves nothing of a pass that fails (see
``VerifierEngine.verify``), and a block that was decided before it failed is answered from memory.
"""

import gc
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from outrider.contracts.cost import VerifyCost
from outrider.contracts.errors import VerifierLostError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Block, Failed, Outcome, Resolution, VerifierEngine
from outrider.engines.fault_bisection import ConsecutiveFailures, FaultBisection, FaultKind, PassBound, fault_kind
from outrider.events import event

log = logging.getLogger(__name__)
_MOST_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why a pass went wrong. Not the exception: that would keep the memory of what it went wrong with."""

    kind: FaultKind
    reason: str


class ContainedPasses:
    """The passes of one engine. Not thread-safe.

    Attributes:
        under_way: generations of the pass that is being made, or was made last.
    """

    def __init__(self, engine: VerifierEngine, trace_ids: Mapping[GenerationId, str] = MappingProxyType({})) -> None:
        """Nobody else has the engine verify. ``trace_ids``: of generations that are sampled, for the log."""
        self._engine, self._trace_ids = engine, trace_ids
        self._bound, self._failures = PassBound(), ConsecutiveFailures()
        self._faults: list[FaultKind] = []
        self._computed: tuple[VerifyCost, ...] = ()
        self._evicted: dict[GenerationId, int] = {}
        self.under_way: tuple[GenerationId, ...] = ()

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """As the engine's, over as many passes as it takes; ``Failed`` of each block that failed alone, twice.

        Raises:
            VerifierLostError: it is not a block that is to blame: nothing can be asked of this engine any more.
        """
        members: list[Block | Resolution] = [*resolutions, *blocks]  # a block may build on what a resolution commits
        self._computed, self._evicted = (), {}
        if not members:  # a step of what is settled
            return self._engine.verify((), ())
        attempts, outcomes = FaultBisection.of(len(members), self._bound), dict[int, Outcome]()
        reasons: dict[int, str] = {}
        while (group := attempts.next) is not None:
            fault = self._pass(members, group, outcomes)
            if fault is None:
                attempts = attempts.went()
                continue
            self._faults.append(fault.kind)
            if fault.kind in (FaultKind.DEVICE, FaultKind.LOST):
                raise VerifierLostError(f"nothing more can be asked of the engine: {fault.reason}")
            names = [members[place].generation for place in group]
            traced = [self._trace_ids[name] for name in names if name in self._trace_ids] or None
            said = {"kind": fault.kind, "generations": names, "trace_ids": traced, "reason": fault.reason}
            event(log, "pass_failed", logging.ERROR, **said)
            attempts = attempts.failed(fault.kind)
            if len(group) == 1:
                reasons[group[0]] = fault.reason
            _free_memory()
        self._bound = attempts.bound
        self._judge(members, attempts, outcomes, reasons)
        places = [*range(len(resolutions), len(members)), *range(len(resolutions))]
        return [outcomes[place] for place in places]

    def last_pass(self) -> tuple[VerifyCost, ...]:
        """What the last ``verify`` computed, in all of its passes that went well."""
        return self._computed

    def evicted(self) -> tuple[tuple[GenerationId, int], ...]:
        """Who lost KV in the last ``verify``; see ``VerifierEngine.evicted``."""
        return tuple(self._evicted.items())

    def taken_faults(self) -> tuple[FaultKind, ...]:
        """What went wrong with passes since this was asked last."""
        faults, self._faults = tuple(self._faults), []
        return faults

    def _pass(
        self, members: Sequence[Block | Resolution], group: Sequence[int], outcomes: dict[int, Outcome]
    ) -> _Fault | None:
        blocks = [(place, member) for place in group if isinstance(member := members[place], Block)]
        resolutions = [(place, member) for place in group if isinstance(member := members[place], Resolution)]
        self.under_way = tuple(members[place].generation for place in group)
        try:
            outcomes_here = self._engine.verify([block for _, block in blocks], [member for _, member in resolutions])
        except Exception as error:  # noqa: BLE001 (whatever it was, somebody is to blame)
            return _Fault(fault_kind(error), f"{type(error).__name__}: {error}"[:_MOST_REASON_CHARS])
        finally:
            self._evicted |= dict(self._engine.evicted())
        self._note_non_finite(outcomes_here)
        outcomes |= dict(zip([place for place, _ in (*blocks, *resolutions)], outcomes_here, strict=True))
        self._computed += self._engine.last_pass()
        return None

    def _note_non_finite(self, outcomes_here: Sequence[Outcome]) -> None:
        """Whose numbers are not finite: no witness against the engine, or prompts that overflow could end it."""
        for outcome in outcomes_here:
            if isinstance(outcome, Failed) and outcome.non_finite:
                self._faults.append(FaultKind.NON_FINITE)
                name = outcome.generation
                said = {"generation": name, "trace_id": self._trace_ids.get(name), "round": outcome.round}
                event(log, "non_finite_numbers", logging.ERROR, **said, reason=outcome.reason)

    def _judge(
        self,
        members: Sequence[Block | Resolution],
        attempts: FaultBisection,
        outcomes: dict[int, Outcome],
        reasons: dict[int, str],
    ) -> None:
        """Tell of those who are guilty, unless it is the engine that fails."""
        culprits = frozenset(members[place].generation for place in attempts.culprits)
        self._failures = self._failures.after(culprits, attempts.served)
        if self._failures.against_engine:
            raise VerifierLostError(
                f"needs passes that go well, found {len(self._failures.names)} generations in a row that each failed "
                f"alone, the last by: {reasons[attempts.culprits[-1]]}; the engine is started anew"
            )
        for place in attempts.culprits:
            member = members[place]
            outcomes[place] = Failed(member.generation, member.round, reasons[place])
            event(
                log,
                "block_failed",
                logging.ERROR,
                generation=member.generation,
                trace_id=self._trace_ids.get(member.generation),
                round=member.round,
                reason=reasons[place],
            )


def _free_memory() -> None:
    """What a pass that went wrong still holds, so that the next one has it."""
    import torch  # noqa: PLC0415 (whoever only describes engines need not wait for it)

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
