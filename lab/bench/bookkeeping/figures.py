"""Figures of the bench, and their tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cluster.reports.tables import show_table
from lab.reports.columns import percent


@dataclass(frozen=True, slots=True)
class Flow:
    """One part that tokens pass through. ``engine_tokens_per_s``: of the engine's own loop alone."""

    part: str
    tokens_per_s: float
    engine_tokens_per_s: float
    cpu_s: float  # of its process, per token


@dataclass(frozen=True, slots=True)
class BlockCost:
    """CPU seconds that a verifier spends on one block besides the model's pass."""

    kind: str  # of block
    context_tokens: int
    step_s: float  # accepting it, planning the pass, deciding, committing
    messages_s: float  # unpickling the call, pickling the reply


def middle(runs: Sequence[Flow] | Sequence[BlockCost], name: str) -> float:
    return float(median(getattr(run, name) for run in runs))


def show_flows(found: Sequence[Sequence[Flow]]) -> None:
    show_table(
        "Behind an engine that only sleeps",
        ("part", "tokens/s", "engine alone", "share", "us of CPU a token"),
        [
            (
                *(runs[0].part, f"{middle(runs, 'tokens_per_s'):.0f}", f"{middle(runs, 'engine_tokens_per_s'):.0f}"),
                percent(middle(runs, "tokens_per_s") / middle(runs, "engine_tokens_per_s")),
                f"{1e6 * middle(runs, 'cpu_s'):.0f}",
            )
            for runs in found
        ],
    )


def show_costs(found: Sequence[Sequence[BlockCost]]) -> None:
    show_table(
        "Around a model that computes nothing",
        ("verifier's blocks", "context", "us of CPU a block", "us of its messages"),
        [
            (runs[0].kind, runs[0].context_tokens, *(f"{1e6 * middle(runs, n):.0f}" for n in ("step_s", "messages_s")))
            for runs in found
        ],
    )
