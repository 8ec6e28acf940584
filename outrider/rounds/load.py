"""How busy a coordinator and its verifier are, as the choice of a round sees it: running averages of what was."""

from outrider.contracts.cost import LinearCostModel
from outrider.selection.situation import VerifierView

_WEIGHT = 0.1  # of the newest round or batch


class PresentLoad:
    """Running averages over rounds and batches that are over."""

    def __init__(self) -> None:
        """Begin as an idle service."""
        self._queue_s = 0.0
        self._orchestration_s = 0.0
        self._batch_blocks = 1.0

    def round(self, queue_s: float, orchestration_s: float) -> None:
        """A round was committed: what it waited, and what it took beyond draft, link, queue and verification."""
        self._queue_s += _WEIGHT * (queue_s - self._queue_s)
        self._orchestration_s += _WEIGHT * (max(0.0, orchestration_s) - self._orchestration_s)

    def batch(self, blocks: int) -> None:
        """A batch of so many blocks came back from the verifier."""
        if blocks:
            self._batch_blocks += _WEIGHT * (blocks - self._batch_blocks)

    def view(self, cost_model: LinearCostModel) -> VerifierView:
        """Now."""
        return VerifierView(
            cost_model=cost_model,
            queue_s=self._queue_s,
            batch_blocks=self._batch_blocks,
            fixed_s=self._orchestration_s,
        )
