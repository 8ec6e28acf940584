"""Load of a verifier, 0 idle to 1 saturated: how much one more second of work delays all others.

Busy time is no measure of load. A verifier that begins a batch as soon as a block waits is nearly always busy, long
before it is saturated, as the next batch takes all blocks that arrived meanwhile: batches are elastic. With n blocks
per second, m seconds of work each, and a constant part of c seconds per batch, a batch takes

    T = c + n T m = c / (1 - n m)

so the cost of an additional second of work grows as 1 / (1 - load) with load = n m = 1 - c / T, the share of a batch
that its blocks account for. Two corrections. On a partly idle verifier only a part counts: a block that arrives during
a batch waits for half of it on average, so a mean wait of w batches means busy for 2 w of the time. Where the size of
batches is limited, blocks wait for w > 1 batches: then w batches would have to be saved before a second became free.

    load = 1 - (1 - min(1, 2 w) (1 - c / T)) / max(1, w)
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VerifierLoad:
    queue_s: float  # wait of a block before its batch began
    batch_blocks: float  # blocks per batch, >= 1
    batch_s: float  # passes of a batch, prompts in them included; 0 if not measured
    fixed_s: float  # seconds per round beyond draft, link, queue and forward pass


def verifier_load(waited_batches: float, work_share: float) -> float:
    """Return the load in 0..1.

    ``waited_batches``: that a block waits for before its own begins (w); ``work_share``: share of a batch's time that
    its blocks account for, 0..1 (1 - c / T).
    """
    share = min(max(work_share, 0.0), 1.0)
    return 1.0 - (1.0 - min(1.0, 2.0 * waited_batches) * share) / max(1.0, waited_batches)
