"""Acceptance of every scheme and truncation along the responses of a pair."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.harness.statistics import Estimate, estimate
from bench.papers.coupling import SCHEMES, Coupled, Scheme, by_falling, entropy_bits, keep_top
from bench.papers.pair import PairRows
from bench.papers.rounds import RoundShape, recorded_shape
from outrider.sampling.distributions import softmax

Responses = tuple[npt.NDArray[np.float64], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One scheme along all responses: ``[n]`` values for each (see ``Coupled``)."""

    acceptance: Responses
    given_token: Responses

    @property
    def token_acceptance(self) -> Estimate:
        """Probability that a draft token is accepted, mean over positions."""
        return estimate(self.acceptance)

    @property
    def all_acceptances(self) -> npt.NDArray[np.float64]:
        """``[positions]``."""
        return np.concatenate(self.acceptance)

    def shape(self, window: int) -> RoundShape:
        """The average round along these responses."""
        return recorded_shape(self.given_token, window)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the rows of a pair say.

    Attributes:
        series: by scheme and number of draft tokens kept.
        top_mass: for each response ``[n, sizes]``, mass of the draft's most probable tokens.
        entropy_bits: of the draft distribution, for each response.
    """

    series: Mapping[tuple[Scheme, int], Series]
    top_mass: Responses
    entropy_bits: Responses

    @property
    def positions(self) -> int:
        """Measured in all."""
        return sum(map(len, self.entropy_bits))


def measure(
    responses: Iterable[PairRows], kept: Mapping[Scheme, Sequence[int]], mass_sizes: Sequence[int] = ()
) -> Measured:
    """Reduce rows to figures, one response at a time.

    Args:
        responses: rows of a pair.
        kept: for each scheme wanted, how many draft tokens to keep; the vocabulary's size keeps all.
        mass_sizes: how many tokens to add up for ``top_mass``.
    """
    wanted = [(scheme, count) for scheme, counts in kept.items() for count in counts]
    found: list[tuple[dict[tuple[Scheme, int], list[Coupled]], npt.NDArray[np.float64], npt.NDArray[np.float64]]] = []
    for rows in responses:
        coupled: dict[tuple[Scheme, int], list[Coupled]] = {key: [] for key in wanted}
        masses, entropies = [], []
        targets, drafts = softmax(rows.target_logits), softmax(rows.draft_logits)
        for target, draft, token in zip(targets, drafts, rows.token_ids.tolist(), strict=True):
            order = by_falling(draft)
            cut = {count: keep_top(draft, order, count) for count in {count for _, count in wanted}}
            for scheme, count in wanted:
                coupled[scheme, count].append(SCHEMES[scheme](target, cut[count], token))
            masses.append(mass_of_top(draft, order, mass_sizes))
            entropies.append(entropy_bits(draft))
        found.append((coupled, np.array(masses), np.array(entropies)))
    return Measured(
        series={
            key: Series(
                tuple(np.array([at.acceptance for at in coupled[key]]) for coupled, _, _ in found),
                tuple(np.array([at.given_token for at in coupled[key]]) for coupled, _, _ in found),
            )
            for key in wanted
        },
        top_mass=tuple(masses for _, masses, _ in found),
        entropy_bits=tuple(entropies for _, _, entropies in found),
    )


def mass_of_top(
    probs: npt.NDArray[np.float64], order: npt.NDArray[np.int64], sizes: Sequence[int]
) -> npt.NDArray[np.float64]:
    """``[sizes]`` cumulative probability of the most probable tokens (TSLT section 5.1)."""
    cumulative: npt.NDArray[np.float64] = np.cumsum(probs[order])
    mass: npt.NDArray[np.float64] = cumulative[np.asarray(sizes, dtype=np.int64) - 1]
    return mass
