"""Running averages of queueing, batch size and overheads of a verifier, for the choice of the next plan.

Each speculation mode has its own averages: what drafts cost under one mode is no evidence for another.
"""

from dataclasses import dataclass, field

from outrider.contracts.cost import LinearCostModel
from outrider.selection.modes import DRAFT, SpeculationMode
from outrider.selection.situation import VerifierView
from outrider.selection.verifier_load import VerifierLoad

_WEIGHT = 0.1  # of the newest round or batch


@dataclass(slots=True, eq=False)
class _Rounds:
    queue_s: float = 0.0
    orchestration_s: float = 0.0

    def count(self, queue_s: float, orchestration_s: float, weight: float) -> None:
        self.queue_s += weight * (queue_s - self.queue_s)
        self.orchestration_s += weight * (max(0.0, orchestration_s) - self.orchestration_s)


@dataclass(slots=True, eq=False)
class _Averages:
    last_rounds: _Rounds = field(default_factory=_Rounds)
    last_batches: _Rounds = field(default_factory=_Rounds)  # a round weighs 1 / (blocks of a batch)
    batch_blocks: float = 1.0
    batch_s: float = 0.0
    rounds: int = 0  # since the last change to the mode, as are ``batches``
    batches: int = 0


class PresentLoad:
    """Exponential running averages over finished rounds and batches, by mode. Mutable.

    A mode that comes into use again starts from its old averages with the weight of one observation.
    """

    def __init__(self) -> None:
        self._modes: dict[SpeculationMode, _Averages] = {}
        self._last: SpeculationMode | None = None

    def round(self, queue_s: float, orchestration_s: float, mode: SpeculationMode = DRAFT) -> None:
        """Enter a committed round: its queueing, and its time beyond draft, link, queue and pass."""
        averages = self._of(mode)
        averages.rounds += 1
        first = 1.0 / (averages.rounds + 1)  # a plain mean until that many rounds outweigh ``_WEIGHT``
        averages.last_rounds.count(queue_s, orchestration_s, max(_WEIGHT, first))
        averages.last_batches.count(queue_s, orchestration_s, max(_WEIGHT / averages.batch_blocks, first))

    def batch(self, blocks: int, mode: SpeculationMode = DRAFT, took_s: float = 0.0) -> None:
        """Enter a finished batch, under the mode in use; ``took_s``: its passes."""
        averages = self._of(mode)
        if mode is not self._last:
            self._last, averages.rounds, averages.batches = mode, 0, 0
        if blocks:
            averages.batches += 1
            weight = max(_WEIGHT, 1.0 / (averages.batches + 1))
            averages.batch_blocks += weight * (blocks - averages.batch_blocks)
            averages.batch_s += weight * (took_s - averages.batch_s)

    def view(self, cost_model: LinearCostModel, mode: SpeculationMode = DRAFT) -> VerifierView:
        averages = self._of(mode)
        return VerifierView(
            cost_model=cost_model,
            queue_s=averages.last_rounds.queue_s,
            batch_blocks=averages.batch_blocks,
            fixed_s=averages.last_rounds.orchestration_s,
            steady=self.lately(mode),
        )

    def lately(self, mode: SpeculationMode = DRAFT) -> VerifierLoad:
        """Return averages over the last batches with all their rounds, for token prices.

        ``view`` averages over about ten rounds; rounds of one large batch waited alike, so ten of them are too few for
        a price that goes to all generations.
        """
        averages = self._of(mode)
        rounds = averages.last_batches
        return VerifierLoad(rounds.queue_s, averages.batch_blocks, averages.batch_s, rounds.orchestration_s)

    def _of(self, mode: SpeculationMode) -> _Averages:
        return self._modes.setdefault(mode, _Averages())
