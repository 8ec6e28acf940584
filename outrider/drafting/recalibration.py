"""Online recalibration of an acceptance predictor on the device: a logistic on its logit, learnt from verdicts.

What a predictor learned from were some prompts at some temperatures; a device is asked others. So for each rule of
acceptance and band of temperatures a scale and a bias are kept, which begin as 1 and 0. Over the confidence's own logit
they are all there is to learn, and no file is needed.

The next order tells how many tokens of the last chain were accepted, and which one was not. Only these are learned
from. What stands behind a rejection was drawn with noise that is used again at the same positions, and how far a chain
goes may not know it (``drafting.stops``); what stands behind a stop nobody drew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from outrider.contracts.autonomous_runs import may_be_late
from outrider.contracts.prefix import common_prefix
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import AcceptancePredictor, ConfidenceLogistic, confidence_logit, sigmoid
from outrider.drafting.features import DraftFeatures

_MOST_LOGIT = 8.0  # beyond it tokens are told apart by what a model's rounding left
_SCALES, _BIASES = (0.2, 5.0), (-4.0, 4.0)  # within these whatever was learned: the order of tokens is kept
_PRIOR_SCALE, _PRIOR_BIAS = 8.0, 6.0  # inverse variances: it is taken for about right before anything is known
_KEPT = 1.0 - 1.0 / 500  # of what is known, behind each token learned from
_KEPT_EMPTY = 1.0 - 1.0 / 64  # and behind a chain without tokens, of which nothing can be learned
_MOST_STEP = 1.0  # that one token moves its own logit by
_BAND = 0.25  # of temperatures that are learned together
_AS_CONFIDENT = ConfidenceLogistic()


@dataclass(frozen=True, slots=True)
class Calibration:
    """``sigmoid(scale * logit + bias)``, and how well both are known.

    A Gaussian about scale and bias, brought forward by one Newton step for each token (Spiegelhalter and Lauritzen
    1990) and forgotten towards the one it began with (Kulhavy and Zarrop 1993): it follows what drifts, and who is
    told nothing returns to the predictor as it is.

    Attributes:
        scale: of the logit.
        bias: added to it.
        information: inverse covariance: of scale, of both, of bias.
    """

    scale: float = 1.0
    bias: float = 0.0
    information: tuple[float, float, float] = (_PRIOR_SCALE, 0.0, _PRIOR_BIAS)

    def probability(self, logit: float) -> float:
        """What a token is accepted with, of which the predictor says so."""
        return sigmoid(self.scale * _within(logit, -_MOST_LOGIT, _MOST_LOGIT) + self.bias)

    def learnt(self, logit: float, *, accepted: bool) -> "Calibration":
        """Behind a token that was tested."""
        before = self.relaxed(_KEPT)
        x, sent_chain = _within(logit, -_MOST_LOGIT, _MOST_LOGIT), before.probability(logit)
        spread, gap = sent_chain * (1.0 - sent_chain), accepted - sent_chain
        both, shared, alone = before.information
        both, shared, alone = both + spread * x * x, shared + spread * x, alone + spread
        determinant = both * alone - shared * shared
        scale, bias = (alone * x - shared) * gap / determinant, (both - shared * x) * gap / determinant
        shrunk = min(1.0, _MOST_STEP / max(abs(scale * x + bias), _MOST_STEP))
        return _bounded(before.scale + shrunk * scale, before.bias + shrunk * bias, (both, shared, alone))

    def relaxed(self, kept: float) -> "Calibration":
        """With so much of what is known; the rest is what it began with."""
        new = 1.0 - kept
        both, shared, alone = (kept * known for known in self.information)
        # What is known of scale and bias, as a line's sums: those of both Gaussians add up.
        of_scale = both * self.scale + shared * self.bias + new * _PRIOR_SCALE
        of_bias = shared * self.scale + alone * self.bias
        both, alone = both + new * _PRIOR_SCALE, alone + new * _PRIOR_BIAS
        determinant = both * alone - shared * shared
        scale, bias = alone * of_scale - shared * of_bias, both * of_bias - shared * of_scale
        return _bounded(scale / determinant, bias / determinant, (both, shared, alone))


UNCHANGED = Calibration()


@dataclass(frozen=True, slots=True)
class SentChain:
    """What was told of the tokens of a chain that was sent.

    Attributes:
        rule: by which it is verified.
        temperature: of its request.
        logits: the predictor's own, a token each; none of a chain that stopped before its first.
        features: of the row each was drawn from, if they are kept; else none. They may be worked out late.
    """

    rule: AcceptanceRule
    temperature: float
    logits: tuple[float, ...]
    features: tuple[DraftFeatures, ...] = ()


class ChainPredictor:
    """The ``AcceptancePredictor`` of one chain: recalibrated as it was when the chain began. It remembers what it said.

    A rule asks it of each row in turn, as often as it likes: the predictor behind it is asked once.
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
        """Remember those of the next row, whether or not anybody asks of it."""
        self._features.append(features)

    def sent_chain(self, tokens: int) -> SentChain | None:
        """Of the tokens that were sent, the first so many; None if it was asked of none and keeps none."""
        if not self._logits and not self._features:
            return None
        logits, features = tuple(self._logits[:tokens]), tuple(self._features[:tokens])
        return SentChain(self._rule, self._temperature, logits, features)


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    """What became of a chain.

    Attributes:
        sent_chain: of its tokens.
        accepted: of them.
        rejected: whether the one behind these was; else it was not tested, or there is none.
    """

    sent_chain: SentChain
    accepted: int
    rejected: bool


def verdict_on(
    sent_chain: SentChain,
    token_ids: Sequence[int],
    committed: Sequence[int],
    *,
    correction_owed: bool,
    next_round: bool,
) -> ChainVerdict | None:
    """What the next order says of the last chain.

    A verifier may have tested fewer tokens than it was sent, or gone on without them; then the target chose itself.
    Where equal tokens tell that is a test as well. Elsewhere it is none: what is known is only what a round with this
    chain has committed, and its tokens all were tested (chains of ratio rules that may stop are never cut).

    Args:
        sent_chain: of its tokens.
        token_ids: drafted.
        committed: behind what they were drafted behind.
        correction_owed: whether the token behind ``committed`` is the device's to draw, in place of a rejected one.
        next_round: whether no other round was made since.

    Returns:
        None if nothing is known.
    """
    if not next_round and not may_be_late(sent_chain.rule):
        return None
    accepted = common_prefix(token_ids, committed)
    replaced = accepted < len(committed) or correction_owed
    return ChainVerdict(sent_chain, accepted, replaced and accepted < len(token_ids))


class Recalibration:
    """All that a device has learned of its predictors, or that one of its generations goes by.

    A generation goes by a copy, made when it is opened, that learns from its own verdicts alone. Which verdicts of
    others a device has heard by now hangs on when messages come, and that on how long drafts are, those behind a
    rejection included.
    """

    def __init__(
        self,
        predictors: Mapping[AcceptanceRule, AcceptancePredictor],
        begin: Calibration = UNCHANGED,
        known: Mapping[tuple[AcceptanceRule, int], Calibration] | None = None,
    ) -> None:
        """Begin with what is known.

        Args:
            predictors: by what verifies a chain; the model's own confidence where there is none.
            begin: of each band of which nothing is known.
            known: by rule and band of temperatures; None: nothing.
        """
        self._predictors, self._begin = predictors, begin
        self._calibrations = dict(known or {})

    def copy(self) -> "Recalibration":
        """What is known now, to be learned on apart."""
        return Recalibration(self._predictors, self._begin, self._calibrations)

    def calibration(self, rule: AcceptanceRule, temperature: float) -> Calibration:
        return self._calibrations.get(_band(rule, temperature), self._begin)

    def chain(self, rule: AcceptanceRule, temperature: float) -> ChainPredictor:
        """Whom the rule of a new chain asks."""
        predictor = self._predictors.get(rule, _AS_CONFIDENT)
        return ChainPredictor(predictor, self.calibration(rule, temperature), rule, temperature)

    def learn(self, verdict: ChainVerdict) -> None:
        """Once of each chain."""
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
    """Within the bounds, the bias as it is best with such a scale."""
    _, shared, alone = information
    possible = _within(scale, *_SCALES)
    return Calibration(possible, _within(bias + (scale - possible) * shared / alone, *_BIASES), information)


def _within(value: float, least: float, most: float) -> float:
    return least if isnan(value) else min(max(value, least), most)
