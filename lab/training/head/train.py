"""Train a decision head: label, relabel for links, fit, and choose the largest threshold shown to be harmless.

The head that is compared and reported is read back from a temporary file, as a service would read it; ``config.out``
is written only when everything is done.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from tqdm import tqdm

from lab.training.head.examples import Examples, ExampleSettings, examples
from lab.training.head.fitting import Fit, fit
from lab.training.head.head_config import UNRELABELLED, HeadConfig
from lab.training.head.links import CALIBRATED, LinkRanges, LinkScale
from lab.training.head.mismatches import HiddenPair, as_sent, hidden_at
from lab.training.head.pair import EncodedTask, LoadedPair, ask, load_pair, paged
from lab.training.head.relabelling import Floats, Relabelling, Smoothing
from lab.training.head.replacing import LabelledAnswer, header_of, make_labels, read_labels, texts_needed
from lab.training.head.sweep import STRICT, SweptRow, choose_threshold, sweep, worst_bounds
from lab.training.pair_files import save_head
from lab.training.ranking import area_under_curve
from lab.training.tasks.task import TaskDivision, is_validation
from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import FloatField
from outrider.models.head_file import HeadInfo, read_head
from outrider.verification.decision_head import DecisionHead, HeadWeights, csi_features

_LEAST_OF_A_KIND = 10  # critical, and harmless, mismatches needed in training as well as in validation


@dataclass(frozen=True, slots=True)
class RelabellingReport:
    """Result of one way of relabelling.

    Attributes:
        validation_auc: of the probabilities on the best link against base labels, critical against harmless; None
            unless both kinds occur.
    """

    relabelling: str  # ``sum``, ``max`` or ``none``
    rejected_share: float  # share of labels that are 1, after relabelling
    epochs: int  # number run
    best_epoch: int  # the one kept
    validation_loss: float  # class-balanced cross-entropy in nats, against the labels of this relabelling
    validation_auc: float | None
    mean_rejection: dict[str, float]  # mean probability of rejection on the validation mismatches, by link


@dataclass(frozen=True, slots=True)
class HeadReport:
    answers: int  # labelled; ``scored`` of them scored above 0, the only ones with mismatches to learn from
    scored: int
    mismatches: int  # tried; ``critical`` of them lower the score
    critical: int
    fits: tuple[RelabellingReport, ...]  # with sum, maximum and no relabelling, on the same mismatches
    bounds: tuple[float, ...]  # upper bound of each threshold's drop on the calibration tasks, over all links
    calibration: tuple[SweptRow, ...]  # rows of each threshold and link, then of strict verification
    threshold: float  # chosen
    test: tuple[SweptRow, ...]  # rows at that threshold, and of strict verification


def train_head(
    config: HeadConfig,
    tasks: TaskDivision,
    *,
    progress: bool = True,
    on_stage: Callable[[str], None] = lambda _stage: None,
) -> HeadReport:
    """Train a head and write it to ``config.out``; ``on_stage`` is called with the name of each stage that begins.

    Raises:
        ModelUnavailableError: target or drafter cannot be loaded.
        VocabularyMismatchError: they do not share a token map.
        ParameterError: labels of another pair or of other tasks, or too few mismatches to learn from.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if (count := len(tasks.calibration)) < config.least_calibration_tasks:
        raise ParameterError("tasks", f"at least {config.least_calibration_tasks} for calibration; give more", count)
    models, rounding = load_pair(config.pair), as_sent(FloatField(config.hidden_field))
    training, calibration, test = (
        ask(models, list(part), config.max_new_tokens) for part in (tasks.training, tasks.calibration, tasks.test)
    )
    read_labels(
        config.label_file, training, header_of(models, config.sampling, training)
    )  # fail before anything is computed
    longest = max(len(one.prompt_ids) for part in (training, calibration, test) for one in part)
    pair = paged(models, texts_needed(config.batch), longest + config.max_new_tokens + config.window_tokens)
    on_stage(f"labels: {config.label_file}")
    answers = make_labels(pair, training, config.label_file, config.sampling, batch=config.batch, progress=progress)
    taught = _taught(config, answers)
    on_stage("hidden states")
    hidden = [
        hidden_at(pair, one.asked.prompt_ids, one.answer_ids, [each.mismatch for each in one.replaced], rounding)
        for part in taught
        for one in tqdm(part, desc="hidden states", unit="answer", disable=not progress)
    ]
    width = hidden[0].drafter.shape[1]
    fits = {kind: _fitted(config, taught, hidden, width, kind) for kind in (*map(str, Smoothing), UNRELABELLED)}
    weights = fits[config.relabelling][0].weights
    head = _as_read_back(config, models, weights)
    on_stage("calibration")

    def swept(asked: Sequence[EncodedTask], thresholds: Sequence[float]) -> list[SweptRow]:
        return sweep(
            pair,
            asked,
            head.weights,
            thresholds,
            CALIBRATED,
            window_tokens=config.window_tokens,
            batch=config.batch,
            rounding=rounding,
            progress=progress,
        )

    compared = swept(calibration, config.thresholds)
    bounds = worst_bounds(compared, config.thresholds)
    threshold = choose_threshold(config.thresholds, bounds, config.most_drop)
    on_stage(f"test at threshold {threshold}")
    tested = swept(test, [threshold])
    tried = [label for part in taught for one in part for label in one.labels]
    report = HeadReport(
        answers=len(answers),
        scored=sum(one.score > 0.0 for one in answers),
        mismatches=len(tried),
        critical=sum(tried),
        fits=tuple(each for _, each in fits.values()),
        bounds=tuple(bounds),
        calibration=tuple(compared),
        threshold=threshold,
        test=tuple(tested),
    )
    save_head(config.out, weights, _info(config, models, report))
    return report


def _taught(config: HeadConfig, answers: Sequence[LabelledAnswer]) -> tuple[list[LabelledAnswer], list[LabelledAnswer]]:
    parts: tuple[list[LabelledAnswer], list[LabelledAnswer]] = [], []
    for answer in answers:
        if answer.replaced:
            parts[is_validation(answer.asked.task)].append(answer)
    tried = sum(len(one.replaced) for part in parts for one in part)
    if tried < config.least_mismatches:
        needed = f"at least {config.least_mismatches} mismatches in answers that score above 0; give more tasks"
        raise ParameterError("tasks", needed, f"{tried} in {len(answers)} answers")
    for name, part in zip(("training", "validation"), parts, strict=True):
        labels = [label for one in part for label in one.labels]
        if min(sum(labels), len(labels) - sum(labels)) < _LEAST_OF_A_KIND:
            needed = f"at least {_LEAST_OF_A_KIND} critical and as many harmless mismatches for {name}; give more tasks"
            raise ParameterError("tasks", needed, f"{sum(labels)} critical of {len(labels)}")
    return parts


def _fitted(
    config: HeadConfig,
    taught: tuple[list[LabelledAnswer], list[LabelledAnswer]],
    hidden: Sequence[HiddenPair],
    width: int,
    kind: str,
) -> tuple[Fit, RelabellingReport]:
    lesson = ExampleSettings(
        smoothing=None if kind == UNRELABELLED else Smoothing(kind),
        policy=Relabelling(config.least_repair_share),
        scale=LinkScale(config.window_tokens, width),
        ranges=LinkRanges(),
        links_per_answer=config.links_per_answer,
        seed=config.seed,
    )
    train, held_out = taught
    own = examples(train, hidden[: len(train)], lesson)
    validation = examples(held_out, hidden[len(train) :], replace(lesson, seed=config.seed + 1), train)
    found = fit(own, validation, config.fitting)
    return found, _fit_report(kind, found, own, validation, held_out)


def _fit_report(
    kind: str, found: Fit, own: Examples, validation: Examples, held_out: Sequence[LabelledAnswer]
) -> RelabellingReport:
    probs = {
        name: rejection_probs(found.weights, validation.hidden, csi_features(link)) for name, link in CALIBRATED.items()
    }
    labels = [label for answer in held_out for label in answer.labels]
    return RelabellingReport(
        relabelling=kind,
        rejected_share=float(own.labels.mean()),
        epochs=found.epochs,
        best_epoch=found.best_epoch,
        validation_loss=found.validation_loss,
        validation_auc=area_under_curve(next(iter(probs.values())), labels),
        mean_rejection={name: float(each.mean()) for name, each in probs.items()},
    )


def rejection_probs(weights: HeadWeights, hidden: HiddenPair, csi: Floats) -> Floats:
    """``[M]``: of mismatches under one link."""
    links = np.repeat(csi[None], len(hidden.drafter), axis=0)
    head = DecisionHead(weights, 0.0)
    return head.rejection_probs(hidden.drafter.astype(np.float64), hidden.target.astype(np.float64), links)


def _as_read_back(config: HeadConfig, models: LoadedPair, weights: HeadWeights) -> DecisionHead:
    """The head after a write and a read: its numbers are rounded."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / config.out.name
        save_head(file, weights, _info(config, models))
        return read_head(file).decisions


def _info(config: HeadConfig, models: LoadedPair, report: HeadReport | None = None) -> HeadInfo:
    """Metadata of the head file; without a report, of a head that rejects everything."""
    threshold = 0.0 if report is None else report.threshold
    compared = () if report is None else report.calibration
    rows = [row for row in compared if row.rule == "head" and row.threshold == threshold]
    return HeadInfo(
        target=models.target.name,
        target_hash=models.target.model_hash,
        drafter=models.drafter.name,
        drafter_hash=models.drafter.model_hash,
        threshold=threshold,
        rejection_low=min((row.rejection_low for row in rows), default=1.0),
        rejection_high=1.0,  # short answers may reject all their mismatches: no sign of drift
        hidden_field=config.hidden_field,
        measured={} if report is None else _measured(report),
    )


def _measured(report: HeadReport) -> dict[str, float]:
    heads = [row for row in report.test if row.rule == "head"]
    (strict,) = (row for row in report.test if row.rule == STRICT)
    figures = {
        "mismatches": float(report.mismatches),
        "critical_share": report.critical / report.mismatches,
        "test_score_strict": strict.score,
        "test_aal_strict": strict.aal,
        "test_rounds_strict": strict.rounds,
    }
    for name in ("score", "drop", "drop_bound", "aal", "rounds"):
        values = [getattr(row, name) for row in heads]
        figures[f"test_{name}"] = sum(values) / len(values)
    return figures
