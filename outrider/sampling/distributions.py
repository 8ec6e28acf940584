"""Arithmetic of ratio sampling, on float64 probabilities, shared by drafter and verifier.

Both ends compute with exactly the numbers that crossed the link, so each function has one definition for both. Rows are
one-dimensional numpy arrays over the vocabulary (dense) or over some of its tokens (sparse).
"""

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError

Probs = npt.NDArray[np.float64]

_MIN_BITS, _MAX_BITS = 8, 32


def softmax(logits: npt.NDArray[np.floating]) -> Probs:
    """Return probabilities of a row of logits, or of each row of a matrix; 0 for -inf.

    A row with no finite logit, or one that is NaN or +inf, is a ``ParameterError``.
    """
    rows = np.asarray(logits, dtype=np.float64)
    largest = rows.max(axis=-1, keepdims=True, initial=-np.inf)
    if not np.isfinite(largest).all():
        raise ParameterError("logits", "a finite largest value in each row", logits)
    weights = np.exp(rows - largest)
    probs: Probs = weights / weights.sum(axis=-1, keepdims=True)
    return probs


def draw(probs: Probs, uniform: float) -> int:
    """Draw an index of positive probability by inverting the cumulative sum: a pure function of (probs, uniform).

    ``probs`` ``[n]``: non-negative, any positive sum; ``uniform``: in the open interval (0, 1).
    """
    return int(draws(probs, np.array([uniform]))[0])


def draws(probs: Probs, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    cumulative = np.cumsum(probs)
    total = cumulative[-1] if cumulative.size else 0.0
    if not total > 0.0:
        raise ParameterError("probabilities", "a positive sum", float(total))
    # side="right" skips indices of probability 0. The bound is the last index of positive probability, in case
    # ``number * total`` rounds up to the total.
    indices = np.searchsorted(cumulative, numbers * total, side="right")
    return np.minimum(indices, np.searchsorted(cumulative, total, side="left")).astype(np.int64)


def acceptance_probability(target_prob: float, draft_prob: float) -> float:
    """Return min(1, p / q) without overflow (WISP eq. 1; DSSD and TSLT print the inverse ratio).

    0 where q is 0: a token that cannot have been drawn is not accepted.
    """
    return min(target_prob, draft_prob) / draft_prob if draft_prob > 0.0 else 0.0


def candidate_acceptance(target: Probs, draft: Probs) -> Probs:
    """Return max(0, 1 - q / p) for draws from p: the accepted ones have the residual's distribution. 0 where p is 0."""
    rest: Probs = np.maximum(target - draft, 0.0)
    return np.divide(rest, target, out=np.zeros_like(rest), where=target > 0.0)


def residual(target: Probs, draft: Probs) -> Probs:
    """Return norm(max(0, p - q)), the distribution after a rejection (TSLT eq. 25).

    Where rounding leaves nothing of it (p and q equal to the last bit), return the target itself: a rejection then has
    a probability of the order of the rounding error.
    """
    rest: Probs = np.maximum(target - draft, 0.0)
    total = rest.sum()
    chosen: Probs = rest / total if total > 0.0 else target / target.sum()
    return chosen


def without(probs: Probs, index: int) -> Probs:
    """Return a distribution without one outcome, renormalised; zeros if nothing is left."""
    rest: Probs = probs.copy()
    rest[index] = 0.0
    total = rest.sum()
    if total > 0.0:
        rest /= total
    return rest


def fixed_point(probs: Probs, bits: int) -> npt.NDArray[np.int64]:
    """Round a distribution ``[n]`` to multiples of ``2**-bits`` that add up to exactly 1 (largest remainders first).

    A token whose probability rounds to 0 cannot be drawn any more; that is a truncation like any other. Return the
    ``[n]`` numerators, which sum to ``2**bits``; ``bits`` is 8..32.
    """
    if not _MIN_BITS <= bits <= _MAX_BITS:
        raise ParameterError("scalar_bits", f"an integer in {_MIN_BITS}..{_MAX_BITS}", bits)
    scaled = probs * (2.0**bits / probs.sum())
    numerators: npt.NDArray[np.int64] = np.floor(scaled).astype(np.int64)
    missing = 2**bits - int(numerators.sum())
    # ``numerators - scaled`` is minus the remainder: its smallest entries are the largest remainders.
    if missing > 0:
        numerators[np.argpartition(numerators - scaled, missing - 1)[:missing]] += 1
    elif missing < 0:  # float64 rounding of a 32-bit sum
        numerators[np.argmax(numerators)] += missing
    return numerators


def total_variation(one: Probs, other: Probs) -> float:
    return 0.5 * float(np.abs(one - other).sum())
