"""What ``outrider bench engines`` measures, small and whole."""

from dataclasses import dataclass

_COLD_DRAFT = 8  # a cold round is its prefix; how much is drafted after it hardly shows


@dataclass(frozen=True, slots=True)
class RoundCell:
    """A size of verification: generations, draft tokens of each, prefix of each, and whether that is resident."""

    generations: int
    draft: int
    prefix: int
    warm: bool


@dataclass(frozen=True, slots=True)
class AloneCell:
    """A closed loop of an engine alone: so many clients, each drafting so many tokens a round."""

    clients: int
    window: int


@dataclass(frozen=True, slots=True)
class RoundGrid:
    """Sizes of verification.

    Attributes:
        cold_tokens: cold cells of more prefix tokens in all are left out: one of 32,000 takes minutes.
        alone_windows: of the engines' closed loops, with ``generations`` for clients; likewise the other two.
    """

    generations: tuple[int, ...] = (1, 4, 8, 16)
    drafts: tuple[int, ...] = (1, 4, 8, 16)
    prefixes: tuple[int, ...] = (100, 500, 2000)
    warm_repeats: int = 3
    cold_repeats: int = 2
    cold_tokens: int = 2000
    alone_windows: tuple[int, ...] = (0, 2)
    alone_tokens: int = 48
    alone_repeats: int = 1

    def warm(self) -> list[RoundCell]:
        """Resident prefixes, shorter ones and fewer first: a longer one continues the shorter."""
        return [
            RoundCell(generations, draft, prefix, warm=True)
            for prefix in self.prefixes
            for generations in self.generations
            for draft in self.drafts
        ]

    def cold(self) -> list[RoundCell]:
        """Prefixes computed before the round."""
        draft = _COLD_DRAFT if _COLD_DRAFT in self.drafts else max(self.drafts)
        return [
            RoundCell(generations, draft, prefix, warm=False)
            for prefix in self.prefixes
            for generations in self.generations
            if generations * prefix <= self.cold_tokens
        ]


WHOLE = RoundGrid()
QUICK = RoundGrid(
    generations=(1, 8),
    drafts=(4, 16),
    prefixes=(100, 500),
    warm_repeats=3,
    cold_repeats=1,
    cold_tokens=1000,
    alone_windows=(0, 2),
    alone_tokens=24,
    alone_repeats=1,
)
