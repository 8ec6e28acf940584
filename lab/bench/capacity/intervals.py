"""Figures of measured cells with 95 % intervals.

What is redrawn are stretches of time of all repeats: responses and rounds that are made at the same time resemble each
other, and what is over between two stretches does so less. The difference between one cell and the next, such as of a
machine that others use as well, is in no stretch: that is what repeats show.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.bench.capacity.log import CellLog
from lab.bench.harness.statistics import Estimate, quotient, ratio

STRETCH_S = 5.0  # at least; a cell is cut into equal ones


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some seconds of one cell behind its warm-up."""

    seconds: float
    tokens: int  # committed
    kept: int  # responses that ended as promised
    ended: int  # responses that ended
    refused: int


def time_slices(log: CellLog, length_s: float = STRETCH_S) -> list[Stretch]:
    """A cell's time behind its warm-up in equal pieces, none of them shorter than ``length_s`` unless all of it is."""
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
    """Of all repeats of one measurement.

    Attributes:
        kept_share: of the responses that ended or were refused.
        against: goodput over that of another measurement; None if there is none. ``each_against``: repeat by repeat,
            of those that both have.
    """

    goodput: Estimate  # committed tokens per second
    kept_per_s: Estimate  # responses per second that ended as promised
    kept_share: Estimate
    against: Estimate | None
    each_against: tuple[float, ...]


def rates(logs: Sequence[CellLog], others: Sequence[CellLog] = ()) -> Rates:
    """Rates of cells (at least one, with a response that ended), and their goodput against that of other cells."""
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
