"""Terminal report of a decision head's training."""

from collections.abc import Callable

from cluster.reports.tables import percent
from lab.reports.columns import Columns, decimals, show_columns
from lab.training.head.head_config import HeadConfig
from lab.training.head.sweep import SweptRow
from lab.training.head.train import HeadReport, RelabellingReport

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
