"""Recalibrate acceptance predictors online: each device learns a scale and a bias of the logit from verdicts.

A predictor is trained on some prompts and temperatures; a device serves others. So each pair of an acceptance rule and
a band of temperatures has a scale and a bias, which begin as 1 and 0 (Platt scaling). Without a trained predictor they
apply to the logit of the confidence, and no file is needed.

The next order says how many tokens of the last chain were accepted, and whether one was rejected. Only these are
learned from. Tokens behind a rejection were drawn with noise that is used again at the same positions, on which the
length of a later chain must not depend (``drafting.stops``). Tokens behind a stop were never drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from outrider.contracts.autonomous_runs import may_be_late
from outrider.contracts.prefix import common_prefix
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import AcceptancePredictor, ConfidenceLogistic, confidence_logit, sigmoid
from outrider.drafting.features import DraftFeatures

_MOST_LOGIT = 8.0  # logits are clamped to this: beyond it differences are a model's rounding
_SCALES, _BIASES = (0.2, 5.0), (-4.0, 4.0)  # bounds; a positive scale keeps the order of tokens
_PRIOR_SCALE, _PRIOR_BIAS = 8.0, 6.0  # inverse variances of the prior around scale 1 and bias 0
_KEPT = 1.0 - 1.0 / 500  # share of the information kept after each token learned from
_KEPT_EMPTY = 1.0 - 1.0 / 64  # and after a chain without tokens: else a rule that always stops would never recover
_MOST_STEP = 1.0  # most change of a token's own logit by learning from it
_BAND = 0.25  # width of a band of temperatures
_AS_CONFIDENT = ConfidenceLogistic()


@dataclass(frozen=True, slots=True)
class Calibration:
    """``sigmoid(scale * logit + bias)`` with a Gaussian posterior of scale and bias. Immutable.

    The posterior takes one Newton step for each token (Spiegelhalter and Lauritzen 1990) and is forgotten towards the
    prior (Kulhavy and Zarrop 1993): it follows drift, and without verdicts it returns to the predictor as it is.
    """

    scale: float = 1.0  # of the logit
    bias: float = 0.0  # added to it
    # inverse covariance matrix, as (scale scale, scale bias, bias bias)
    information: tuple[float, float, float] = (_PRIOR_SCALE, 0.0, _PRIOR_BIAS)

    def probability(self, logit: float) -> float:
        return sigmoid(self.scale * _within(logit, -_MOST_LOGIT, _MOST_LOGIT) + self.bias)

    def learnt(self, logit: float, *, accepted: bool) -> "Calibration":
        before = self.relaxed(_KEPT)
        x, sent_chain = _within(logit, -_MOST_LOGIT, _MOST_LOGIT), before.probability(logit)
        spread, gap = sent_chain * (1.0 - sent_chain), accepted - sent_chain
        both, shared, alone = before.information
        # Logistic likelihood: the information grows by p (1 - p) [x, 1]^T [x, 1]; the step is its inverse times
        # [x, 1]^T (label - p), written out for two parameters and limited to ``_MOST_STEP`` in the logit.
        both, shared, alone = both + spread * x * x, shared + spread * x, alone + spread
        determinant = both * alone - shared * shared
        scale, bias = (alone * x - shared) * gap / determinant, (both - shared * x) * gap / determinant
        shrunk = min(1.0, _MOST_STEP / max(abs(scale * x + bias), _MOST_STEP))
        return _bounded(before.scale + shrunk * scale, before.bias + shrunk * bias, (both, shared, alone))

    def relaxed(self, kept: float) -> "Calibration":
        """Return the calibration with a share ``kept`` of its information; the rest is the prior's."""
        new = 1.0 - kept
        both, shared, alone = (kept * known for known in self.information)
        # Information times mean of both Gaussians adds up; the prior's is (1 * _PRIOR_SCALE, 0).
        of_scale = both * self.scale + shared * self.bias + new * _PRIOR_SCALE
        of_bias = shared * self.scale + alone * self.bias
        both, alone = both + new * _PRIOR_SCALE, alone + new * _PRIOR_BIAS
        determinant = both * alone - shared * shared
        scale, bias = alone * of_scale - shared * of_bias, both * of_bias - shared * of_scale
        return _bounded(scale / determinant, bias / determinant, (both, shared, alone))


UNCHANGED = Calibration()


@dataclass(frozen=True, slots=True)
class SentChain:
    """Predictions for the tokens of a chain that was sent."""

    rule: AcceptanceRule  # by which it is verified
    temperature: float  # of its request
    # of the predictor, before recalibration, one for each token; () if the chain stopped before its first
    logits: tuple[float, ...]
    # of the row of each token, if they are kept for logs; else (). They may be computed only when used.
    features: tuple[DraftFeatures, ...] = ()


class ChainPredictor:
    """The ``AcceptancePredictor`` of one chain. It records its predictions for the verdict. Mutable.

    It uses the calibration from when the chain began. A rule may ask for the present row repeatedly; the predictor
    behind it is called once a row.
    """

    def __init__(
        self,
        predictor: AcceptancePredictor,
        calibration: Calibration,
        rule: AcceptanceRule,
        temperature: float,
    ) -> None:
        self._predictor, self._calibration = predictor, calibration
        self._rule, self._temperature = rule, temperature
        self._asked: DraftFeatures | None = None
        self._logits: list[float] = []
        self._features: list[DraftFeatures] = []

    def probability(self, features: DraftFeatures) -> float:
        if features is not self._asked:
            self._asked = features
            self._logits.append(confidence_logit(self._predictor.probability(features)))
        return self._calibration.probability(self._logits[-1])

    def keep(self, features: DraftFeatures) -> None:
        """Record the features of the next row for the log, whether or not the stop rule uses them."""
        self._features.append(features)

    def sent_chain(self, tokens: int) -> SentChain | None:
        """Return the record of the first ``tokens`` tokens, which were sent; None if nothing was recorded."""
        if not self._logits and not self._features:
            return None
        logits, features = tuple(self._logits[:tokens]), tuple(self._features[:tokens])
        return SentChain(self._rule, self._temperature, logits, features)


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    sent_chain: SentChain  # predictions for its tokens
    accepted: int  # number of tokens accepted
    rejected: bool  # whether the token behind these was rejected; false if it was not tested, or there is none


# Called in the engine's thread with the verdict on a chain and its features; must return at once and never raise.
OnVerdict = Callable[[GenerationId, ChainVerdict], None]


def verdict_on(
    sent_chain: SentChain,
    token_ids: Sequence[int],
    committed: Sequence[int],
    *,
    correction_owed: bool,
    next_round: bool,
) -> ChainVerdict | None:
    """Derive the verdict on the last chain from the next order; None if it cannot be known.

    A verifier may have tested fewer tokens than it was sent, or gone on without them. Under rules that accept by
    equality, a comparison with the committed tokens is then still a valid test. Under ratio rules it is not: there only
    a chain's own round counts, in which all its tokens were tested (such chains of devices that stop are not trimmed).

    Args:
        sent_chain: predictions for its tokens.
        token_ids: drafted.
        committed: tokens committed from the chain's position on.
        correction_owed: whether a pending correction follows ``committed``, in place of a rejected token.
        next_round: whether no other round lies between the chain and the order.
    """
    if not next_round and not may_be_late(sent_chain.rule):
        return None
    accepted = common_prefix(token_ids, committed)
    replaced = accepted < len(committed) or correction_owed
    return ChainVerdict(sent_chain, accepted, replaced and accepted < len(token_ids))


class Recalibration:
    """Calibrations of all rules and bands of temperatures, of a device or of one of its generations. Mutable.

    A generation uses a copy, made when it is opened, that learns from its own verdicts only. Which verdicts of others
    have arrived depends on the timing of messages, hence on the lengths of drafts, rejected tokens included; the
    length of a chain must not depend on these.
    """

    def __init__(
        self,
        predictors: Mapping[AcceptanceRule, AcceptancePredictor],
        begin: Calibration = UNCHANGED,
        known: Mapping[tuple[AcceptanceRule, int], Calibration] | None = None,
    ) -> None:
        """Begin with ``known`` calibrations by rule and band of temperatures, others with ``begin``."""
        self._predictors, self._begin = predictors, begin
        self._calibrations = dict(known or {})

    def copy(self) -> "Recalibration":
        return Recalibration(self._predictors, self._begin, self._calibrations)

    def calibration(self, rule: AcceptanceRule, temperature: float) -> Calibration:
        return self._calibrations.get(_band(rule, temperature), self._begin)

    def chain(self, rule: AcceptanceRule, temperature: float) -> ChainPredictor:
        predictor = self._predictors.get(rule, _AS_CONFIDENT)
        return ChainPredictor(predictor, self.calibration(rule, temperature), rule, temperature)

    def learn(self, verdict: ChainVerdict) -> None:
        """Learn from a chain's verdict. Call it once for each chain."""
        sent_chain = verdict.sent_chain
        known = self.calibration(sent_chain.rule, sent_chain.temperature)
        if not sent_chain.logits:
            known = known.relaxed(_KEPT_EMPTY)
        for logit in sent_chain.logits[: verdict.accepted]:
            known = known.learnt(logit, accepted=True)
        if verdict.rejected:
            for logit in sent_chain.logits[verdict.accepted : verdict.accepted + 1]:
                known = known.learnt(logit, accepted=False)
        self._calibrations[_band(sent_chain.rule, sent_chain.temperature)] = known


def _band(rule: AcceptanceRule, temperature: float) -> tuple[AcceptanceRule, int]:
    return rule, round(temperature / _BAND)


def _bounded(scale: float, bias: float, information: tuple[float, float, float]) -> Calibration:
    """Clamp scale and bias; for a clamped scale, take the bias of highest posterior density given that scale."""
    _, shared, alone = information
    possible = _within(scale, *_SCALES)
    return Calibration(possible, _within(bias + (scale - possible) * shared / alone, *_BIASES), information)


def _within(value: float, least: float, most: float) -> float:
    return least if isnan(value) else min(max(value, least), most)
