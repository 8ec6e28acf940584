"""Figures of the bench, and their tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cluster.reports.tables import percent, show_table


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


def middle_flow(runs: Sequence[Flow]) -> Flow:
    """Median of each figure over several runs of one part."""
    columns = zip(*((run.tokens_per_s, run.engine_tokens_per_s, run.cpu_s) for run in runs), strict=True)
    return Flow(runs[0].part, *map(median, columns))


def middle_cost(runs: Sequence[BlockCost]) -> BlockCost:
    """Median of each figure over several runs of one kind of block."""
    step_s, messages_s = median(run.step_s for run in runs), median(run.messages_s for run in runs)
    return BlockCost(runs[0].kind, runs[0].context_tokens, step_s, messages_s)


def show_flows(found: Sequence[Flow]) -> None:
    show_table(
        "Behind an engine that only sleeps",
        ("part", "tokens/s", "engine alone", "share", "us of CPU a token"),
        [
            (
                *(one.part, f"{one.tokens_per_s:.0f}", f"{one.engine_tokens_per_s:.0f}"),
                *(percent(one.tokens_per_s / one.engine_tokens_per_s), f"{1e6 * one.cpu_s:.0f}"),
            )
            for one in found
        ],
    )


def show_costs(found: Sequence[BlockCost]) -> None:
    show_table(
        "Around a model that computes nothing",
        ("verifier's blocks", "context", "us of CPU a block", "us of its messages"),
        [
            (one.kind, str(one.context_tokens), f"{1e6 * one.step_s:.0f}", f"{1e6 * one.messages_s:.0f}")
            for one in found
        ],
    )
