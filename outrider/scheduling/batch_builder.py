"""Growing a batch: who still fits behind those already in it (WISP algorithm 1, FeasibleAdd, eq. 14 and 15).

Candidates come in order of precedence. One that does not fit is passed over, so that it cannot hold back those behind
it. A cold block costs what is left for it of the one chunk that a pass has for prefixes; where nothing is, it does not
fit. Many are tried at once: running sums over them, cut where the first one does not fit.
"""

import numpy as np
import numpy.typing as npt

from outrider.contracts.cost import CostModel
from outrider.scheduling.policy import BatchLimits, BatchPlan, StopReason
from outrider.scheduling.waiting_arrays import Floats, Indexes, WaitingArrays

_ROUNDING_S = 1e-9
_RUN = 256  # candidates tried at once
_REASONS = (StopReason.MAX_NEW_TOKENS, StopReason.MEMORY, StopReason.DEADLINE, StopReason.LENGTH)


class BatchBuilder:
    """One batch while it is put together; lives for one plan.

    Attributes:
        free: ``[n]`` who is not in it.
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
        """Start empty.

        Args:
            waiting: everything pending.
            slack_s: ``[n]`` how long a batch with this one may take; infinity where that is free.
            limits: of a batch.
            cost_model: predicts its time.
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
        """How many are in it."""
        return len(self._members)

    @property
    def predicted_s(self) -> float:
        """How long it takes as it is."""
        return float(self._cost_model.predict_works_s(self._work[None])[0])

    def force(self, index: int) -> None:
        """Let one in without asking whether it fits."""
        self._take(np.array([index]))

    def admit(self, candidates: Indexes, length_s: float = float("inf"), *, stop_at_first: bool = False) -> None:
        """Let in who fits, in this order.

        Args:
            candidates: not yet members.
            length_s: the batch may not take longer; the guard time is not counted.
            stop_at_first: whether the first one that does not fit ends it.
        """
        refused = False
        while len(candidates):
            room = self._limits.max_blocks - len(self._members)
            if room <= 0:
                self._refusal = self._refusal if refused else StopReason.MAX_BLOCKS
                return
            run = candidates[: min(room, _RUN)]
            broken = self._broken(run, length_s, together=True)
            failed = np.flatnonzero(broken.any(axis=0))
            fitting = int(failed[0]) if len(failed) else len(run)
            self._take(run[:fitting])
            candidates = candidates[fitting:]
            if fitting == len(run):
                continue
            if not refused:
                refused, self._refusal = True, _REASONS[int(np.argmax(broken[:, fitting]))]
            if stop_at_first:
                return
            candidates = self._from_first_that_fits(candidates[1:], length_s)

    def plan(self) -> BatchPlan:
        """The decision. The batch is in order of admission, the rest in order of arrival."""
        blocks = self._waiting.blocks
        rest = tuple(blocks[index] for index in np.flatnonzero(self.free).tolist())
        reason = self._refusal if rest else StopReason.QUEUE_EMPTY
        return BatchPlan(tuple(blocks[index] for index in self._members), rest, reason)

    def _from_first_that_fits(self, candidates: Indexes, length_s: float) -> Indexes:
        """The candidates without those before the first one that fits as the batch is now."""
        while len(candidates):
            fitting = np.flatnonzero(~self._broken(candidates[:_RUN], length_s, together=False).any(axis=0))
            if len(fitting):
                return candidates[fitting[0] :]
            candidates = candidates[_RUN:]
        return candidates

    def _broken(self, run: Indexes, length_s: float, *, together: bool) -> npt.NDArray[np.bool_]:
        """``[4, run]`` which limit breaks with each: behind those before it (``together``), or behind the members."""
        works, memory, slack_s = (
            self._works(run, together=together),
            self._waiting.memory_blocks[run],
            self._slack_s[run],
        )
        no_chunk = (works[:, 0] == 0.0) & (self._waiting.prefix_tokens[run] > 0.0)
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
        """``[run, 3]`` what the pass would compute of each: prefixes get what is left of its chunk, in turn."""
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
    """``[n]`` predicted times, each with the time to keep free behind it."""
    return predicted_s + cost_model.guard_s(predicted_s)
