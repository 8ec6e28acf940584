"""Train models that a pair of models is served with: a decision head or an acceptance predictor."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

from cluster.option_types import new_folder, positive_int
from cluster.reports.tables import show_table
from lab.reports.columns import Columns, decimals, percent, show_columns
from lab.reports.json_file import write_json
from lab.training.head.head_config import HeadConfig
from lab.training.head.sweep import SweptRow
from lab.training.head.train import HeadReport, RelabellingReport, train_head
from lab.training.pair_config import PairConfig, add_flags
from lab.training.predictor.predictor_config import PredictorConfig
from lab.training.predictor.quality import Quality
from lab.training.predictor.train import PredictorReport, train_predictor
from lab.training.tasks.loading import load_tasks
from lab.training.tasks.task import TaskDivision, split_tasks

_ROWS: Columns[SweptRow] = (
    ("rule", lambda row: row.rule),
    ("threshold", lambda row: f"{row.threshold:.2f}" if row.link else ""),
    ("link", lambda row: row.link),
    ("score", lambda row: f"{row.score:.3f}"),
    ("95 %", lambda row: f"{row.score_low:.3f} to {row.score_high:.3f}"),
    ("drop", lambda row: f"{row.drop:+.4f}"),
    ("bound", lambda row: f"{row.drop_bound:+.4f}"),
    ("AAL", lambda row: f"{row.aal:.2f}"),
    ("rounds", lambda row: f"{row.rounds:.1f}"),
    ("rejected", lambda row: percent(row.rejection_share)),
    ("on the link", lambda row: f"{row.link_s:.2f} s" if row.link else ""),
)
_FITS: Columns[RelabellingReport] = (
    ("relabelling", lambda fit: fit.relabelling),
    ("labels 1", lambda fit: percent(fit.rejected_share)),
    ("epochs", lambda fit: f"{fit.best_epoch} of {fit.epochs}"),
    ("validation loss", lambda fit: f"{fit.validation_loss:.3f}"),
    ("AUC", lambda fit: decimals(fit.validation_auc, 3, "")),
)


def show_head(config: HeadConfig, report: HeadReport) -> None:
    critical = percent(report.critical / report.mismatches)
    print(f"{report.mismatches} mismatches in {report.scored} of {report.answers} answers, {critical} critical")
    by_link = [(link, _mean_rejection(link)) for link in report.fits[0].mean_rejection]
    note = "by link: mean probability of rejection"
    show_columns("fits, by smoothing of importance", (*_FITS, *by_link), report.fits, note)
    show_columns("calibration", _ROWS, report.calibration)
    show_columns("test", _ROWS, report.test)
    print(f"{config.out}: threshold {report.threshold}")


def _mean_rejection(link: str) -> Callable[[RelabellingReport], str]:
    return lambda fit: f"{fit.mean_rejection[link]:.3f}"


_QUALITY = ("accuracy", "AUC", "recall accepted", "specificity", "FPR", "balanced", "FPR at 80 %")
_TRUTH = ("TN", "FP", "FN", "TP", "error as fitted", "calibrated", "loss as fitted", "log loss")
_LATENCY = ("mean", "median", "std", "min", "max", "p95", "p99")


def show_predictor(config: PredictorConfig, report: PredictorReport) -> None:
    split_by = "texts" if config.logged else "prompts"
    _show_tokens(config.rule, split_by, report)
    _show_models(split_by, report)
    for name, reason in report.left_out.items():
        print(f"left out: {name} ({reason})")
    print(f"{config.out}: operating point {report.threshold:.3f}, where both classes weigh the same")


def _show_tokens(rule: str, split_by: str, report: PredictorReport) -> None:
    show_table(
        f"verified draft tokens, rule {rule}",
        ("part", split_by, "tokens", "accepted", "rejected", "share accepted"),
        (
            (
                name,
                part.prompts,
                part.tokens,
                part.accepted,
                part.tokens - part.accepted,
                percent(part.accepted / part.tokens),
            )
            for name, part in report.parts.items()
        ),
    )
    show_table(
        "features and acceptance",
        ("feature", "correlation", *(f"tenth {number}" for number in range(1, 11))),
        (
            (trend.feature, _shown(trend.correlation), *(percent(accepted) for _, accepted, _ in trend.bins))
            for trend in report.trends
        ),
        "share accepted in each tenth of the tokens, by rising feature",
    )


def _show_models(split_by: str, report: PredictorReport) -> None:
    show_table(
        f"models on {split_by} of the test part",
        ("model", "temperature", "tokens", *_QUALITY, *_TRUTH),
        _rows(report),
        "at a threshold of one half; FPR at 80 %: at a recall of 80 % of the accepted; error: of calibration",
    )
    show_table(
        "recalibrated online, as by a device",
        ("model", "temperature", "tokens", "error before", "error", "log loss before", "log loss"),
        (
            (
                name,
                temperature,
                replay.tokens,
                *map(_shown, (replay.error_before, replay.error, replay.loss_before, replay.loss)),
            )
            for name, replays in report.replays.items()
            for temperature, replay in replays.items()
        ),
        "MLP: calibrated before; others: uncalibrated",
    )
    show_table(
        "milliseconds of a call for one row, without computing features",
        ("model", *_LATENCY),
        ((one.family, *(f"{getattr(one.latency, f'{name}_ms'):.4f}" for name in _LATENCY)) for one in report.families),
    )


def _rows(report: PredictorReport) -> Iterator[Sequence[object]]:
    for one in report.families:
        yield one.family, "all", *_cells(one.test)
        if len(one.by_temperature) > 1:
            for temperature, found in one.by_temperature.items():
                yield "", temperature, *_cells(found)


def _cells(found: Quality) -> Sequence[object]:
    confusion = found.confusion
    return (
        found.tokens,
        _shown(confusion.accuracy),
        _shown(found.auc),
        _shown(confusion.recall_accepted),
        _shown(confusion.specificity),
        _shown(confusion.false_positive_rate),
        _shown(confusion.balanced_accuracy),
        _shown(found.waste_at_80),
        confusion.true_rejected,
        confusion.false_accepted,
        confusion.false_rejected,
        confusion.true_accepted,
        _shown(found.raw_error),
        _shown(found.error),
        _shown(found.raw_loss),
        _shown(found.loss),
    )


def _shown(number: float | None) -> str:
    return "" if number is None else f"{number:.4f}"


_HEAD = """Train the decision head of semantic verification for a target and its drafter.

The target answers each task. At each mismatch the drafter's token replaces the target's and the target finishes
the answer: if the score falls, such a mismatch must be rejected. The head learns to separate these from the others by
both models' hidden states, and to accept more on bad links. Stored with it is the largest threshold that is shown, on
tasks unused in training, to cost less than --most-drop of the score. Labels are kept beside the head, so that a stopped
run resumes. A report in JSON is written beside it as well."""


_PREDICTOR = """Train the predictor of the probability that a device's next draft token is accepted.

Target and drafter write responses together, in this process, and each verified draft token becomes an example: four
features of the distribution it was drawn from, and whether it was accepted. Alternatively --rounds names folders of
rounds that devices logged in service (drafters[].round_log); then neither model is loaded, and options of making rounds
(--dtype, --max-new-tokens) have no effect. A small perceptron is fitted, calibrated and stored for this pair and
acceptance rule; simpler models, and trees if the extra `train` is installed, are fitted for comparison and reported.
Examples made here are kept beside the file, and a report in JSON is written there as well."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    kinds = parser.add_subparsers(required=True, metavar="WHAT")
    head = _add(kinds, "head", HeadConfig, "the decision head of semantic verification", _HEAD)
    head.set_defaults(train=_train_head)
    tasks = "embedded (the built-in ones; embedded:N, N of a kind), or a file"
    head.add_argument("--tasks", required=True, help=tasks)
    few = "limit of tasks to label; calibration and test keep theirs"
    head.add_argument("--most-training-tasks", type=positive_int, default=None, help=few)
    text = "the probability that a draft token is accepted"
    predictor = _add(kinds, "predictor", PredictorConfig, text, _PREDICTOR)
    predictor.set_defaults(train=_train_predictor)
    predictor.add_argument("--plots", type=new_folder, default=None, help="folder for plots of features and models")


def _add(kinds: Any, name: str, config: type[PairConfig], text: str, description: str) -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = kinds.add_parser(name, help=text, description=description, formatter_class=form)
    add_flags(parser, config)
    return parser


def run(arguments: argparse.Namespace) -> None:
    flags = vars(arguments)
    del flags["run"]
    flags.pop("train")(flags)


def _train_head(flags: dict[str, Any]) -> None:
    source, most = flags.pop("tasks"), flags.pop("most_training_tasks")
    config = HeadConfig(**flags)
    report = train_head(config, division(source, most), on_stage=print)
    show_head(config, report)
    record = {"config": config.plain(), "tasks": source, "most_training_tasks": most, "report": report}
    write_json(config.out.with_suffix(".report.json"), record)


def _train_predictor(flags: dict[str, Any]) -> None:
    plots = flags.pop("plots")
    config = PredictorConfig(**flags | {"rounds": tuple(flags.get("rounds", ()))})
    report = train_predictor(config, clock=perf_counter, on_stage=print)
    show_predictor(config, report)
    if plots is not None:
        from lab.reports.predictor_plots import plot_predictor

        plot_predictor(plots / f"predictor_{config.rule}.png", report)
    write_json(config.out.with_suffix(".report.json"), {"config": config.plain(), "report": report})


def division(source: str, most: int | None) -> TaskDivision:
    """Divide named tasks, with at most ``most`` to train on."""
    train, calibration, test = split_tasks(load_tasks(source))
    return TaskDivision(train[:most], calibration, test)
