"""Measure mean rounds of each speculation mode: rows, tokens, time away from the verifier.

The cost of a committed token is rows over tokens of its round and depends on whether devices draft. So figures of one
mode are never used for another.
"""

from dataclasses import dataclass

from outrider.selection.modes import DRAFT, SpeculationMode

_WEIGHT = 0.01  # of the newest round


@dataclass(frozen=True, slots=True)
class RoundShape:
    """Running means over rounds after a response's first; starts as a round without a draft."""

    rows: float = 1.0  # positions verified
    tokens: float = 1.0  # committed
    away_s: float = 0.0  # neither queued nor in a pass: drafting, link, orchestration
    drafted: float = 0.0  # share of rounds with a draft
    rounds: int = 0  # number of rounds counted

    def after(self, rows: int, tokens: int, away_s: float) -> "RoundShape":
        weight = max(_WEIGHT, 1.0 / (self.rounds + 1))
        return RoundShape(
            self.rows + weight * (rows - self.rows),
            self.tokens + weight * (tokens - self.tokens),
            self.away_s + weight * (max(0.0, away_s) - self.away_s),
            self.drafted + weight * ((rows > 1) - self.drafted),
            self.rounds + 1,
        )


_ALONE = RoundShape()


class MeasuredRounds:
    """Mean rounds of one verifier, by speculation mode."""

    def __init__(self) -> None:
        self._shapes: dict[str, RoundShape] = {}

    def round(self, rows: int, tokens: int, away_s: float, mode: SpeculationMode = DRAFT) -> None:
        """Count a committed round that began under ``mode``. A round without a token teaches nothing."""
        if tokens > 0:
            self._shapes[mode.name] = self.shape(mode).after(rows, tokens, away_s)

    def shape(self, mode: SpeculationMode = DRAFT) -> RoundShape:
        return self._shapes.get(mode.name, _ALONE)
