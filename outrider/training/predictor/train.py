"""Train a predictor of acceptance: make rounds, compare kinds of models on them, and keep the perceptron.

What is reported is measured on prompts that nothing was fitted to, stopped by, chosen by or calibrated on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
import torch
from scipy.special import expit
from tqdm import tqdm

from outrider.contracts.errors import ParameterError
from outrider.drafting.features import FEATURE_NAMES
from outrider.models.predictor_file import PredictorInfo, save_predictor
from outrider.training.builtin_prompts import builtin_prompts
from outrider.training.head.pair import Models, load_pair, paged
from outrider.training.predictor.drafted import DraftedTokens, Parts, split
from outrider.training.predictor.families import AS_IT_IS, MLP, Fitted, fit_families
from outrider.training.predictor.logistic import Platt, fit_platt
from outrider.training.predictor.mlp import calibrated
from outrider.training.predictor.predictor_config import PredictorConfig
from outrider.training.predictor.quality import FeatureTrend, Latency, Quality, feature_trend, latency, quality
from outrider.training.predictor.replay import Replay, replay
from outrider.training.predictor.rounds import drafted_tokens, requests_of
from outrider.training.predictor.rounds_file import header_of, read_rounds, save_rounds
from outrider.training.traces import is_held_out, prompt_ids

_WARM_CALLS = 20


@dataclass(frozen=True, slots=True)
class PartReport:
    """Of one part (WISP table 8)."""

    prompts: int
    tokens: int
    accepted: int


@dataclass(frozen=True, slots=True)
class FamilyReport:
    """One kind of model.

    Attributes:
        family: its name.
        settings: chosen.
        tried: settings in all.
        platt: what makes its scores probabilities.
        test: on all of the test part.
        by_temperature: on each temperature's tokens of it.
        latency: of a call for one row, its features known.
    """

    family: str
    settings: Mapping[str, object]
    tried: int
    platt: Platt
    test: Quality
    by_temperature: Mapping[str, Quality]
    latency: Latency


@dataclass(frozen=True, slots=True)
class PredictorReport:
    """What came out.

    Attributes:
        parts: by name.
        trends: of each feature, over all tokens.
        families: compared.
        left_out: kinds that could not be tried, and why.
        replays: on the test part, recalibrated while its tokens come: by kind (the perceptron, and the confidence as it
            is) and temperature.
        threshold: probability at which the perceptron's classes weigh the same: its operating point.
    """

    parts: Mapping[str, PartReport]
    trends: tuple[FeatureTrend, ...]
    families: tuple[FamilyReport, ...]
    left_out: Mapping[str, str]
    replays: Mapping[str, Mapping[str, Replay]]
    threshold: float


def train_predictor(
    config: PredictorConfig,
    *,
    clock: Callable[[], float],
    progress: bool = True,
    on_stage: Callable[[str], None] = lambda _stage: None,
) -> PredictorReport:
    """Train a predictor and write it to ``config.out``.

    Args:
        config: how.
        clock: seconds, to time calls by.
        progress: show progress bars on stderr.
        on_stage: told what begins.

    Raises:
        ModelUnavailableError: target or drafter cannot be loaded.
        VocabularyMismatchError: they do not share a token map.
        ParameterError: rounds of another pair or rule, prompts without room for a response, or too few tokens.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    models = load_pair(config.pair)
    prompts = prompts_of(models, config)
    on_stage(f"rounds: {config.rounds_file}")
    tokens = _tokens(models, config, prompts, progress=progress)
    parts = split(tokens, prompts, config.least_tokens)
    families, left_out = fit_families(
        parts.train, parts.validation, config.effort, on_family=lambda name: on_stage(f"fit: {name}")
    )
    on_stage("test")
    reports = [_report(name, fitted, parts, config, clock) for name, fitted in families.items()]
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
            for name, scores in ((MLP, kept.scores), (AS_IT_IS, families[AS_IT_IS].scores))
        },
        threshold=float(expit(own.platt.offset)),
    )
    save_predictor(config.out, kept, _info(config, models, report, own))
    return report


def prompts_of(models: Models, config: PredictorConfig) -> list[tuple[int, ...]]:
    """Token ids of what is to be answered, no two alike.

    Raises:
        ParameterError: one leaves no room for a response.
    """
    if config.prompts is None:
        texts: Sequence[str] = builtin_prompts()
    else:
        texts = [line for line in config.prompts.read_text(encoding="utf-8").splitlines() if line.strip()]
    every = dict.fromkeys(tuple(prompt_ids(models.target.tokenizer, text)) for text in texts)
    chosen = [ids for ids in every if config.prompts is not None or is_held_out(ids)][: config.most_prompts]
    room = min(models.target.max_context_tokens, models.drafter.max_context_tokens) - config.max_new_tokens
    for ids in chosen:
        if len(ids) > room:
            needed = f"at most {room} tokens each, as responses may have {config.max_new_tokens}"
            raise ParameterError("prompts", needed, len(ids))
    return chosen


def _tokens(
    models: Models, config: PredictorConfig, prompts: Sequence[tuple[int, ...]], *, progress: bool
) -> DraftedTokens:
    """Kept before, or made and kept now."""
    header = header_of(models, config, prompts)
    if (kept := read_rounds(config.rounds_file, header)) is not None:
        return kept
    if not prompts:
        raise ParameterError("prompts", "at least one that is not empty", 0)
    requests = requests_of(prompts, config.asked_temperatures, config.max_new_tokens, config.seed)
    pair = paged(models, config.batch, max(map(len, prompts)) + config.max_new_tokens)
    most = len(requests) * config.max_new_tokens
    with tqdm(total=most, desc="rounds", unit="token", disable=not progress) as bar:
        tokens = drafted_tokens(
            pair,
            requests,
            config.acceptance_rule,
            window_tokens=config.window_tokens,
            batch=config.batch,
            on_written=bar.update,
        )
    save_rounds(config.rounds_file, tokens, header)
    return tokens


def _report(
    name: str, fitted: Fitted, parts: Parts, config: PredictorConfig, clock: Callable[[], float]
) -> FamilyReport:
    platt = fit_platt(fitted.scores(parts.calibration.features), parts.calibration.accepted)

    def on(test: DraftedTokens) -> Quality:
        scores = fitted.scores(test.features)
        return quality(expit(scores), platt.probs(scores), test.accepted)

    by_temperature = {
        f"{temperature:g}": on(own)
        for temperature in config.asked_temperatures
        if len(own := parts.test.where(parts.test.temperature == temperature))
    }
    timed = _timed(fitted, parts.test, config.latency_calls, clock)
    return FamilyReport(name, fitted.settings, fitted.tried, platt, on(parts.test), by_temperature, timed)


def _timed(fitted: Fitted, test: DraftedTokens, count: int, clock: Callable[[], float]) -> Latency:
    """Calls one by one, the first of them not counted."""
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


def _info(config: PredictorConfig, models: Models, report: PredictorReport, own: FamilyReport) -> PredictorInfo:
    told = own.test.confusion
    figures = {
        "tokens": sum(part.tokens for part in report.parts.values()),
        "test_tokens": own.test.tokens,
        "test_accepted_share": own.test.accepted_share,
        "test_auc": own.test.auc,
        "test_recall_accepted": told.recall_accepted,
        "test_specificity": told.specificity,
        "test_calibration_error": own.test.error,
    }
    return PredictorInfo(
        target=models.target.name,
        target_hash=models.target.model_hash,
        drafter=models.drafter.name,
        drafter_hash=models.drafter.model_hash,
        rule=config.acceptance_rule,
        temperatures=config.asked_temperatures,
        threshold=report.threshold,
        measured={name: float(value) for name, value in figures.items() if value is not None},
    )
