"""Tables of ``outrider profile``."""

from collections.abc import Sequence
from statistics import mean

from cluster.reports.tables import show_table
from outrider.costs.fit_figures import PAPER_KINDS, BatchKind, BatchSample, FitFigures, noise_floor_mape
from outrider.costs.fitting import FittedModel

_HEADER = ("fit", "samples", "R2", "adj. R2", "RMSE ms", "MAE ms", "MAPE %", "max ms", "max %")
_TARGET_VARIATION = 0.05  # the paper's aim for a measurement


def show_profile(train: Sequence[BatchSample], test: Sequence[BatchSample], fitted: FittedModel) -> None:
    _show_noise((*train, *test))
    _show_coefficients(fitted)
    reports = fitted.reports
    show_table("training samples", _HEADER, [(kind, *_cells(report.train)) for kind, report in reports.items()])
    unseen = [(kind, *_cells(report.test)) for kind, report in reports.items() if report.test]
    if unseen:
        show_table("unseen samples", _HEADER, unseen)
    rows = [
        (f"{batch_kind}, {kind}", *_cells(report.by_kind[batch_kind]))
        for batch_kind in BatchKind
        for kind, report in reports.items()
        if batch_kind in report.by_kind
    ]
    show_table("unseen samples by kind of batch" if unseen else "by kind of batch", _HEADER, rows)
    rounds = [(kind, *(f"{value:.4f}" for value in report.cross_validation)) for kind, report in reports.items()]
    show_table("cross-validation, 5 folds of the training samples", ("fit", "mean R2", "sd"), rounds)
    offsets = [f"{index}: {offset * 1e3:+.1f}" for index, offset in enumerate(fitted.model.row_offsets_s) if offset]
    print(f"\nrow offsets, ms by bucket: {', '.join(offsets)}")


def _show_noise(samples: Sequence[BatchSample]) -> None:
    """Print the noise floor: how well measurements predict their own repeats, which no model can beat."""
    rows = []
    for name, chosen in [
        ("the paper's kinds", PAPER_KINDS),
        *((batch_kind.value, (batch_kind,)) for batch_kind in BatchKind),
    ]:
        of_kind = [sample for sample in samples if sample.kind in chosen]
        floor = noise_floor_mape(of_kind)
        if floor is None:
            continue
        variations = [sample.variation for sample in of_kind]
        rows.append(
            (
                name,
                len(of_kind),
                f"{100 * mean(variations):.1f}",
                f"{100 * max(variations):.1f}",
                f"{sum(one < _TARGET_VARIATION for one in variations)}",
                f"{100 * floor:.1f}",
            )
        )
    header = ("kind", "samples", "mean CV %", "max CV %", "CV below 5 %", "MAPE % of a repeat by the others")
    if rows:
        show_table("noise of the measurements", header, rows)


def _show_coefficients(fitted: FittedModel) -> None:
    rows = [
        (kind, name, f"{1e6 * found.value:.4g}", f"{1e6 * found.low:.4g}", f"{1e6 * found.high:.4g}")
        for kind, report in fitted.reports.items()
        for name, found in report.coefficients.items()
    ]
    show_table("coefficients, us, with 95 % bootstrap intervals", ("fit", "coefficient", "value", "low", "high"), rows)


def _cells(found: FitFigures) -> tuple[str, ...]:
    return (
        str(found.samples),
        "-" if found.r2 is None else f"{found.r2:.4f}",
        "-" if found.adjusted_r2 is None else f"{found.adjusted_r2:.4f}",
        f"{1e3 * found.rmse_s:.1f}",
        f"{1e3 * found.mae_s:.1f}",
        f"{100 * found.mape:.2f}",
        f"{1e3 * found.largest_s:.1f}",
        f"{100 * found.largest_relative:.1f}",
    )
