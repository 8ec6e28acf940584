"""Reports of trainings: of a decision head, and of an acceptance predictor (WISP tables 4, 8, 10 and 11)."""

from collections.abc import Callable, Iterator, Sequence

from cluster.reports.tables import show_table
from lab.reports.columns import Columns, decimals, percent, show_columns
from lab.training.head.head_config import HeadConfig
from lab.training.head.sweep import SweptRow
from lab.training.head.train import HeadReport, RelabellingReport
from lab.training.predictor.predictor_config import PredictorConfig
from lab.training.predictor.quality import Quality
from lab.training.predictor.train import PredictorReport

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
