"""Rounding of draft logits to a message's precision before sampling, so that both ends compute with the same numbers.

Rounding after sampling would be lossy. Rounding before only gives another, equally valid draft distribution.
"""

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import FloatField, FloatRow, IntRow, WireFormat
from outrider.sampling.floats import decode_floats, encode_floats

# 127 steps of 1/8. A whole vocabulary of 49152 tokens at the lowest step weighs 6e-3 of the best token. A wider range
# would double the step, and with it the rounding error of every likely token.
_INT8_LOWEST = -127 / 8


def round_floats(values: npt.ArrayLike, field: FloatField) -> FloatRow:
    """Return what a message in this field decodes to (``encode_floats``). Rounding twice changes nothing."""
    return decode_floats(encode_floats(values, field), field)


def rounded_logits(logits: FloatRow, field: FloatField) -> FloatRow:
    """Return ``[n]`` logits as a message carries them: shifted so that the largest is 0, then rounded to float32.

    Finite logits below the field's range (fp16: -65504; int8, by choice: -15.875) become -inf: these tokens cannot be
    drawn any more. That is a truncation like any other (TSLT eq. 12), and lossless because the drafter samples from the
    result. Rounded to the lowest finite number, a whole vocabulary of them would get a mass that it does not have.
    """
    row = np.asarray(logits, dtype=np.float32)
    largest = row.max(initial=-np.inf)
    if not np.isfinite(largest):
        raise ParameterError("logits", "a finite largest value", float(largest))
    with np.errstate(over="ignore"):
        shifted = row - largest
    if field is FloatField.INT8:
        shifted[shifted < _INT8_LOWEST] = -np.inf
    return round_floats(shifted, field)


def truncated(logits: FloatRow, wire: WireFormat) -> tuple[IntRow, FloatRow]:
    """Return the tokens a draft distribution keeps, and their logits as a message carries them (TSLT eq. 12-14).

    First keep the ``top_k`` largest logits; of these the fewest whose share of the whole distribution's mass reaches
    ``top_rho``, or all if none do; the lowest ids among equal logits. Two errata of the paper are corrected: its eq. 12
    exchanges its cases, and its eq. 14 keeps nothing where the first token alone has mass rho.

    Args:
        logits: ``[vocab]``, -inf for removed tokens.
        wire: ``top_k``, ``top_rho`` and ``logit_field``.

    Returns:
        ``[n]`` int64 ascending and ``[n]`` float32, largest 0, all finite; ``1 <= n <= top_k`` (if that is set).
    """
    row = np.asarray(logits, dtype=np.float32)
    largest = row.max(initial=-np.inf)
    if not np.isfinite(largest):
        raise ParameterError("logits", "a finite largest value", float(largest))
    token_ids = np.flatnonzero(np.isfinite(row))
    kept = min(wire.top_k or token_ids.size, token_ids.size)
    if wire.top_rho < 1.0:
        descending = np.sort(row[token_ids])[::-1].astype(np.float64)
        mass = np.cumsum(np.exp(descending - descending[0]))
        kept = min(kept, int(np.searchsorted(mass, wire.top_rho * mass[-1], side="left")) + 1)
    if kept < token_ids.size:
        finite = row[token_ids]
        # The smallest kept logit; of tokens that tie with it the lowest ids fill the remaining places.
        last = np.partition(finite, token_ids.size - kept)[token_ids.size - kept]
        chosen = finite > last
        ties = np.flatnonzero(finite == last)
        chosen[ties[: kept - int(chosen.sum())]] = True
        token_ids = token_ids[chosen]
    rounded = rounded_logits(row[token_ids], wire.logit_field)
    finite_after = np.isfinite(rounded)
    return token_ids[finite_after], rounded[finite_after]
