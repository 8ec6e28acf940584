"""Train an acceptance predictor: compare kinds of models on rounds, and keep the perceptron.

The reported figures are measured on prompts that were not used to fit, stop, choose or calibrate anything.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
import torch
from scipy.special import expit

from lab.training.pair_files import save_predictor
from lab.training.predictor.drafted import DraftedTokens, Floats
from lab.training.predictor.families import AS_IT_IS, MLP, Fitted, fit_families
from lab.training.predictor.logistic import Platt, fit_platt
from lab.training.predictor.material import Material, gather
from lab.training.predictor.mlp import calibrated
from lab.training.predictor.predictor_config import PredictorConfig
from lab.training.predictor.quality import (
    FeatureTrend,
    Latency,
    Quality,
    Replay,
    feature_trend,
    latency,
    quality,
    replay,
)
from outrider.drafting.features import FEATURE_NAMES
from outrider.models.predictor_file import PredictorInfo
from outrider.models.predictors import shipped_predictors

_WARM_CALLS = 20
SHIPPED = "shipped"  # the package's own predictor, compared on logged rounds; it was trained on others


@dataclass(frozen=True, slots=True)
class PartReport:
    """Figures of one part (WISP table 8)."""

    prompts: int
    tokens: int
    accepted: int


@dataclass(frozen=True, slots=True)
class FamilyReport:
    family: str  # its name
    settings: Mapping[str, object]  # chosen ones
    tried: int  # number of settings tried
    platt: Platt  # turns its scores into probabilities
    test: Quality  # on the whole test part
    by_temperature: Mapping[str, Quality]  # on the test tokens of each temperature
    latency: Latency  # of a call for one row, its features known


@dataclass(frozen=True, slots=True)
class PredictorReport:
    """Result of a training.

    Attributes:
        replays: on the test part, recalibrated online: by kind (the perceptron, the raw confidence, and the package's
            predictor) and temperature.
    """

    parts: Mapping[str, PartReport]  # by name
    trends: tuple[FeatureTrend, ...]  # of each feature, over all tokens
    families: tuple[FamilyReport, ...]  # compared
    left_out: Mapping[str, str]  # kinds that could not be tried, and why
    replays: Mapping[str, Mapping[str, Replay]]
    threshold: float  # probability at which the perceptron's classes weigh the same: its operating point


def train_predictor(
    config: PredictorConfig,
    *,
    clock: Callable[[], float],
    progress: bool = True,
    on_stage: Callable[[str], None] = lambda _stage: None,
) -> PredictorReport:
    """Train a predictor and write it to ``config.out``; ``clock`` times calls, in seconds.

    Raises:
        ModelUnavailableError: target or drafter cannot be found or, where rounds are made, loaded.
        VocabularyMismatchError: they do not share a token map.
        ParameterError: rounds of another pair or rule, prompts without room for a response, or too few tokens.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    material = gather(config, progress=progress, on_stage=on_stage)
    tokens, parts = material.tokens, material.parts
    families, left_out = fit_families(
        parts.train, parts.validation, config.effort, on_family=lambda name: on_stage(f"fit: {name}")
    )
    if config.logged:
        families |= _shipped(material, config)
    on_stage("test")
    reports = [_report(name, fitted, material, config, clock) for name, fitted in families.items()]
    (own,) = (one for one in reports if one.family == MLP)
    perceptron = families[MLP].perceptron
    assert perceptron is not None, "it is one"
    kept = calibrated(perceptron, own.platt)
    report = PredictorReport(
        parts={name: _part_report(getattr(parts, name)) for name in ("train", "validation", "calibration", "test")},
        trends=tuple(
            feature_trend(*each, tokens.accepted) for each in zip(FEATURE_NAMES, tokens.features.T, strict=True)
        ),
        families=tuple(reports),
        left_out=left_out,
        replays={
            name: replay(scores(parts.test.features), parts.test, config.acceptance_rule, config.window_tokens)
            for name, scores in ({MLP: kept.scores} | _as_they_are(families)).items()
        },
        threshold=float(expit(own.platt.offset)),
    )
    save_predictor(config.out, kept, _info(config, material, report, own))
    return report


def _as_they_are(families: Mapping[str, Fitted]) -> dict[str, Callable[[Floats], Floats]]:
    return {name: families[name].scores for name in (AS_IT_IS, SHIPPED) if name in families}


def _shipped(material: Material, config: PredictorConfig) -> dict[str, Fitted]:
    """The package's predictor for this pair and rule, if there is one."""
    known = shipped_predictors(material.pair.target_hash, material.pair.drafter_hash)
    if (found := known.get(config.acceptance_rule)) is None:
        return {}
    own = found.perceptron
    return {SHIPPED: Fitted(own.scores, {}, predictor=own, perceptron=own)}


def _report(
    name: str, fitted: Fitted, material: Material, config: PredictorConfig, clock: Callable[[], float]
) -> FamilyReport:
    parts = material.parts
    platt = fit_platt(fitted.scores(parts.calibration.features), parts.calibration.accepted)

    def on(test: DraftedTokens) -> Quality:
        scores = fitted.scores(test.features)
        return quality(expit(scores), platt.probs(scores), test.accepted)

    by_temperature = {
        f"{temperature:g}": on(own)
        for temperature in material.told_temperatures
        if len(own := parts.test.where(parts.test.temperature == temperature))
    }
    timed = _timed(fitted, parts.test, config.latency_calls, clock)
    return FamilyReport(name, fitted.settings, fitted.tried, platt, on(parts.test), by_temperature, timed)


def _timed(fitted: Fitted, test: DraftedTokens, count: int, clock: Callable[[], float]) -> Latency:
    """Time single calls, without the first."""
    calls = [fitted.one_call(row) for row in islice(cycle(test.features), count)]
    for call in calls[:_WARM_CALLS]:
        call()
    took_s = []
    for call in calls:
        begun_s = clock()
        call()
        took_s.append(clock() - begun_s)
    return latency(took_s)


def _part_report(part: DraftedTokens) -> PartReport:
    return PartReport(len(np.unique(part.prompt)), len(part), int(part.accepted.sum()))


def _info(config: PredictorConfig, material: Material, report: PredictorReport, own: FamilyReport) -> PredictorInfo:
    reported = own.test.confusion
    figures = {
        "tokens": sum(part.tokens for part in report.parts.values()),
        "test_tokens": own.test.tokens,
        "test_accepted_share": own.test.accepted_share,
        "test_auc": own.test.auc,
        "test_recall_accepted": reported.recall_accepted,
        "test_specificity": reported.specificity,
        "test_calibration_error": own.test.error,
    }
    return PredictorInfo(
        target=material.pair.target,
        target_hash=material.pair.target_hash,
        drafter=material.pair.drafter,
        drafter_hash=material.pair.drafter_hash,
        rule=config.acceptance_rule,
        temperatures=material.temperatures,
        threshold=report.threshold,
        measured={name: float(value) for name, value in figures.items() if value is not None},
    )
