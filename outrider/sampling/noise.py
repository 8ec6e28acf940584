"""Counter-based noise: every random number is a pure function of (request seed, absolute position, purpose).

No generator state exists, so retries, resumes, draft windows and batch mates cannot change an output, and a drafter
that knows the seed draws with the very noise the target will use. Generator: Philox4x64-10 (Salmon et al. 2011) as
numpy implements it, whose raw stream is fixed across versions; the key is (seed, 0), the counter
(block, position, purpose, 0).
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from outrider.contracts.exchanged import FloatRow


class Purpose(IntEnum):
    """What a draw is for; two purposes at one position never share a number."""

    TARGET_TOKEN = 0  # the token at a position: shared by drafter and target
    DRAFT_TOKEN = 1  # what a drafter draws for the ratio rule; number i is sibling i's
    ACCEPT = 2  # the ratio rule's test; number i is sibling i's
    RESIDUAL = 3  # what is drawn after a rejection
    CANDIDATE = 4  # draws from the target to choose a correction from; number i is candidate i's
    CANDIDATE_ACCEPT = 5  # the device's test of candidate i


def uniforms(seed: int, position: int, purpose: Purpose, count: int) -> npt.NDArray[np.float64]:
    """Independent uniforms in the open interval (0, 1), on the odd multiples of 2**-53.

    Args:
        seed: the request's, unsigned 64 bit.
        position: absolute position of the token drawn, prompt included; unsigned 64 bit.
        purpose: what the draw is for.
        count: numbers wanted; a longer draw begins with a shorter one's.

    Returns:
        ``[count]`` float64.
    """
    # Bounds are kept by the types: numpy raises OverflowError for words outside 0..2**64 - 1.
    counter = np.array([0, position, int(purpose), 0], dtype=np.uint64)
    raw = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64), counter=counter).random_raw(count)
    # 52 bits and a half: the largest value, 1 - 2**-53, is still below 1 in float64.
    return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def gumbel_noise(seed: int, position: int, purpose: Purpose, vocab_size: int) -> npt.NDArray[np.float32]:
    """Standard Gumbel noise, one value per token, for ``argmax(log p + g)``.

    The same in every process and on every machine, up to the last bit of libm's logarithm.

    Returns:
        ``[vocab_size]`` float32, between -3.7 and 36.8.

    Source: Gumbel-max coupling with shared randomness, Daliri, Musco, Suresh 2024 (arXiv 2408.07978).
    """
    noise = uniforms(seed, position, purpose, vocab_size)
    np.log(noise, out=noise)
    np.negative(noise, out=noise)
    np.log(noise, out=noise)
    return np.negative(noise).astype(np.float32)


def noisy_scores(rows: FloatRow, seed: int, position: int) -> FloatRow:
    """Adjusted logits of one position, ``[vocab]`` or ``[n, vocab]``, as they are ranked: float32.

    The best is the token that is drawn. Whoever computes this has the same numbers: a difference and a sum, rounded
    once each.
    """
    noise = gumbel_noise(seed, position, Purpose.TARGET_TOKEN, rows.shape[-1])
    scores: FloatRow = noise + (rows - rows.max(axis=-1, keepdims=True))
    return scores
