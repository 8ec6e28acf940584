"""Figures of measured cells with 95 % intervals.

Periods of time of all repeats are redrawn: responses and rounds of the same time are correlated, those of different
periods less so. Differences between cells, such as from other load on the machine, are in no period: repeats show them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.bench.capacity.log import CellLog
from lab.bench.harness.statistics import Estimate, quotient, ratio

STRETCH_S = 5.0  # minimum; a cell is cut into equal periods


@dataclass(frozen=True, slots=True)
class Stretch:
    """A period of one cell after its warm-up."""

    seconds: float
    tokens: int  # committed
    kept: int  # responses that ended with their promise kept
    ended: int  # responses that ended
    refused: int


def time_slices(log: CellLog, length_s: float = STRETCH_S) -> list[Stretch]:
    """Cut a cell's time after its warm-up into equal periods, none shorter than ``length_s`` unless the whole is."""
    count = max(1, int(log.measured_s / length_s))
    edges_s = np.linspace(log.warmup_s, log.ended_at_s, count + 1)

    def sums(found: Sequence[tuple[float, int]]) -> list[int]:
        at_s = [at_s for at_s, _ in found]
        counted, _ = np.histogram(at_s, edges_s, weights=[float(number) for _, number in found])
        return [round(number) for number in counted.tolist()]

    tokens = [(made.committed_at_s, made.timing.committed_tokens) for one in log.responses for made in one.rounds]
    ended = [(one.ended_at_s, one.kept) for one in log.responses if one.ended_at_s is not None]
    refused = [(one.refused_at_s, 1) for one in log.responses if one.refused_at_s is not None]
    columns = sums(tokens), sums(ended), sums([(at_s, 1) for at_s, _ in ended]), sums(refused)
    return [Stretch(log.measured_s / count, *row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates over all repeats of one measurement.

    Attributes:
        against: goodput over that of another measurement; None without one. ``each_against``: per common repeat.
    """

    goodput: Estimate  # committed tokens per second
    kept_per_s: Estimate  # responses per second that ended with their promise kept
    kept_share: Estimate  # of the responses that ended or were refused
    against: Estimate | None
    each_against: tuple[float, ...]


def rates(logs: Sequence[CellLog], others: Sequence[CellLog] = ()) -> Rates:
    """Rates of cells (at least one, with a response that ended), and their goodput relative to other cells."""
    mine, theirs = ([piece for log in group for piece in time_slices(log)] for group in (logs, others))
    seconds = [piece.seconds for piece in mine]
    tokens = [float(piece.tokens) for piece in mine]
    kept = [float(piece.kept) for piece in mine]
    goodputs = {log.cell.repeat: _goodput(log) for log in others}
    against = None
    if theirs:
        against = quotient((tokens, seconds), ([float(p.tokens) for p in theirs], [p.seconds for p in theirs]))
    return Rates(
        goodput=ratio(tokens, seconds),
        kept_per_s=ratio(kept, seconds),
        kept_share=ratio(kept, [float(piece.ended + piece.refused) for piece in mine]),
        against=against,
        each_against=tuple(_goodput(log) / goodputs[log.cell.repeat] for log in logs if log.cell.repeat in goodputs),
    )


def _goodput(log: CellLog) -> float:
    return sum(piece.tokens for piece in time_slices(log)) / log.measured_s
