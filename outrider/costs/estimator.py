"""Correct the cost model with every measured batch, by recursive least squares with forgetting.

Errors count relative to the measured time; otherwise a batch of 5 s would drown one of 50 ms. Forgetting falls back to
the prior and not to ignorance (stabilised forgetting): after ten thousand batches of one size the model of another size
is still the prior's, and the covariance does not wind up. With D, d the forgotten sums of measurements, L0, m0 the
prior's information and mean, and F the machine's time relative to the prior's model:

    information  L   = D + L0 / F^2          D <- f D + w x x^T,  x relative to the measured time
    coefficients     = L^-1 (d + L0 m0 / F)  d <- f d + w x

So the prior is one of proportions: the first batch on a machine twenty times as fast scales every prediction (F), and a
measurement at one number of rows moves the offsets of its neighbours. A single outlier is clipped to the edge of what
is expected. Three in a row to the same side are taken as a change of speed, and the past is forgotten faster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, log, sqrt
from statistics import median

import numpy as np

from outrider.contracts.cost import ROW_BUCKETS, LinearCostModel, VerifyCost, bucket_rows
from outrider.costs.prior import SLOPES, UNKNOWN_MACHINE, Floats, Prior, PriorSpread, features, inverse, prior_of

_SHORTEST_S = 1e-9  # keeps the logarithm finite if the prior predicts nothing
_KEPT = 0.98  # share of the past kept at each batch (f): a memory of about 50 batches
_KEPT_IN_CHANGE = 0.3  # the same at a change of speed
_SURPRISING = 4.0  # standard deviations of a logarithm, beyond which a time is an outlier
_CHANGE = 3  # outliers in a row to one side that make a change of speed
_LARGEST_LOG_SPEED = log(1e6)
_SPEED_MISFIT = 0.25  # standard deviation of one batch's log time as a measurement of the machine's log speed
_SPEED_DRIFT = 0.02  # standard deviation of the log speed's random walk, per batch
_DRIFT_SHARE = 0.04  # share of an error that is ascribed to a machine slower in everything
_NOISE_START, _NOISE_LOWEST, _NOISE_HIGHEST, _NOISE_WEIGHT = 0.1, 0.02, 0.5, 0.05  # relative
_NOISE_MOST_OF_ONE = 4.0  # one squared error counts at most this many expected variances
_GUARD_QUANTILE, _GUARD_WINDOW, _GUARD_LEAST = 0.9, 64, 16  # batches
_FIRST_ROWS = np.array([bucket_rows(bucket)[0] for bucket in range(1, ROW_BUCKETS)])
_LARGEST_SAVING = 0.9  # largest negative offset, as a share of the time of a batch without cached positions


@dataclass(frozen=True, slots=True, eq=False)
class _Learned:
    """State of the filter: sums of measurements (D, d above), covariance, speed and noise."""

    information: Floats  # ``[n, n]`` D, measurements alone; ``weighted``: ``[n]`` d
    weighted: Floats
    covariance: Floats  # ``[n, n]`` of the relative coefficients, prior included (L^-1)
    log_speed: float  # log F, with its variance below
    speed_variance: float
    noise: float = _NOISE_START  # relative standard deviation of a measurement; w = 1 / noise^2
    surprises: tuple[float, ...] = ()  # log ratios of measured to predicted time: outliers in a row to one side
    shortfalls: tuple[float, ...] = ()  # measured over predicted time, less 1, of recent batches


@dataclass(frozen=True, slots=True, eq=False)
class OnlineEstimator:
    """A cost model and the state it was learned with. Immutable."""

    model: LinearCostModel  # corrected so far; a new object after each batch
    prior_spread: PriorSpread = UNKNOWN_MACHINE  # in the first model
    _prior: Prior | None = None
    _learned: _Learned | None = None

    def observed(self, batch: Sequence[VerifyCost], measured_s: float) -> "OnlineEstimator":
        """Return the estimator after one more batch; unchanged if that had no new positions or its time is invalid."""
        if not (isfinite(measured_s) and measured_s > 0.0 and any(cost.new_tokens > 0 for cost in batch)):
            return self
        prior, first = self._prior or prior_of(self.model, self.prior_spread), self._learned is None
        before = self._learned or _nothing_learned(prior, self.prior_spread)
        x, predicted_s = prior.units * features(batch), self.model.predict_s(batch)
        log_ratio = log(measured_s) - log(predicted_s)
        # The first batch may come from a machine of any speed: ascribe its error to speed as far as the prior's
        # uncertainty of speed exceeds one batch's misfit (a Kalman gain).
        speed_variance = self.prior_spread.log_speed**2
        shift = speed_variance / (speed_variance + _SPEED_MISFIT**2) * log_ratio if first else 0.0
        # Relative deviation of this prediction: measurement noise, and uncertainty of the coefficients.
        deviation = sqrt(before.noise**2 + max(0.0, float(x @ before.covariance @ x)) / predicted_s**2)
        surprises = _surprises(before.surprises, log_ratio, _SURPRISING * deviation)
        if len(surprises) == _CHANGE:
            shift, surprises = median(surprises), ()
        # What a shift of speed leaves, clipped to the edge of what is expected.
        error = min(max(log_ratio - shift, -_SURPRISING * deviation), _SURPRISING * deviation)
        past = _drifted(_changed(before, shift), _DRIFT_SHARE * error)
        # The time that is learned from: as measured, but without the clipped part. Its exponent is bounded.
        believed_s = predicted_s * exp(min(max(shift + error, -_LARGEST_LOG_SPEED), _LARGEST_LOG_SPEED))
        log_speed, speed_variance = _speed(past, log(believed_s / max(float(x @ prior.mean), _SHORTEST_S)))
        scaled = x / believed_s  # relative errors: the target of each measurement is 1
        information = _KEPT * past.information + np.outer(scaled, scaled / before.noise**2)
        weighted = _KEPT * past.weighted + scaled / before.noise**2
        speed = exp(log_speed)
        covariance = inverse(information + prior.information / speed**2)
        found = covariance @ (weighted + prior.information @ prior.mean / speed)
        # The first batch only sets the speed; its misprediction says nothing about later ones.
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
        # In seconds again: coefficients are relative to the prior's units.
        model = _model(prior.units * _not_negative(found, covariance), guard)
        return replace(self, model=model, _prior=prior, _learned=learned)


def _nothing_learned(prior: Prior, prior_spread: PriorSpread) -> _Learned:
    count = len(prior.mean)
    return _Learned(
        np.zeros((count, count)), np.zeros(count), inverse(prior.information), 0.0, prior_spread.log_speed**2
    )


def _surprises(before: tuple[float, ...], log_ratio: float, limit: float) -> tuple[float, ...]:
    if abs(log_ratio) <= limit:
        return ()
    same_side = bool(before) and (before[-1] > 0.0) == (log_ratio > 0.0)
    return (*before, log_ratio) if same_side else (log_ratio,)


def _changed(before: _Learned, shift: float) -> _Learned:
    """Scale the past to a machine that takes exp(shift) times as long, and forget most of it."""
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
    """Scale the measurements as if each had taken exp(shift) times as long."""
    # A row of measurements is x / time: D has two such factors, d one.
    factor = exp(-min(max(shift, -_LARGEST_LOG_SPEED), _LARGEST_LOG_SPEED))
    return replace(before, information=factor**2 * before.information, weighted=factor * before.weighted)


def _speed(before: _Learned, log_ratio: float) -> tuple[float, float]:
    """Return log speed and variance after a batch with ``log_ratio`` of its time to the prior's (Kalman filter)."""
    variance = before.speed_variance + _SPEED_DRIFT**2
    gain = variance / (variance + _SPEED_MISFIT**2)
    found = before.log_speed + gain * (log_ratio - before.log_speed)
    return min(max(found, -_LARGEST_LOG_SPEED), _LARGEST_LOG_SPEED), (1.0 - gain) * variance


def _noise(before: float, error: float, deviation: float) -> float:
    """Return the noise estimate after an error, of which only the part ascribed to noise counts."""
    squared = min(error**2, _NOISE_MOST_OF_ONE * deviation**2)
    # (before / deviation)^2 is the share of the expected variance that is noise.
    moved = before**2 + _NOISE_WEIGHT * (before / deviation) ** 2 * (squared - deviation**2)
    return min(max(sqrt(max(moved, 0.0)), _NOISE_LOWEST), _NOISE_HIGHEST)


def _guard(shortfalls: tuple[float, ...], at_first: float) -> float:
    if len(shortfalls) < _GUARD_LEAST:
        return at_first
    return max(0.0, sorted(shortfalls)[int(_GUARD_QUANTILE * len(shortfalls))])


def _not_negative(found: Floats, covariance: Floats) -> Floats:
    """Return the most likely coefficients without negative slopes.

    The most negative slope is conditioned to be exactly 0, which moves all others by their covariance; then the next.
    """
    for _ in range(SLOPES):
        worst = int(np.argmin(found[:SLOPES]))
        if found[worst] >= 0.0:
            break
        gains = covariance[:, worst] / covariance[worst, worst]
        found = found - gains * found[worst]
        covariance = covariance - np.outer(gains, covariance[worst])
        found[worst] = covariance[worst, :] = covariance[:, worst] = 0.0  # fixed: a later one does not move it
    return found


def _model(coefficients: Floats, guard: float) -> LinearCostModel:
    per_token, per_interaction, per_cached, per_batch = coefficients[:SLOPES].tolist()
    # Time without cached positions at the first number of rows of each bucket; no offset may bring it near 0.
    bare_s = per_batch + per_token * _FIRST_ROWS
    offsets = np.maximum(coefficients[SLOPES:], -_LARGEST_SAVING * bare_s)
    return LinearCostModel(per_token, per_interaction, per_cached, per_batch, (0.0, *offsets.tolist()), guard)
