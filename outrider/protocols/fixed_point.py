"""Draft rows in fixed point: what protocols that defer corrections draw from, and what those are drawn from."""

import numpy as np

from outrider.contracts.exchanged import FloatRow, IntRow, WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.sampling.distributions import Probs, fixed_point, softmax


def fixed_point_row(logits: FloatRow, wire: WireFormat, params: SamplingParams) -> IntRow:
    """``[vocab]`` int64 numerators of ``2**-wire.scalar_bits``; one-hot for a greedy request.

    Args:
        logits: ``[vocab]`` float32, adjusted by the request's parameters.
        wire: of the messages.
        params: the request's.
    """
    if not params.greedy:
        return fixed_point(softmax(logits), wire.scalar_bits)
    row = np.zeros(logits.size, dtype=np.int64)
    row[int(logits.argmax())] = 2**wire.scalar_bits
    return row


def fixed_point_probs(numerators: IntRow, wire: WireFormat) -> Probs:
    """Its probabilities, exactly: ``[vocab]`` float64."""
    probs: Probs = numerators.astype(np.float64) * 2.0**-wire.scalar_bits
    return probs
