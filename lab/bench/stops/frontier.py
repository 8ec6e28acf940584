"""The best that a rule that ends drafts could reach: one client, computed on recorded drafts.

A rule as in ``outrider.drafting.cost_aware``, with two constant prices: a token is sent if its survival is above one,
and drafted behind if it is above the other. Every pair of prices of a grid is evaluated along the same responses, as
are fixed windows. What no pair reaches, a service's own prices cannot reach either with the same probabilities, unless
they change from round to round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from lab.bench.stops.bound import Round

_PRICES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Pace:
    """Time of a round, as emulated.

    Attributes:
        step_s: of the device, per draft token.
        pass_s: of the verifier, with ``row_s`` for each row: one more than tokens sent.
    """

    step_s: float
    pass_s: float
    row_s: float

    def round_s(self, drafted: int, sent: int) -> float:
        """The whole round, in sequence."""
        return self.step_s * drafted + self.pass_s + self.row_s * (sent + 1)


@dataclass(frozen=True, slots=True)
class Ending:
    """A way to end drafts.

    Attributes:
        longest: maximum draft in tokens.
        send_above: survival above which a token is sent.
        go_on_above: survival above which another token is drafted behind it.
    """

    longest: int
    send_above: float = 0.0
    go_on_above: float = 0.0

    def lengths(self, told: Sequence[float]) -> tuple[int, int]:
        """Numbers of drafted and of sent tokens, for a draft with these predicted probabilities."""
        for at, survival in enumerate(accumulate(told[: self.longest], mul)):
            if survival < self.send_above:
                return at + 1, at
            if survival < self.go_on_above:
                return at + 1, at + 1
        return self.longest, self.longest


@dataclass(frozen=True, slots=True)
class Reached:
    """Result of one way."""

    ending: Ending
    tokens_per_s: float
    tokens_per_round: float
    wasted_s_per_token: float  # drafting of rows that committed no token, per committed token


def walked(along: Sequence[Sequence[Round]], ending: Ending, pace: Pace) -> Reached:
    """Evaluate rounds along all responses, each starting where the last one ended."""
    rounds, tokens, took_s, wasted_s = 0, 0, 0.0, 0.0
    for drafts in along:
        at = 0
        while at < len(drafts):
            drafted, sent = ending.lengths(drafts[at].told)
            accepted = min(sent, drafts[at].accepted_len)
            rounds, tokens = rounds + 1, tokens + accepted + 1
            took_s += pace.round_s(drafted, sent)
            wasted_s += pace.step_s * (drafted - accepted)
            at += accepted + 1
    return Reached(ending, tokens / took_s, tokens / max(rounds, 1), wasted_s / tokens)


@dataclass(frozen=True, slots=True)
class Frontier:
    """Fixed windows, and the best rules."""

    windows: tuple[Reached, ...]
    fastest: Reached  # over all pairs of prices
    sparing: tuple[Reached | None, ...]  # least waste among pairs at least as fast as each window; None: there is none


def frontier(along: Sequence[Sequence[Round]], windows: Sequence[int], longest: int, pace: Pace) -> Frontier:
    """Evaluate drafts along responses."""
    fixed = tuple(walked(along, Ending(window), pace) for window in windows)
    # Drafting behind a token costs more than sending it, so a rule has no other pairs.
    pairs = [Ending(longest, send, go_on) for send in _PRICES for go_on in _PRICES if send <= go_on]
    ruled = [walked(along, pair, pace) for pair in pairs]
    sparing = []
    for one in fixed:
        as_fast = [other for other in ruled if other.tokens_per_s >= one.tokens_per_s]
        sparing.append(min(as_fast, key=lambda other: other.wasted_s_per_token, default=None))
    return Frontier(fixed, max(ruled, key=lambda one: one.tokens_per_s), tuple(sparing))
