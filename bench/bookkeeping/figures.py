"""What is measured, and shown."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.reports.tables import percent, show_table


@dataclass(frozen=True, slots=True)
class Bookkeeping:
    """One part. ``alone_tokens_per_s``: of what it stands behind, with nothing behind it."""

    part: str
    tokens_per_s: float
    alone_tokens_per_s: float
    cpu_s: float  # of its process, per token


def show(found: Sequence[Bookkeeping]) -> None:
    """As a table."""
    show_table(
        "Behind an engine that only sleeps",
        ("part", "tokens/s", "engine alone", "share", "us of CPU a token"),
        [
            (
                *(one.part, f"{one.tokens_per_s:.0f}", f"{one.alone_tokens_per_s:.0f}"),
                *(percent(one.tokens_per_s / one.alone_tokens_per_s), f"{1e6 * one.cpu_s:.0f}"),
            )
            for one in found
        ],
    )
