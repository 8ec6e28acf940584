"""Terminal report of a decision head's training."""

from collections.abc import Sequence

from cluster.reports.tables import percent, show_table
from lab.training.head.head_config import HeadConfig
from lab.training.head.sweep import SweptRow
from lab.training.head.train import HeadReport

_ROWS = ("rule", "threshold", "link", "score", "95 %", "drop", "bound", "AAL", "rounds", "rejected", "on the link")


def show_head(config: HeadConfig, report: HeadReport) -> None:
    critical = percent(report.critical / report.mismatches)
    print(f"{report.mismatches} mismatches in {report.scored} of {report.answers} answers, {critical} critical")
    show_table(
        "fits, by smoothing of importance",
        ("relabelling", "labels 1", "epochs", "validation loss", "AUC", *report.fits[0].mean_rejection),
        (
            (
                fit.relabelling,
                percent(fit.rejected_share),
                f"{fit.best_epoch} of {fit.epochs}",
                f"{fit.validation_loss:.3f}",
                "" if fit.validation_auc is None else f"{fit.validation_auc:.3f}",
                *(f"{prob:.3f}" for prob in fit.mean_rejection.values()),
            )
            for fit in report.fits
        ),
        "by link: mean probability of rejection",
    )
    _show_rows("calibration", report.calibration)
    _show_rows("test", report.test)
    print(f"{config.out}: threshold {report.threshold}")


def _show_rows(title: str, rows: Sequence[SweptRow]) -> None:
    show_table(title, _ROWS, (_cells(row) for row in rows))


def _cells(row: SweptRow) -> Sequence[object]:
    threshold = f"{row.threshold:.2f}" if row.link else ""
    return (
        row.rule,
        threshold,
        row.link,
        f"{row.score:.3f}",
        f"{row.score_low:.3f} to {row.score_high:.3f}",
        f"{row.drop:+.4f}",
        f"{row.drop_bound:+.4f}",
        f"{row.aal:.2f}",
        f"{row.rounds:.1f}",
        percent(row.rejection_share),
        f"{row.link_s:.2f} s" if row.link else "",
    )
