"""How much of a draft that nobody had to make is worth verifying, at what a row costs now.

What is looked up in a text is there at once and for nothing. What it costs is rows of the verifier's step, which all
who share the step wait for: of n drafted tokens, n are verified that have the step commit most tokens per second,

    (blocks + survivals of the first n) / T(n)

with one token of every other block. It is what the batcher asks of all drafts of a step (``scheduling.trimming``),
asked before there is a step. For one generation alone that is its own speed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from outrider.selection.situation import Estimate, VerifierView

_LEAST_GAIN = 0.01  # of the tokens per second; as in ``scheduling.trimming``


@dataclass(frozen=True, slots=True)
class Worth:
    """What is worth verifying.

    Attributes:
        tokens: of the draft's front.
        gain_tokens: expected of them.
        longer_s: by so much they make a step longer.
        step_s: a step without them.
    """

    tokens: int
    gain_tokens: float = 0.0
    longer_s: float = 0.0
    step_s: float = 0.0


def worth_verifying(survivals: Sequence[float], verifier: VerifierView, position: int) -> Worth:
    """How much of a chain pays, of one block in a step as they are now.

    Args:
        survivals: falling; probability of each token that it is accepted with all before it.
        verifier: as it is now.
        position: tokens committed so far.
    """
    count, cached, others = len(survivals), max(position - 1, 0), max(verifier.batch_blocks, 1.0) - 1.0
    rows = np.arange(1.0, count + 2.0)
    works = np.empty((count + 1, 3))
    works[:, 0] = others + rows
    works[:, 1] = others * (cached + 1.0) + (cached + rows) * rows
    works[:, 2] = (others + 1.0) * cached
    steps_s = verifier.cost_model.predict_works_s(works)
    gains = [0.0, *accumulate(survivals)]
    per_s = (others + 1.0 + np.array(gains)) / (steps_s + verifier.fixed_s)
    best = count - int(per_s[::-1].argmax())
    if per_s[best] < (1.0 + _LEAST_GAIN) * per_s[0]:
        best = 0
    return Worth(best, gains[best], float(steps_s[best] - steps_s[0]), float(steps_s[0]))


def beats(worth: Worth, verifier: VerifierView, chosen: Estimate) -> bool:
    """Whether that is cheaper, per token, than what was chosen to be drafted, to its generation and all others."""
    if worth.tokens == 0:
        return False
    load, blocks, tokens = chosen.load, max(verifier.batch_blocks, 1.0), 1.0 + worth.gain_tokens
    own_s = (chosen.alone_s + worth.longer_s) / tokens
    shared_s = (worth.step_s + blocks * worth.longer_s) / tokens
    return (1.0 - load) * own_s + load * shared_s < (
        (1.0 - load) * chosen.seconds_per_token + load * blocks * chosen.verifier_s_per_token
    )
