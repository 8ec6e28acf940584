"""Load of a verifier: how much of its time one more block takes from others.

Batches are elastic: a verifier that begins a batch as soon as something waits is busy nearly always, long before it is
short of time, as the next batch takes whatever came meanwhile. With n blocks a second, m seconds each, and c seconds
for a batch,

    T = c + n T m = c / (1 - n m)

so what an additional second of work costs everybody grows as 1 / (1 - load), load = n m = 1 - c / T: the share of
batches that their blocks account for. Two corrections. An idle verifier has no such share to lose: a block that comes
while a batch runs waits for half of it, so one that is busy a part of the time makes blocks wait for half that part of
a batch, and the wait tells how busy. A verifier whose batches are not elastic (their size is limited) lets blocks wait
for more than the batch that runs, w of them: then w batches would have to be saved before a second of it were free.

    load = 1 - (1 - min(1, 2 w) (1 - c / T)) / max(1, w)
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VerifierLoad:
    """The verifier as it was lately."""

    queue_s: float  # a block waited before its batch began
    batch_blocks: float  # blocks per batch, >= 1
    batch_s: float  # its passes took, prompts in them included; 0 if nobody measured
    fixed_s: float  # seconds per round beyond draft, link, queue and forward pass


def verifier_load(waited_batches: float, work_share: float) -> float:
    """Load in 0..1: 0 is idle, 1 is saturated.

    Args:
        waited_batches: that a block waits for before its own begins.
        work_share: of a batch's time, what its blocks account for, 0..1; the rest is the same for every batch.
    """
    share = min(max(work_share, 0.0), 1.0)
    return 1.0 - (1.0 - min(1.0, 2.0 * waited_batches) * share) / max(1.0, waited_batches)
