"""Score cost and gain in accepted length of acceptance rules (WISV's Figures 3 and 5), all on the same tasks.

Both models run in this process; a link matters only as an input of the head. See ``lab.training.head.sweep``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lab.training.head.links import EVALUATED
from lab.training.head.mismatches import as_sent
from lab.training.head.pair import EncodedTask, Pair
from lab.training.head.rules import HEAD_FREE
from lab.training.head.sweep import STRICT, SweptRow, sweep
from outrider.contracts.exchanged import FloatField
from outrider.models.head_file import Head

HEAD, UNAWARE = "head", "head, not told of links"  # the second is trained without relabelling


@dataclass(frozen=True, slots=True)
class Frontier:
    window: int
    tasks: int
    rows: tuple[SweptRow, ...]  # ``rule`` is HEAD, UNAWARE, STRICT or a rule without a head

    @property
    def strict(self) -> SweptRow:
        return next(row for row in self.rows if row.rule == STRICT)


def frontier(
    pair: Pair,
    asked: Sequence[EncodedTask],
    heads: Mapping[str, Head],
    window: int,
    thresholds: Sequence[float],
    *,
    batch: int,
    field: FloatField,
) -> Frontier:
    """Measure at one window; ``pair`` has KV for ``batch`` texts of prompt, answer and window."""
    rows: list[SweptRow] = []
    for name, head in heads.items():
        swept = sweep(
            pair,
            asked,
            head.decisions.weights,
            thresholds,
            EVALUATED,
            window_tokens=window,
            batch=batch,
            rounding=as_sent(field),
            others=None if rows else HEAD_FREE,
        )
        more = bool(rows)  # strict verification and rules without a head are kept once
        rows += [replace(row, rule=name) for row in swept if row.rule == HEAD]
        rows += [row for row in swept if row.rule != HEAD and not more]
    return Frontier(window, len(asked), tuple(rows))
