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

MOST_DROP, GOAL_AAL, GOAL_ROUNDS = 0.01, 0.30, 0.25  # of the mean score; of strict verification's figures
HEAD, UNAWARE = "head", "head, not told of links"  # the second is trained without relabelling
FREE = "no head"


@dataclass(frozen=True, slots=True)
class Frontier:
    """All rules at one window."""

    window: int
    tasks: int
    rows: tuple[SweptRow, ...]  # ``rule`` is HEAD, UNAWARE, STRICT or a rule without a head

    @property
    def strict(self) -> SweptRow:
        return next(row for row in self.rows if row.rule == STRICT)

    @property
    def gains(self) -> list["Gain"]:
        """Gains of every rule but strict verification, each threshold over all links."""
        groups: dict[tuple[str, float], list[SweptRow]] = {}
        for row in self.rows:
            if row.rule != STRICT:
                groups.setdefault((row.rule, row.threshold), []).append(row)
        return [Gain.over(self.strict, rows) for rows in groups.values()]

    def best_within(self, kind: str) -> "Gain | None":
        """The longest accepted length of HEAD, UNAWARE or FREE whose drop is shown to be small, or None."""
        own = [gain for gain in self.gains if (gain.rule if gain.linked else FREE) == kind]
        within = [gain for gain in own if gain.drop_bound < MOST_DROP]
        return max(within, key=lambda gain: gain.more_aal, default=None)


@dataclass(frozen=True, slots=True)
class Gain:
    """Gain over strict verification, as shares of its figures; of a head at the worst link of each.

    Attributes:
        linked: whether the rule is a head.
        drop: of the score; ``drop_bound`` its one-sided 95 % upper bound.
    """

    rule: str
    threshold: float
    linked: bool
    drop: float
    drop_bound: float
    more_aal: float
    fewer_rounds: float

    @classmethod
    def over(cls, strict: SweptRow, rows: Sequence[SweptRow]) -> "Gain":
        """Gain of a rule, given its row on each link."""
        return cls(
            rule=rows[0].rule,
            threshold=rows[0].threshold,
            linked=bool(rows[0].link),
            drop=max(row.drop for row in rows),
            drop_bound=max(row.drop_bound for row in rows),
            more_aal=min(row.aal for row in rows) / strict.aal - 1.0,
            fewer_rounds=1.0 - max(row.rounds for row in rows) / strict.rounds,
        )

    @property
    def reached(self) -> bool:
        """Whether it reaches WISV's goals."""
        return self.drop_bound < MOST_DROP and self.more_aal >= GOAL_AAL and self.fewer_rounds >= GOAL_ROUNDS


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
    """Measure at one window.

    Args:
        pair: with KV for ``batch`` texts of prompt, answer and window.
        asked: tasks unused in training.
        heads: by ``HEAD`` and perhaps ``UNAWARE``, of this pair.
        window: draft tokens per round.
        thresholds: of rejection.
        batch: texts computed at once.
        field: of hidden states on the link.
    """
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
        rows += _named(name, swept, more=bool(rows))
    return Frontier(window, len(asked), tuple(rows))


def _named(name: str, swept: Sequence[SweptRow], *, more: bool) -> list[SweptRow]:
    """Rows of one head under its name; strict verification and rules without a head are kept once."""
    own = [replace(row, rule=name) for row in swept if row.rule == HEAD]
    return own if more else own + [row for row in swept if row.rule != HEAD]
