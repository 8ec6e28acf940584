"""Shared noise is exact and accepts what the theorem says (Daliri, Musco, Suresh 2024)."""

import math
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.requests import SamplingParams
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.row_groups import RowGroup
from outrider.verification.matching import match

Probs = npt.NDArray[np.float64]


def agreement(draft_probs: Probs, target_probs: Probs) -> float:
    """The closed form of the module's docstring."""
    both = np.flatnonzero((draft_probs > 0) & (target_probs > 0))
    return sum(
        1.0 / float(np.maximum(draft_probs / draft_probs[x], target_probs / target_probs[x]).sum()) for x in both
    )


def total_variation(draft_probs: Probs, target_probs: Probs) -> float:
    return float(np.abs(draft_probs - target_probs).sum() / 2)


weights = st.one_of(st.just(0.0), st.floats(1e-6, 1.0))
pairs_of_weights = st.lists(st.tuples(weights, weights), min_size=2, max_size=8).filter(
    lambda pairs: sum(pair[0] for pair in pairs) > 0 and sum(pair[1] for pair in pairs) > 0
)


def normalised(pairs: list[tuple[float, float]]) -> tuple[Probs, Probs]:
    draft, target = np.array(pairs).T
    return draft / draft.sum(), target / target.sum()


@settings(max_examples=500)
@given(pairs=pairs_of_weights)
def test_acceptance_lies_between_the_theorems_bound_and_ratio_sampling(pairs: list[tuple[float, float]]) -> None:
    draft, target = normalised(pairs)
    distance = total_variation(draft, target)
    assert (1 - distance) / (1 + distance) - 1e-12 <= agreement(draft, target) <= 1 - distance + 1e-12


PAIRS = [
    ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
    ([0.9, 0.05, 0.05], [0.1, 0.45, 0.45]),
    ([0.25, 0.25, 0.25, 0.25], [0.7, 0.1, 0.1, 0.1]),
    ([0.6, 0.4, 0.0], [0.0, 0.4, 0.6]),
    ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]),
    ([0.3, 0.3, 0.4], [0.3, 0.3, 0.4]),
]


@pytest.mark.parametrize(
    ("draft", "target"),
    [pytest.param(*pair, id=str(i), marks=[pytest.mark.long] * (i % 2)) for i, pair in enumerate(PAIRS)],
)
def test_the_code_accepts_as_often_as_the_closed_form_says(draft: list[float], target: list[float]) -> None:
    """20000 one-token drafts, no bonus row; false-alarm rate 1e-6 (Hoeffding)."""
    draft_probs, target_probs = np.array(draft), np.array(target)
    rounds = 20_000
    params = [SamplingParams(seed=seed) for seed in range(rounds)]
    drafted = draw(np.tile(draft_probs, (rounds, 1)), params, [9] * rounds)
    groups = [RowGroup(one, 9, None, (token,), 1) for one, token in zip(params, drafted, strict=True)]
    choices = choose_tokens(log(np.tile(target_probs, (rounds, 1))), groups).tolist()
    accepted = (
        sum(match([choice], (token,)).accepted_len for choice, token in zip(choices, drafted, strict=True)) / rounds
    )
    assert accepted == pytest.approx(agreement(draft_probs, target_probs), abs=math.sqrt(math.log(2e6) / (2 * rounds)))


def log(probs: Probs) -> torch.Tensor:
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(probs)).float()


def draw(probs: Probs, params: list[SamplingParams], positions: list[int]) -> list[int]:
    """The drafter's choice: its own distribution, the target's noise."""
    groups = [RowGroup(one, position, None, (), 1) for one, position in zip(params, positions, strict=True)]
    tokens: list[int] = choose_tokens(log(probs), groups).tolist()
    return tokens


# First-order chains over 3 tokens; the row index is the token before.
TARGET_CHAIN = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.35, 0.4, 0.25]])
DRAFT_CHAINS = {
    "near": np.array([[0.5, 0.3, 0.2], [0.3, 0.2, 0.5], [0.3, 0.5, 0.2]]),
    "unlike": np.array([[0.05, 0.05, 0.9], [0.9, 0.05, 0.05], [0.05, 0.05, 0.9]]),
    "deterministic": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]),
}
FIRST = 0  # the last token of the prompt
LENGTH, WINDOW = 3, 2


@pytest.mark.parametrize("drafter", DRAFT_CHAINS)
def test_blocks_of_two_give_the_targets_joint_distribution(drafter: str) -> None:
    """Draft, verify, commit until three tokens stand, for 8000 seeds; count the 27 outcomes.

    Expected: the target's autoregressive distribution. Chi-square with false-alarm rate 1e-6 (Laurent and Massart
    2000, lemma 1).
    """
    seeds = 8000
    params = [SamplingParams(seed=seed) for seed in range(seeds)]
    sequences = [[FIRST] for _ in range(seeds)]
    accepted = drafted = 0
    while active := [i for i in range(seeds) if len(sequences[i]) <= LENGTH]:
        drafts: list[list[int]] = [[] for _ in active]
        for _ in range(WINDOW):
            last = [([*sequences[i], *draft])[-1] for i, draft in zip(active, drafts, strict=True)]
            at = [len(sequences[i]) + len(draft) for i, draft in zip(active, drafts, strict=True)]
            for draft, token in zip(
                drafts, draw(DRAFT_CHAINS[drafter][last], [params[i] for i in active], at), strict=True
            ):
                draft.append(token)
        rows = [token for i, draft in zip(active, drafts, strict=True) for token in (sequences[i][-1], *draft)]
        groups = [
            RowGroup(params[i], len(sequences[i]), None, tuple(draft), WINDOW + 1)
            for i, draft in zip(active, drafts, strict=True)
        ]
        choices = iter(choose_tokens(log(TARGET_CHAIN[rows]), groups).tolist())
        for i, draft in zip(active, drafts, strict=True):
            decision = match([next(choices) for _ in range(WINDOW + 1)], draft)
            assert decision.token_after is not None
            sequences[i] += [*draft[: decision.accepted_len], decision.token_after]
            accepted, drafted = accepted + decision.accepted_len, drafted + WINDOW
    assert 0 < accepted < drafted
    observed = np.zeros((3, 3, 3))
    for sequence in sequences:
        observed[tuple(sequence[1 : LENGTH + 1])] += 1
    expected = np.zeros((3, 3, 3))
    for a, b, c in product(range(3), repeat=3):
        expected[a, b, c] = seeds * TARGET_CHAIN[FIRST, a] * TARGET_CHAIN[a, b] * TARGET_CHAIN[b, c]
    assert expected.min() > 20
    statistic, freedom, x = float(((observed - expected) ** 2 / expected).sum()), 26, math.log(1e6)
    assert statistic < freedom + 2 * math.sqrt(freedom * x) + 2 * x
