"""The cost model, corrected by every batch that is measured: recursive least squares with forgetting.

Errors count relative to the measured time, as a batch of 50 ms must not be drowned by one of 5 s. What forgetting
leaves is the prior (stabilised forgetting), not ignorance: after ten thousand batches of one size the model of another
size is still the prior's, and nothing winds up. With D the forgotten sum of measurements and F the machine's speed

    information  L   = D + L0 / F^2          D <- f D + w x x^T,  x relative to the measured time
    coefficients     = L^-1 (d + L0 m0 / F)  d <- f d + w x

so the prior is one of proportions: the first batch on a machine twenty times as fast moves every prediction (F), and
what is measured at one number of rows moves its neighbours' offsets. A single measurement far outside of what is
expected counts as the edge of that; three of them in a row are a change, and the past is forgotten faster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, log, sqrt
from statistics import median

import numpy as np

from outrider.contracts.cost import ROW_BUCKETS, LinearCostModel, VerifyCost, bucket_rows
from outrider.costs.prior import SLOPES, UNKNOWN_MACHINE, Floats, Prior, PriorTrust, features, inverse, prior_of

_SHORTEST_S = 1e-9  # a prior of nothing still has a logarithm
_KEPT = 0.98  # of the past at every batch: a memory of 50 batches
_KEPT_IN_CHANGE = 0.3
_SURPRISING = 4.0  # standard deviations
_CHANGE = 3  # surprises in a row, to the same side
_LARGEST_LOG_SPEED = log(1e6)
_SPEED_MISFIT = 0.25  # of one batch's time, as a measurement of the whole machine's speed
_SPEED_DRIFT = 0.02  # of its logarithm, for each batch
_DRIFT_SHARE = 0.04  # of an error that is taken for a machine that became slower in everything
_NOISE_START, _NOISE_LOWEST, _NOISE_HIGHEST, _NOISE_WEIGHT = 0.1, 0.02, 0.5, 0.05  # relative
_NOISE_MOST_OF_ONE = 4.0  # times the variance that was expected: what one error may say
_GUARD_QUANTILE, _GUARD_WINDOW, _GUARD_LEAST = 0.9, 64, 16  # batches
_FIRST_ROWS = np.array([bucket_rows(bucket)[0] for bucket in range(1, ROW_BUCKETS)])
_LARGEST_SAVING = 0.9  # of the time of a batch without a prefix: what an offset may take off


@dataclass(frozen=True, slots=True, eq=False)
class _Learned:
    information: Floats  # ``[n, n]`` of measurements alone, forgotten in part; likewise ``weighted``, ``[n]``
    weighted: Floats
    covariance: Floats  # ``[n, n]`` of the relative coefficients, prior included
    log_speed: float  # of the machine's time relative to the prior's model, with its variance
    speed_variance: float
    noise: float = _NOISE_START  # relative standard deviation of a measurement
    surprises: tuple[float, ...] = ()  # logarithms of measured over predicted time, in a row and to one side
    shortfalls: tuple[float, ...] = ()  # measured over predicted time, less 1, of the last batches


@dataclass(frozen=True, slots=True, eq=False)
class OnlineEstimator:
    """A cost model and what it has learned."""

    model: LinearCostModel  # as corrected so far; a new one after each batch
    trust: PriorTrust = UNKNOWN_MACHINE  # in the model it began with
    _prior: Prior | None = None
    _learned: _Learned | None = None

    def observed(self, batch: Sequence[VerifyCost], measured_s: float) -> "OnlineEstimator":
        """After one more batch. A batch without positions to compute, or a time that is none, teaches nothing."""
        if not (isfinite(measured_s) and measured_s > 0.0 and any(cost.new_tokens > 0 for cost in batch)):
            return self
        prior, first = self._prior or prior_of(self.model, self.trust), self._learned is None
        before = self._learned or _nothing_learned(prior, self.trust)
        x, predicted_s = prior.units * features(batch), self.model.predict_s(batch)
        log_ratio = log(measured_s) - log(predicted_s)
        shift = self.trust.log_speed**2 / (self.trust.log_speed**2 + _SPEED_MISFIT**2) * log_ratio if first else 0.0
        deviation = sqrt(before.noise**2 + max(0.0, float(x @ before.covariance @ x)) / predicted_s**2)
        surprises = _surprises(before.surprises, log_ratio, _SURPRISING * deviation)
        if len(surprises) == _CHANGE:
            shift, surprises = median(surprises), ()
        error = min(max(log_ratio - shift, -_SURPRISING * deviation), _SURPRISING * deviation)
        past = _drifted(_changed(before, shift), _DRIFT_SHARE * error)
        believed_s = predicted_s * exp(min(max(shift + error, -_LARGEST_LOG_SPEED), _LARGEST_LOG_SPEED))
        log_speed, speed_variance = _speed(past, log(believed_s / max(float(x @ prior.mean), _SHORTEST_S)))
        scaled = x / believed_s
        information = _KEPT * past.information + np.outer(scaled, scaled / before.noise**2)
        weighted = _KEPT * past.weighted + scaled / before.noise**2
        speed = exp(log_speed)
        covariance = inverse(information + prior.information / speed**2)
        found = covariance @ (weighted + prior.information @ prior.mean / speed)
        shortfalls = before.shortfalls if first else (*before.shortfalls, exp(min(log_ratio, _LARGEST_LOG_SPEED)) - 1.0)
        learned = _Learned(
            information=information,
            weighted=weighted,
            covariance=covariance,
            log_speed=log_speed,
            speed_variance=speed_variance,
            noise=_noise(before.noise, error, deviation),
            surprises=surprises,
            shortfalls=shortfalls[-_GUARD_WINDOW:],
        )
        guard = _guard(learned.shortfalls, self.model.relative_guard)
        model = _model(prior.units * _not_negative(found, covariance), guard)
        return replace(self, model=model, _prior=prior, _learned=learned)


def _nothing_learned(prior: Prior, trust: PriorTrust) -> _Learned:
    count = len(prior.mean)
    return _Learned(np.zeros((count, count)), np.zeros(count), inverse(prior.information), 0.0, trust.log_speed**2)


def _surprises(before: tuple[float, ...], log_ratio: float, limit: float) -> tuple[float, ...]:
    if abs(log_ratio) <= limit:
        return ()
    same_side = bool(before) and (before[-1] > 0.0) == (log_ratio > 0.0)
    return (*before, log_ratio) if same_side else (log_ratio,)


def _changed(before: _Learned, shift: float) -> _Learned:
    """On a machine whose times have become exp(shift) times as long: the past is scaled, and forgotten in part."""
    if shift == 0.0:
        return before
    forgotten = replace(
        before,
        information=_KEPT_IN_CHANGE * before.information,
        weighted=_KEPT_IN_CHANGE * before.weighted,
        log_speed=before.log_speed + shift,
    )
    return _drifted(forgotten, shift)


def _drifted(before: _Learned, shift: float) -> _Learned:
    """As if the past had taken exp(shift) times as long."""
    factor = exp(-min(max(shift, -_LARGEST_LOG_SPEED), _LARGEST_LOG_SPEED))
    return replace(before, information=factor**2 * before.information, weighted=factor * before.weighted)


def _speed(before: _Learned, log_ratio: float) -> tuple[float, float]:
    """The logarithm of the machine's speed after a batch that took so much of the prior's time, and its variance."""
    variance = before.speed_variance + _SPEED_DRIFT**2
    gain = variance / (variance + _SPEED_MISFIT**2)
    found = before.log_speed + gain * (log_ratio - before.log_speed)
    return min(max(found, -_LARGEST_LOG_SPEED), _LARGEST_LOG_SPEED), (1.0 - gain) * variance


def _noise(before: float, error: float, deviation: float) -> float:
    """What an error says about the noise, as far as noise was expected to be its cause."""
    squared = min(error**2, _NOISE_MOST_OF_ONE * deviation**2)
    moved = before**2 + _NOISE_WEIGHT * (before / deviation) ** 2 * (squared - deviation**2)
    return min(max(sqrt(max(moved, 0.0)), _NOISE_LOWEST), _NOISE_HIGHEST)


def _guard(shortfalls: tuple[float, ...], at_first: float) -> float:
    """By how much predictions were short, all but a tenth of the time."""
    if len(shortfalls) < _GUARD_LEAST:
        return at_first
    return max(0.0, sorted(shortfalls)[int(_GUARD_QUANTILE * len(shortfalls))])


def _not_negative(found: Floats, covariance: Floats) -> Floats:
    """The likeliest coefficients without negative slopes: each negative one is taken to be zero, for certain."""
    for _ in range(SLOPES):
        worst = int(np.argmin(found[:SLOPES]))
        if found[worst] >= 0.0:
            break
        gains = covariance[:, worst] / covariance[worst, worst]
        found = found - gains * found[worst]
        covariance = covariance - np.outer(gains, covariance[worst])
        found[worst] = covariance[worst, :] = covariance[:, worst] = 0.0  # nor does the next one move it
    return found


def _model(coefficients: Floats, guard: float) -> LinearCostModel:
    per_token, per_interaction, per_cached, per_batch = coefficients[:SLOPES].tolist()
    bare_s = per_batch + per_token * _FIRST_ROWS
    offsets = np.maximum(coefficients[SLOPES:], -_LARGEST_SAVING * bare_s)
    return LinearCostModel(per_token, per_interaction, per_cached, per_batch, (0.0, *offsets.tolist()), guard)
