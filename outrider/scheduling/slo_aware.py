"""Batches that keep promised speeds (ours; WISP section 4.3 and its errata are where it starts from).

A block is *live* if it can still be committed in time, *doomed* if it could not even alone and now. Blocks without a
deadline owe nothing yet: best effort, or a response's first tokens. A live block is *urgent* if it would be late in the
batch after this one. Batches have a target length (``batch_length``). Precedence:

1. the block that has waited longest, if that is longer than ``starving_s``: nothing waits for ever, whatever the load;
2. urgent blocks, earliest deadline first;
3. overdue ones by arrival: doomed, or without a deadline and waiting for ``aging_s``. Who fell behind comes before
   those that have time, never before those that have none;
4. the other live blocks, earliest deadline first, then the rest by utility, expected tokens for each second it adds.

3 gets no more than the time that is over if all live blocks are served by deadline in batches of the target length:
none of them that would be in time becomes late by it. With so much to spare the oldest may exceed the target
length: a chunk of a long prompt.

No admission makes a live member late, as long as a batch of the target length holds all urgent blocks. If it does not,
some will be late whatever is done. Then batches have their full length and deadlines order blocks only: cutting every
batch short for its tightest member spends the verifier's time on the constant parts of passes, which makes more blocks
urgent, which makes batches shorter still. A block served a little late costs its response that little; lost throughput
costs everybody.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.contracts.cost import CostModel
from outrider.scheduling.admission import GrowingBatch, guarded_s
from outrider.scheduling.batch_length import batch_length_s
from outrider.scheduling.policy import BatchLimits, BatchPlan, PendingVerification, StopReason
from outrider.scheduling.waiting_arrays import Floats, waiting_arrays

_LEAST_S = 1e-9


@dataclass(frozen=True, slots=True)
class SloAware:
    """The product's policy.

    Attributes:
        aging_s: a block without a deadline that has waited this long ranks with the doomed. Short, as a response's
            first tokens are such blocks.
        starving_s: a block that has waited this long is the first of the next batch even if it makes others late; only
            the oldest one in each batch. It bounds the wait of a chunk that is longer than batches are to be.
        longest_s: longest target length, and the target where nobody waiting is promised anything.
    """

    aging_s: float = 0.5
    starving_s: float = 2.5
    longest_s: float = 1.0

    def plan(
        self, pending: Sequence[PendingVerification], now_s: float, limits: BatchLimits, cost_model: CostModel
    ) -> BatchPlan:
        """The four groups above in their order, each as far as the batch has room."""
        if not pending:
            return BatchPlan((), (), StopReason.QUEUE_EMPTY)
        waiting = waiting_arrays(pending, limits)
        alone_s = cost_model.predict_works_s(waiting.works)
        constant_s = float(cost_model.predict_works_s(np.zeros((1, 3)))[0])
        added_s = np.maximum(alone_s - constant_s, _LEAST_S)
        needed_s = guarded_s(alone_s, cost_model)
        slack_s = waiting.deadline_at_s - now_s
        waited_s = now_s - waiting.arrived_at_s
        length_s = batch_length_s(waiting, constant_s, self.longest_s)
        owed = np.isfinite(slack_s)
        live = owed & (needed_s <= slack_s)
        overdue = ~live & (owed | (waited_s >= self.aging_s))
        by_deadline = np.flatnonzero(live)[np.argsort(slack_s[live], kind="stable")]
        urgent = by_deadline[slack_s[by_deadline] < length_s + needed_s[by_deadline]]
        binding = live & (constant_s + float(added_s[urgent].sum()) <= length_s)

        batch = GrowingBatch(waiting, np.where(binding, slack_s, np.inf), limits, cost_model)
        if waited_s[0] > self.starving_s:
            batch.force(0)
            by_deadline, urgent = by_deadline[by_deadline != 0], urgent[urgent != 0]
            overdue[0] = False
        batch.admit(urgent, float(alone_s[urgent[:1]].max(initial=length_s)))
        late = np.flatnonzero(overdue)
        oldest = late[:0] if batch.free[urgent].any() else late[:1]
        longest_s = float(alone_s[oldest].max(initial=length_s))
        spare_s = _spare_s(added_s[by_deadline], slack_s[by_deadline], length_s, constant_s)
        batch.admit(late, min(longest_s, batch.predicted_s + spare_s))
        rest = np.flatnonzero(batch.free)
        rest = rest[np.lexsort((-waiting.expected_tokens[rest] / added_s[rest], slack_s[rest]))]
        batch.admit(rest, length_s)
        if not len(batch):
            batch.force(int(rest[0]))
        return batch.plan()


def _spare_s(added_s: Floats, slack_s: Floats, length_s: float, constant_s: float) -> float:
    """How much work for others can come first without one of these becoming late that would be in time.

    Args:
        added_s: ``[n]`` what each adds to a batch, earliest deadline first.
        slack_s: ``[n]`` time until each deadline.
        length_s: of the batches they are served in.
        constant_s: of each batch.
    """
    room_s = length_s - constant_s
    spare_s = np.floor(slack_s / length_s) * room_s - added_s.cumsum()
    return float(spare_s[spare_s >= 0.0].min(initial=np.inf))
