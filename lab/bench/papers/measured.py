"""Acceptance of every scheme and truncation along the responses of a pair."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import entropy

from lab.bench.harness.statistics import Estimate, estimate
from lab.bench.papers.coupling import SCHEMES, Scheme, by_falling, keep_top
from lab.bench.papers.pair import PairRows
from lab.bench.papers.rounds import RoundShape, recorded_shape
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
        return recorded_shape(self.given_token, window)


@dataclass(frozen=True, slots=True)
class Measured:
    series: Mapping[tuple[Scheme, int], Series]  # by scheme and number of draft tokens kept
    top_mass: Responses  # for each response ``[n, sizes]``, mass of the draft's most probable tokens
    entropy_bits: Responses  # of the draft distribution, for each response

    @property
    def positions(self) -> int:
        return sum(map(len, self.entropy_bits))


def measure(
    responses: Iterable[PairRows], kept: Mapping[Scheme, Sequence[int]], mass_sizes: Sequence[int] = ()
) -> Measured:
    """Reduce rows to figures, one response at a time.

    For each scheme ``kept`` has the numbers of draft tokens to keep (the vocabulary's size keeps all), ``mass_sizes``
    the numbers of tokens to add up for ``top_mass``.
    """
    wanted = [(scheme, count) for scheme, counts in kept.items() for count in counts]
    found: list[npt.NDArray[np.float64]] = []  # [n, wanted, 2] for each response
    top_mass, entropies = list[npt.NDArray[np.float64]](), list[npt.NDArray[np.float64]]()
    sizes = np.asarray(mass_sizes, dtype=np.int64)
    for rows in responses:
        targets, drafts = softmax(rows.target_logits), softmax(rows.draft_logits)
        coupled, masses = [], []
        for target, draft, token in zip(targets, drafts, rows.token_ids.tolist(), strict=True):
            order = by_falling(draft)
            cut = {count: keep_top(draft, order, count) for count in {count for _, count in wanted}}
            coupled.append([astuple(SCHEMES[scheme](target, cut[count], token)) for scheme, count in wanted])
            masses.append(np.cumsum(draft[order])[sizes - 1])  # TSLT section 5.1
        found.append(np.array(coupled))
        top_mass.append(np.array(masses))
        entropies.append(np.asarray(entropy(drafts, base=2, axis=1)))
    return Measured(
        series={
            key: Series(tuple(one[:, i, 0] for one in found), tuple(one[:, i, 1] for one in found))
            for i, key in enumerate(wanted)
        },
        top_mass=tuple(top_mass),
        entropy_bits=tuple(entropies),
    )
