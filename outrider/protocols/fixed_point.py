"""Convert draft rows to fixed point, in which protocols that defer corrections draw tokens and corrections."""

import numpy as np

from outrider.contracts.exchanged import FloatRow, IntRow, WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.sampling.distributions import Probs, fixed_point, softmax


def fixed_point_row(logits: FloatRow, wire: WireFormat, params: SamplingParams) -> IntRow:
    """Return ``[vocab]`` int64 numerators of ``2**-wire.scalar_bits``; one-hot for a greedy request.

    ``logits`` are ``[vocab]`` float32, adjusted by the request's parameters.
    """
    if not params.greedy:
        return fixed_point(softmax(logits), wire.scalar_bits)
    row = np.zeros(logits.size, dtype=np.int64)
    row[int(logits.argmax())] = 2**wire.scalar_bits
    return row


def fixed_point_probs(numerators: IntRow, wire: WireFormat) -> Probs:
    """Return the exact probabilities, ``[vocab]`` float64."""
    probs: Probs = numerators.astype(np.float64) * 2.0**-wire.scalar_bits
    return probs
