"""Counter-based noise: every random number is a pure function of (request seed, absolute position, purpose).

There is no generator state. So retries, resumes, draft windows and the batch cannot change an output, and a drafter
that knows the seed draws with the same noise as the target. Generator: Philox4x64-10 (Salmon et al. 2011) as numpy
implements it, whose raw stream is fixed across versions; the key is (seed, 0), the counter (block, position, purpose,
0). ``outrider.versions`` has the version of these bits.

Numpy makes the words on a CPU, ``outrider.sampling.device_noise`` on the logits' device; the numbers are equal to the
last bit.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError, ShapeError
from outrider.contracts.exchanged import FloatRow, IntRow
from outrider.sampling.gumbel import CHUNK_WORDS, gumbel_of_words, to_uniforms

BLOCK_WORDS = 4  # words that Philox4x64 makes of one counter


class Purpose(IntEnum):
    """Purpose of a draw; draws of two purposes at one position use different numbers."""

    TARGET_TOKEN = 0  # the token at a position; shared by drafter and target
    DRAFT_TOKEN = 1  # a draft token under the ratio rule; number i is sibling i's
    ACCEPT = 2  # the ratio rule's test; number i is sibling i's
    RESIDUAL = 3  # the draw after a rejection
    CANDIDATE = 4  # draws from the target as candidates for a correction; number i is candidate i's
    CANDIDATE_ACCEPT = 5  # the device's test of candidate i


def uniforms(seed: int, position: int, purpose: Purpose, count: int) -> npt.NDArray[np.float64]:
    """Return ``[count]`` float64 independent uniforms in the open interval (0, 1), odd multiples of 2**-53.

    Seed and absolute position (prompt included) are unsigned 64 bit. A longer draw begins with the numbers of a shorter
    one.
    """
    return to_uniforms(_generator(seed, position, purpose).random_raw(count))


def gumbel_noise(
    seed: int, position: int, purpose: Purpose, vocab_size: int, *, token_ids: IntRow | None = None
) -> FloatRow:
    """Return standard Gumbel noise, one value per token, for ``argmax(log p + g)``.

    The same to the last bit in every process, on every machine and on every device (``outrider.sampling.gumbel``).
    Seed and absolute position are as of ``uniforms``.

    Args:
        seed: the request's.
        position: of the token drawn.
        purpose: what the draw is for.
        vocab_size: number of tokens.
        token_ids: ``[n]`` int64 ascending, the tokens whose noise is wanted; None: all. A ``ParameterError`` else.

    Returns:
        ``[vocab_size]`` or ``[n]`` float32, between -3.7 and 36.8; a token's noise does not depend on ``token_ids``.

    Source: Gumbel-max coupling with shared randomness, Daliri, Musco, Suresh 2024 (arXiv 2408.07978).
    """
    if token_ids is not None:
        return _noise_of(seed, position, purpose, vocab_size, token_ids)
    generator, noise = _generator(seed, position, purpose), np.empty(vocab_size, dtype=np.float32)
    for start in range(0, vocab_size, CHUNK_WORDS):
        chunk = noise[start : start + CHUNK_WORDS]
        gumbel_of_words(generator.random_raw(chunk.size), chunk)
    return noise


def noisy_scores(rows: FloatRow, seed: int, position: int, *, token_ids: IntRow | None = None) -> FloatRow:
    """Return logits of one position plus noise; the token with the largest score is the one drawn.

    The arithmetic is a difference and a sum, each rounded once, so all processes get the same numbers. ``rows`` are
    ``[vocab]`` or ``[n, vocab]`` float32; with ``token_ids``, ascending int64, only these columns: their scores equal
    those over the whole vocabulary if the row's largest logit is among them.
    """
    columns = rows.shape[-1]
    if token_ids is not None and len(token_ids) != columns:
        raise ShapeError(f"rows of {columns} columns need one token id each, found {len(token_ids)}")
    vocab_size = columns if token_ids is None else int(token_ids[-1]) + 1 if columns else 0
    noise = gumbel_noise(seed, position, Purpose.TARGET_TOKEN, vocab_size, token_ids=token_ids)
    scores: FloatRow = noise + (rows - rows.max(axis=-1, keepdims=True))
    return scores


def _noise_of(seed: int, position: int, purpose: Purpose, vocab_size: int, token_ids: IntRow) -> FloatRow:
    """Generate words from the first token's block to the last token; take logarithms of the wanted words only."""
    _check_ids(token_ids, vocab_size)
    noise = np.empty(token_ids.size, dtype=np.float32)
    if not token_ids.size:
        return noise
    block = int(token_ids[0]) // BLOCK_WORDS
    first = block * BLOCK_WORDS
    words = _generator(seed, position, purpose, block).random_raw(int(token_ids[-1]) + 1 - first)
    wanted = words[token_ids - first]
    for start in range(0, token_ids.size, CHUNK_WORDS):
        gumbel_of_words(wanted[start : start + CHUNK_WORDS], noise[start : start + CHUNK_WORDS])
    return noise


def _check_ids(token_ids: IntRow, vocab_size: int) -> None:
    needed = f"ascending token ids in 0..{vocab_size - 1}"
    if token_ids.ndim != 1 or (token_ids[1:] <= token_ids[:-1]).any():
        raise ParameterError("token ids", needed, "another order; sort them and drop repetitions")
    if token_ids.size and not 0 <= token_ids[0] <= token_ids[-1] < vocab_size:
        raise ParameterError("token ids", needed, f"{token_ids[0]}..{token_ids[-1]}")


def _generator(seed: int, position: int, purpose: Purpose, block: int = 0) -> np.random.Philox:
    """Return the generator of a stream's words from those of ``block`` on."""
    # numpy raises OverflowError for numbers outside 0..2**64 - 1, so no range is checked here.
    counter = np.array([block, position, int(purpose), 0], dtype=np.uint64)
    return np.random.Philox(key=np.array([seed, 0], dtype=np.uint64), counter=counter)
