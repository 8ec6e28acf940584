"""What rounds of the speculation mode in use are like: running means, kept apart for each mode.

What a committed token costs is rows over tokens of its round, and depends on whether devices draft: figures of one mode
say nothing of another.
"""

from dataclasses import dataclass

from outrider.selection.modes import DRAFT, SpeculationMode

_WEIGHT = 0.01  # of the newest round


@dataclass(frozen=True, slots=True)
class RoundShape:
    """A mean round behind a response's first; begins as one of the verifier alone."""

    rows: float = 1.0  # positions verified
    tokens: float = 1.0  # committed
    away_s: float = 0.0  # neither in the queue nor in a pass: drafting, link, orchestration
    drafted: float = 0.0  # share of rounds with a draft
    rounds: int = 0  # behind it

    def after(self, rows: int, tokens: int, away_s: float) -> "RoundShape":
        """With one round more."""
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
    """Of one verifier, by mode."""

    def __init__(self) -> None:
        self._shapes: dict[str, RoundShape] = {}

    def round(self, rows: int, tokens: int, away_s: float, mode: SpeculationMode = DRAFT) -> None:
        """One was committed that began under a mode; rounds without a token say nothing."""
        if tokens > 0:
            self._shapes[mode.name] = self.shape(mode).after(rows, tokens, away_s)

    def shape(self, mode: SpeculationMode = DRAFT) -> RoundShape:
        """Of the rounds under a mode."""
        return self._shapes.get(mode.name, _ALONE)
