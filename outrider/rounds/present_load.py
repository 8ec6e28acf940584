"""Running averages of how busy a coordinator and its verifier are, as input of the choice of a round.

Kept for each mode of the verifier's speculation tuner: what drafts cost under one tells nothing of another.
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
    last_batches: _Rounds = field(default_factory=_Rounds)  # of rounds, each of which counts as its part of a batch
    batch_blocks: float = 1.0
    batch_s: float = 0.0
    rounds: int = 0  # since the mode was last begun; likewise ``batches``
    batches: int = 0


class PresentLoad:
    """Running averages over rounds and batches that are over, by mode.

    A mode that is begun anew starts from what it was, which the first rounds and batches soon outweigh.
    """

    def __init__(self) -> None:
        """Begin as an idle service."""
        self._modes: dict[SpeculationMode, _Averages] = {}
        self._last: SpeculationMode | None = None

    def round(self, queue_s: float, orchestration_s: float, mode: SpeculationMode = DRAFT) -> None:
        """A round begun under a mode was committed: what it waited, and took beyond draft, link, queue and pass."""
        averages = self._of(mode)
        averages.rounds += 1
        first = 1.0 / (averages.rounds + 1)
        averages.last_rounds.count(queue_s, orchestration_s, max(_WEIGHT, first))
        averages.last_batches.count(queue_s, orchestration_s, max(_WEIGHT / averages.batch_blocks, first))

    def batch(self, blocks: int, mode: SpeculationMode = DRAFT, took_s: float = 0.0) -> None:
        """A batch of so many blocks came back from the verifier, under the mode in use."""
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
        """The same over the last batches with all of their rounds.

        Ten rounds of a large batch waited alike: of what everybody is told at once they say too little.
        """
        averages = self._of(mode)
        rounds = averages.last_batches
        return VerifierLoad(rounds.queue_s, averages.batch_blocks, averages.batch_s, rounds.orchestration_s)

    def _of(self, mode: SpeculationMode) -> _Averages:
        return self._modes.setdefault(mode, _Averages())
