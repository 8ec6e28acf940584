"""Counter-based noise: every random number is a pure function of (request seed, absolute position, purpose).

No generator state exists, so retries, resumes, draft windows and batch mates cannot change an output, and a drafter
that knows the seed draws with the very noise the target will use. Generator: Philox4x64-10 (Salmon et al. 2011) as
numpy implements it, whose raw stream is fixed across versions; the key is (seed, 0), the counter
(block, position, purpose, 0).

Numpy makes the words on a processor, ``outrider.sampling.device_noise`` where the logits are; the numbers are the same
to the last bit.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError, ShapeError
from outrider.contracts.exchanged import FloatRow, IntRow
from outrider.sampling.gumbel import CHUNK_WORDS, gumbel_of_words, to_uniforms

NOISE_VERSION = 2  # of the noise of a key; drafter and verifier draw with the same, or agree by chance only
BLOCK_WORDS = 4  # that Philox4x64 makes of one counter


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
    return to_uniforms(_generator(seed, position, purpose).random_raw(count))


def gumbel_noise(
    seed: int, position: int, purpose: Purpose, vocab_size: int, *, token_ids: IntRow | None = None
) -> FloatRow:
    """Standard Gumbel noise, one value per token, for ``argmax(log p + g)``.

    The same to the last bit in every process, on every machine and on every device (``outrider.sampling.gumbel``).

    Args:
        seed: the request's, unsigned 64 bit.
        position: absolute position of the token drawn, prompt included; unsigned 64 bit.
        purpose: what the draw is for.
        vocab_size: tokens there are.
        token_ids: ``[n]`` int64 ascending, the tokens whose noise is wanted; None: all of the vocabulary.

    Returns:
        ``[vocab_size]`` or ``[n]`` float32, between -3.7 and 36.8; a token's is the same whoever else is asked for.

    Raises:
        ParameterError: token ids outside of the vocabulary, or not ascending.

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
    """Adjusted logits of one position as they are ranked: the best is the token that is drawn.

    Whoever computes this has the same numbers: a difference and a sum, rounded once each.

    Args:
        rows: ``[vocab]`` or ``[n, vocab]`` float32; with ``token_ids`` only their columns. A row's scores are those it
            has in the whole vocabulary if the row's largest logit is among them.
        seed: the request's.
        position: absolute position of the token drawn.
        token_ids: int64 ascending, the columns; None: the whole vocabulary.

    Returns:
        The shape of ``rows``, float32.
    """
    columns = rows.shape[-1]
    if token_ids is not None and len(token_ids) != columns:
        raise ShapeError(f"rows of {columns} columns need one token id each, found {len(token_ids)}")
    vocab_size = columns if token_ids is None else int(token_ids[-1]) + 1 if columns else 0
    noise = gumbel_noise(seed, position, Purpose.TARGET_TOKEN, vocab_size, token_ids=token_ids)
    scores: FloatRow = noise + (rows - rows.max(axis=-1, keepdims=True))
    return scores


def _noise_of(seed: int, position: int, purpose: Purpose, vocab_size: int, token_ids: IntRow) -> FloatRow:
    """Words are generated from the first token's block to the last; logarithms are taken of the wanted ones alone."""
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
    """What draws a stream's words from those of ``block`` on."""
    # Bounds are kept by the types: numpy raises OverflowError for words outside 0..2**64 - 1.
    counter = np.array([block, position, int(purpose), 0], dtype=np.uint64)
    return np.random.Philox(key=np.array([seed, 0], dtype=np.uint64), counter=counter)
