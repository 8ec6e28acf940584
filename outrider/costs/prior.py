"""What is believed of a machine before, and besides, its measurements: the prior of the online estimator.

All coefficients are *relative*: in units of the given model's own, so that one number says how far each may be off.
The beliefs are those of a machine: what is wrong in common (a slower one is slower in everything) is likelier than what
is wrong in one coefficient, and a row count that was never measured differs from its neighbours by little.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from outrider.contracts.cost import ROW_BUCKETS, LinearCostModel, VerifyCost, bucket_rows, row_bucket, work_of

Floats = npt.NDArray[np.float64]

SLOPES = 4  # a, b_compute, b_read, c; the row offsets follow, from one row on
_REFERENCE = VerifyCost(16, 500)  # a batch in which a coefficient of zero may turn out to be a small share
_SMALL_SHARE = 0.2
_ROW_REACH = 1.0  # octaves over which row offsets are alike
_ROW_OWN_SHARE = 0.3  # of an offset's variance that no neighbour shares


@dataclass(frozen=True, slots=True)
class PriorTrust:
    """How far a model may be off. Standard deviations."""

    log_speed: float  # of the logarithm of the machine's speed relative to the model's
    coefficient: float  # of each coefficient, relative to itself
    row_offset: float  # of a row offset, relative to the time of a batch of so many rows without a prefix


UNKNOWN_MACHINE = PriorTrust(log_speed=2.0, coefficient=1.5, row_offset=0.4)  # the built-in model, anywhere
PROFILED_MACHINE = PriorTrust(log_speed=0.1, coefficient=0.1, row_offset=0.05)  # a profile that fits


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """A model as a normal distribution over ``[n]`` relative coefficients."""

    units: Floats  # ``[n]`` seconds; a coefficient is a relative one times its unit
    mean: Floats  # ``[n]`` relative; 1 for every slope that is not zero
    information: Floats  # ``[n, n]`` inverse covariance


@lru_cache(maxsize=8)
def prior_of(model: LinearCostModel, trust: PriorTrust) -> Prior:
    """The belief that goes with a model."""
    slopes = np.array(model.slopes)
    reference = features([_REFERENCE])[:SLOPES]
    units = np.maximum(slopes, _SMALL_SHARE * model.predict_s([_REFERENCE]) / reference)
    rows = np.array([bucket_rows(bucket)[0] for bucket in range(1, ROW_BUCKETS)])
    row_units = units[3] + units[0] * rows
    offsets = np.array(model.row_offsets_s[1:] or np.zeros(len(rows)))
    mean = np.concatenate((slopes / units, offsets / row_units))
    octaves = np.log2(rows)
    alike = np.exp(-0.5 * ((octaves[:, None] - octaves) / _ROW_REACH) ** 2)
    covariance = np.diag(np.full(len(mean), trust.coefficient**2))
    covariance[SLOPES:, SLOPES:] = trust.row_offset**2 * (
        (1.0 - _ROW_OWN_SHARE) * alike + _ROW_OWN_SHARE * np.eye(len(rows))
    )
    covariance += trust.coefficient**2 * np.outer(mean, mean)
    return Prior(np.concatenate((units, row_units)), mean, inverse(covariance))


def features(batch: Sequence[VerifyCost]) -> Floats:
    """``[n]``: what each coefficient is multiplied with in this batch's time; the batch has positions to compute."""
    work, found = work_of(batch), np.zeros(SLOPES + ROW_BUCKETS - 1)
    found[:SLOPES] = work.new_tokens, work.interactions, work.cached_tokens, 1.0
    found[SLOPES - 1 + row_bucket(work.new_tokens)] = 1.0
    return found


def inverse(matrix: Floats) -> Floats:
    """Of ``[n, n]``."""
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
