"""Define the prior of the online estimator: what is believed of a machine besides its measurements.

All coefficients are *relative*, in units of the given model's own, so that one number says how far each may be off. A
common error (a slower machine is slower in everything) is more likely than an error of one coefficient. A row count
that was never measured differs little from its neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from outrider.contracts.cost import ROW_BUCKETS, LinearCostModel, VerifyCost, bucket_rows, row_bucket, work_of

Floats = npt.NDArray[np.float64]

SLOPES = 4  # a, b_compute, b_read, c; the row offsets follow, from one row on
_REFERENCE = VerifyCost(16, 500)  # batch of which a zero coefficient may turn out to take ``_SMALL_SHARE``
_SMALL_SHARE = 0.2
_ROW_REACH = 1.0  # octaves of rows over which offsets are correlated
_ROW_OWN_SHARE = 0.3  # share of an offset's variance that neighbours do not have in common


@dataclass(frozen=True, slots=True)
class PriorSpread:
    """How far a model may be off, as standard deviations."""

    log_speed: float  # of the logarithm of the machine's speed relative to the model's
    coefficient: float  # of each coefficient, relative to itself
    row_offset: float  # of a row offset, relative to the time of a batch of so many rows without a prefix


UNKNOWN_MACHINE = PriorSpread(log_speed=2.0, coefficient=1.5, row_offset=0.4)  # the built-in model on any machine
PROFILED_MACHINE = PriorSpread(log_speed=0.1, coefficient=0.1, row_offset=0.05)  # a profile that matches the machine


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    units: Floats  # ``[n]`` seconds; coefficient = relative coefficient * unit
    mean: Floats  # ``[n]`` relative; 1 for every slope at least as large as its unit
    information: Floats  # ``[n, n]`` inverse covariance


@lru_cache(maxsize=8)
def prior_of(model: LinearCostModel, spread: PriorSpread) -> Prior:
    slopes = np.array(model.slopes)
    reference = features([_REFERENCE])[:SLOPES]
    # A slope of 0 has no unit of its own: it gets one that makes it a small share of a usual batch.
    units = np.maximum(slopes, _SMALL_SHARE * model.predict_s([_REFERENCE]) / reference)
    rows = np.array([bucket_rows(bucket)[0] for bucket in range(1, ROW_BUCKETS)])
    row_units = units[3] + units[0] * rows
    offsets = np.array(model.row_offsets_s[1:] or np.zeros(len(rows)))
    mean = np.concatenate((slopes / units, offsets / row_units))
    octaves = np.log2(rows)
    alike = np.exp(-0.5 * ((octaves[:, None] - octaves) / _ROW_REACH) ** 2)
    covariance = np.diag(np.full(len(mean), spread.coefficient**2))
    covariance[SLOPES:, SLOPES:] = spread.row_offset**2 * (
        (1.0 - _ROW_OWN_SHARE) * alike + _ROW_OWN_SHARE * np.eye(len(rows))
    )
    # The common error: all coefficients of a machine off by the same factor.
    covariance += spread.coefficient**2 * np.outer(mean, mean)
    return Prior(np.concatenate((units, row_units)), mean, inverse(covariance))


def features(batch: Sequence[VerifyCost]) -> Floats:
    """Return ``[n]`` factors of the coefficients in this batch's time; the batch has positions to compute."""
    work, found = work_of(batch), np.zeros(SLOPES + ROW_BUCKETS - 1)
    found[:SLOPES] = work.new_tokens, work.interactions, work.cached_tokens, 1.0
    found[SLOPES - 1 + row_bucket(work.new_tokens)] = 1.0
    return found


def inverse(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
