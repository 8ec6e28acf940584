"""Fill a batch with candidates in order of precedence (WISP algorithm 1, FeasibleAdd, eq. 14 and 15), vectorised.

A candidate that does not fit is skipped, so it cannot hold back those behind it. All cold blocks of a pass share one
chunk of prefix positions: a cold block costs what is left of that chunk for it, and does not fit where nothing is left.
Many candidates are tried at once: running sums over them are cut before the first one that does not fit.
"""

import numpy as np
import numpy.typing as npt

from outrider.contracts.cost import CostModel
from outrider.scheduling.policy import BatchLimits, BatchPlan, StopReason
from outrider.scheduling.waiting_arrays import Floats, Indexes, WaitingArrays

_ROUNDING_S = 1e-9  # tolerance for rounding, as in scalar_fill
_RUN = 256  # candidates tried at once
# In the order of the rows of ``_broken``.
_REASONS = (StopReason.MAX_NEW_TOKENS, StopReason.MEMORY, StopReason.DEADLINE, StopReason.LENGTH)


class BatchBuilder:
    """One batch under construction; lives for one plan.

    Attributes:
        free: ``[n]`` True for blocks that are not in the batch.
    """

    def __init__(
        self,
        waiting: WaitingArrays,
        slack_s: Floats,
        limits: BatchLimits,
        cost_model: CostModel,
        *,
        keep_guard: bool = True,
    ) -> None:
        """Start with an empty batch.

        Args:
            waiting: everything pending.
            slack_s: ``[n]`` longest time that a batch with this block may take; infinity sets no bound.
            limits: of one batch.
            cost_model: predicts the batch's time.
            keep_guard: whether the cost model's guard time has to fit into the slack as well.
        """
        self.free = np.ones(len(waiting.blocks), dtype=np.bool_)
        self._members: list[int] = []
        self._refusal = StopReason.QUEUE_EMPTY
        self._waiting = waiting
        self._slack_s = slack_s
        self._limits = limits
        self._cost_model = cost_model
        self._keep_guard = keep_guard
        self._most_memory_blocks = float("inf") if limits.max_memory_blocks is None else limits.max_memory_blocks
        self._work = np.zeros(3)
        self._memory_blocks = self._chunk_used = 0.0
        self._least_slack_s = float("inf")

    def __len__(self) -> int:
        return len(self._members)

    @property
    def predicted_s(self) -> float:
        """Predicted seconds of the batch as it is."""
        return float(self._cost_model.predict_works_s(self._work[None])[0])

    def force(self, index: int) -> None:
        """Add one block without checking any limit."""
        self._take(np.array([index]))

    def admit(self, candidates: Indexes, length_s: float = float("inf"), *, stop_at_first: bool = False) -> None:
        """Add the candidates that fit, in the given order.

        Args:
            candidates: indexes of blocks not yet in the batch.
            length_s: longest time of the batch, guard time not counted.
            stop_at_first: whether the first candidate that does not fit ends the batch.
        """
        refused = False
        while len(candidates):
            room = self._limits.max_blocks - len(self._members)
            if room <= 0:
                self._refusal = self._refusal if refused else StopReason.MAX_BLOCKS
                return
            # No longer than the free slots: the run itself never breaks ``max_blocks``.
            run = candidates[: min(room, _RUN)]
            broken = self._broken(run, length_s, together=True)
            failed = np.flatnonzero(broken.any(axis=0))
            fitting = int(failed[0]) if len(failed) else len(run)
            self._take(run[:fitting])
            candidates = candidates[fitting:]
            if fitting == len(run):
                continue
            # The first refusal is the batch's reason; later ones only say which smaller blocks still fitted.
            if not refused:
                refused, self._refusal = True, _REASONS[int(np.argmax(broken[:, fitting]))]
            if stop_at_first:
                return
            candidates = self._from_first_that_fits(candidates[1:], length_s)

    def plan(self) -> BatchPlan:
        """Return the plan: the batch in order of admission, the rest in order of arrival."""
        blocks = self._waiting.blocks
        rest = tuple(blocks[index] for index in np.flatnonzero(self.free).tolist())
        reason = self._refusal if rest else StopReason.QUEUE_EMPTY
        return BatchPlan(tuple(blocks[index] for index in self._members), rest, reason)

    def _from_first_that_fits(self, candidates: Indexes, length_s: float) -> Indexes:
        """Drop the candidates before the first one that fits into the batch as it is now."""
        while len(candidates):
            fitting = np.flatnonzero(~self._broken(candidates[:_RUN], length_s, together=False).any(axis=0))
            if len(fitting):
                return candidates[fitting[0] :]
            candidates = candidates[_RUN:]
        return candidates

    def _broken(self, run: Indexes, length_s: float, *, together: bool) -> npt.NDArray[np.bool_]:
        """Return ``[4, run]``: which limits each candidate breaks, in the order of ``_REASONS``.

        With ``together`` a candidate comes behind the whole run before it, else directly behind the batch.
        """
        works, memory, slack_s = (
            self._works(run, together=together),
            self._waiting.memory_blocks[run],
            self._slack_s[run],
        )
        no_chunk = (works[:, 0] == 0.0) & (self._waiting.prefix_tokens[run] > 0.0)
        # A batch is bound by the least slack of its blocks (WISP eq. 15), hence the running minimum.
        if together:
            works, memory, slack_s = works.cumsum(axis=0), memory.cumsum(), np.minimum.accumulate(slack_s)
        works = works + self._work
        taken_s = self._cost_model.predict_works_s(works)
        needed_s = guarded_s(taken_s, self._cost_model) if self._keep_guard else taken_s
        return np.stack(
            (
                (works[:, 0] > self._limits.max_new_tokens) | no_chunk,
                memory + self._memory_blocks > self._most_memory_blocks,
                needed_s > np.minimum(slack_s, self._least_slack_s),
                taken_s > length_s + _ROUNDING_S,
            )
        )

    def _works(self, run: Indexes, *, together: bool) -> Floats:
        """Return the ``[run, 3]`` work of each in the pass; prefixes take what is left of its chunk, in order."""
        prefix = self._waiting.prefix_tokens[run]
        before = prefix.cumsum() - prefix if together else np.zeros(len(run))
        return self._waiting.works_behind(run, self._chunk_used + before)

    def _take(self, run: Indexes) -> None:
        if len(run):
            self._members.extend(run.tolist())
            self.free[run] = False
            self._work = self._work + self._works(run, together=True).sum(axis=0)
            self._chunk_used += float(self._waiting.prefix_tokens[run].sum())
            self._memory_blocks += float(self._waiting.memory_blocks[run].sum())
            self._least_slack_s = min(self._least_slack_s, float(self._slack_s[run].min()))


def guarded_s(predicted_s: Floats, cost_model: CostModel) -> Floats:
    """Return ``[n]`` predicted times plus the guard time to keep free behind each."""
    return predicted_s + cost_model.guard_s(predicted_s)
