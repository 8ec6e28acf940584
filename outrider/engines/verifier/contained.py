"""Contain failures of verifier passes: only the block that makes a pass fail is reported as failed.

``fault_bisection`` decides which blocks to try together; this module runs the passes and classifies exceptions. It
relies on the engine: a failed pass changes nothing (``VerifierEngine.verify``), and a block that was decided before
the failure is answered from memory when it is submitted again.
"""

import gc
import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from outrider.contracts.cost import VerifyCost
from outrider.contracts.errors import VerifierLostError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Block, Failed, Outcome, Resolution, VerifierEngine
from outrider.engines.fault_bisection import ConsecutiveFailures, Fault, FaultBisection, FaultKind, PassBound, fault_of
from outrider.events import event

log = logging.getLogger(__name__)


class ContainedPasses:
    """The passes of one engine, for all of its blocks. Not thread-safe.

    Attributes:
        under_way: generations in the running pass, or in the last one.
    """

    def __init__(self, engine: VerifierEngine, trace_ids: Mapping[GenerationId, str] = MappingProxyType({})) -> None:
        """Take over an engine, which nobody else may call ``verify`` of. ``trace_ids``: of sampled generations."""
        self._engine, self._trace_ids = engine, trace_ids
        self._bound, self._failures = PassBound(), ConsecutiveFailures()
        self._faults: list[FaultKind] = []
        self._computed: tuple[VerifyCost, ...] = ()
        self._evicted: dict[GenerationId, int] = {}
        self.under_way: tuple[GenerationId, ...] = ()

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """Verify as the engine does, over as many passes as needed; ``Failed`` for each block that failed alone twice.

        Raises:
            VerifierLostError: the engine itself fails, not a block; it must be replaced.
        """
        # Resolutions first: a block may build on what a resolution commits.
        members: list[Block | Resolution] = [*resolutions, *blocks]
        self._computed, self._evicted = (), {}
        if not members:  # the step only returns settled outcomes
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
                raise VerifierLostError(f"the engine is unusable: {fault.reason}")
            names = [members[place].generation for place in group]
            traced = [self._trace_ids[name] for name in names if name in self._trace_ids] or None
            said = {"kind": fault.kind, "generations": names, "trace_ids": traced, "reason": fault.reason}
            event(log, "pass_failed", logging.ERROR, **said)
            attempts = attempts.failed(fault.kind)
            if len(group) == 1:  # with several members nobody is known to be the cause yet
                reasons[group[0]] = fault.reason
            _free_memory()
        self._bound = attempts.bound
        self._judge(members, attempts, outcomes, reasons)
        places = [*range(len(resolutions), len(members)), *range(len(resolutions))]
        return [outcomes[place] for place in places]

    def last_pass(self) -> tuple[VerifyCost, ...]:
        return self._computed

    def evicted(self) -> tuple[tuple[GenerationId, int], ...]:
        """Return who lost KV in the last ``verify``, over all of its passes; see ``VerifierEngine.evicted``."""
        return tuple(self._evicted.items())

    def taken_faults(self) -> tuple[FaultKind, ...]:
        faults, self._faults = tuple(self._faults), []
        return faults

    def _pass(
        self, members: Sequence[Block | Resolution], group: Sequence[int], outcomes: dict[int, Outcome]
    ) -> Fault | None:
        blocks = [(place, member) for place in group if isinstance(member := members[place], Block)]
        resolutions = [(place, member) for place in group if isinstance(member := members[place], Resolution)]
        self.under_way = tuple(members[place].generation for place in group)
        try:
            outcomes_here = self._engine.verify([block for _, block in blocks], [member for _, member in resolutions])
        except Exception as error:  # noqa: BLE001 (bisection finds the member that raises it)
            return fault_of(error)
        finally:
            self._evicted |= dict(self._engine.evicted())
        self._note_non_finite(outcomes_here)
        outcomes |= dict(zip([place for place, _ in (*blocks, *resolutions)], outcomes_here, strict=True))
        self._computed += self._engine.last_pass()
        return None

    def _note_non_finite(self, outcomes_here: Sequence[Outcome]) -> None:
        """Report blocks of non-finite logits. They do not count against the engine, or a few prompts could end it."""
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
        """Report the culprits as failed, unless their number shows that the engine itself fails."""
        culprits = frozenset(members[place].generation for place in attempts.culprits)
        self._failures = self._failures.after(culprits, attempts.served)
        if self._failures.against_engine:
            raise VerifierLostError(
                f"needs successful passes, found {len(self._failures.names)} generations in a row that each failed "
                f"alone, the last by: {reasons[attempts.culprits[-1]]}; the engine is restarted"
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
    """Free memory of a failed pass, so that the next one can use it."""
    import torch  # noqa: PLC0415 (modules that only describe engines do not import torch)

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
