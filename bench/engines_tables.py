"""The tables of ``outrider bench engines``."""

from collections.abc import Mapping, Sequence

from bench.engines_figures import BARE, AloneFigures, RoundFigures, ServedFigures, Spread
from cluster.reports.tables import show_table


def print_rounds(figures: Sequence[RoundFigures]) -> None:
    """Warm and cold rounds, and which arms failed."""
    for warm, title in ((True, "resident prefix"), (False, "prefix computed first")):
        group = [one for one in figures if one.cell.warm is warm]
        if group:
            _print_rounds(f"verification, {title}: milliseconds, median [smallest-largest]", group)
    _print_failures({arm: failure for one in figures for arm, failure in one.failures.items()})


def _print_rounds(title: str, group: Sequence[RoundFigures]) -> None:
    arms = list(dict.fromkeys(arm for one in group for arm in one.milliseconds))
    compared = [arm for arm in arms if arm.startswith("vllm")]
    header = ("B", "K", "prefix", *arms, *(f"{arm} / bare" for arm in compared))
    rows = [
        (
            one.cell.generations,
            one.cell.draft,
            one.cell.prefix,
            *(_shown(one.milliseconds.get(arm)) for arm in arms),
            *(f"{one.over_bare[arm]:.3f}" if arm in one.over_bare else "-" for arm in compared),
        )
        for one in group
    ]
    show_table(title, header, rows)
    for arm in (arm for arm in arms if arm != BARE):
        ratios = sorted(one.over_bare[arm] for one in group if arm in one.over_bare)
        if ratios:
            middle = ratios[len(ratios) // 2]
            print(f"  {arm} over {BARE}: median {middle:.3f}, largest {ratios[-1]:.3f} of {len(ratios)} cells")


def print_alone(figures: Sequence[AloneFigures]) -> None:
    """Closed loops of engines alone."""
    if not figures:
        return
    header = ("engine", "clients", "window", "tokens/s", "acceptance", "as recorded")
    rows = [
        (
            one.arm,
            one.clients,
            one.window,
            _shown(one.tokens_per_s),
            "-" if one.acceptance is None else f"{one.acceptance:.2f}",
            "yes" if one.exact else "no",
        )
        for one in figures
    ]
    show_table("engines alone, drafts at no cost: output tokens per second", header, rows)
    _print_failures({one.arm: one.failure for one in figures if one.failure})


def print_served(title: str, figures: Sequence[ServedFigures]) -> None:
    """Goodput by arm and clients."""
    header = ("arm", "clients", "tokens/s", "of one request", "TTFT ms", "TPOT ms", "acceptance", "unanswered")
    rows = [
        (
            one.arm,
            one.clients,
            _shown(one.tokens_per_s),
            _shown(one.client_tokens_per_s),
            _shown(one.ttft_ms),
            _shown(one.tpot_ms),
            "-" if one.acceptance is None else f"{one.acceptance:.2f}",
            one.unanswered,
        )
        for one in sorted(figures, key=lambda one: one.clients)
    ]
    show_table(f"{title}: median [smallest-largest] over repeats", header, rows)
    _print_failures({one.arm: one.failure for one in figures if one.failure})


def _shown(value: Spread | None) -> str:
    return "-" if value is None else str(value)


def _print_failures(failures: Mapping[str, str]) -> None:
    for arm, failure in failures.items():
        print(f"  FAILED {arm}: {failure}")
