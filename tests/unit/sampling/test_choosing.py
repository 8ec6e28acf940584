"""``choose_tokens`` draws exactly from ``target_probs``: by quadrature, and by seeded counts through the real code."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import ShapeError
from outrider.contracts.requests import SamplingParams
from outrider.sampling.choosing import choose_tokens, launch_choices, target_probs
from outrider.sampling.device_tensors import Readback
from outrider.sampling.noise import noisy_scores
from outrider.sampling.row_groups import RowGroup, TokenCounts

GREEDY = SamplingParams(temperature=0.0)

weights = st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=6)


@given(weights=weights)
def test_the_largest_of_log_prob_plus_gumbel_noise_has_the_targets_distribution(weights: list[float]) -> None:
    """P(k) = integral of the density of g at k times the other tokens' chances to stay below, by the trapezoidal rule.

    The rule converges exponentially here: the integrand is smooth and vanishes at both ends. That the noise has
    this distribution function, ``exp(-exp(-g))``, is test_noise's.
    """
    target = np.array(weights) / sum(weights)
    step = 0.01
    noise = np.arange(-8.0, 45.0, step)
    for k, prob in enumerate(target):
        others = np.delete(target, k)
        below = np.exp(-np.exp(-(noise[:, None] + np.log(prob / others)))).prod(axis=1)
        density = np.exp(-noise - np.exp(-noise))
        assert float((density * below).sum() * step) == pytest.approx(prob, abs=1e-9)


PARAMS = [
    SamplingParams(),
    SamplingParams(temperature=0.6),
    SamplingParams(temperature=1.7, top_k=5),
    SamplingParams(top_p=0.8),
    SamplingParams(temperature=1.4, min_p=0.2),
    SamplingParams(repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=-0.5, logit_bias=((3, 1.0),)),
]


@pytest.mark.parametrize("params", PARAMS, ids=range(len(PARAMS)))
@pytest.mark.parametrize("over", ["seed", "position"])
def test_choices_over_seeds_and_over_positions_follow_target_probs(params: SamplingParams, over: str) -> None:
    """Chi-square with 20000 draws; false-alarm rate 1e-6 (Laurent and Massart 2000, lemma 1)."""
    draws = 20_000
    logits = torch.tensor([1.5, 0.3, -0.4, 0.9, -1.2, 0.0, 0.7, 1.1])
    counts = TokenCounts(8, [0, 1], [1, 2, 2])
    groups = [
        RowGroup(replace(params, seed=i if over == "seed" else 11), 5 if over == "seed" else i, counts, (), 1)
        for i in range(draws)
    ]
    drawn = choose_tokens(logits.expand(draws, -1), groups)
    expected = target_probs(logits[None], groups[:1])[0].double().numpy() * draws
    observed = np.bincount(drawn.numpy(), minlength=8)
    possible = expected > 0
    assert np.all(expected[possible] > 20)
    assert not observed[~possible].any()
    statistic = float(((observed - expected)[possible] ** 2 / expected[possible]).sum())
    freedom, x = int(possible.sum()) - 1, math.log(1e6)
    assert statistic < freedom + 2 * math.sqrt(freedom * x) + 2 * x


def float64_noise(seed: int, position: int, vocab: int) -> npt.NDArray[np.float64]:
    """Gumbel noise by its definition: Philox keyed by the seed, counted by position and purpose 0."""
    words = np.random.Philox(key=[seed, 0], counter=[0, position, 0, 0]).random_raw(vocab)
    noise: npt.NDArray[np.float64] = -np.log(-np.log(((words >> np.uint64(12)) + 0.5) * 2.0**-52))
    return noise


def test_row_i_draws_with_the_noise_of_its_own_position() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    chosen = choose_tokens(logits, [RowGroup(SamplingParams(seed=9), 100, None, (1, 2), 3)])
    noise = np.stack([float64_noise(9, 100 + i, 50) for i in range(3)])
    assert chosen.tolist() == (logits.numpy() + noise).argmax(axis=1).tolist()


@pytest.mark.parametrize("level", [0.0, 300.0, -300.0, 3000.0])
def test_choices_flip_in_less_than_one_of_a_million_draws_however_large_the_logits(level: float) -> None:
    """Against float64, whatever a row's logits have in common.

    The first two tokens' scores differ by a logistic number, whose density is at most 1/4: they come within ``near`` of
    each other in at most ``near / 2`` of the draws. Here they always do; how often the choice is another one then,
    times that, is how often it is at all.
    """
    near, rounds = 1e-3, 2000
    noise = [float64_noise(seed, 7, 2) for seed in range(rounds)]
    gaps = np.random.default_rng(1).uniform(-near, near, rounds)
    first = np.full(rounds, level)
    logits = np.stack([first, first + [g[0] - g[1] for g in noise] + gaps], axis=1).astype(np.float32)
    groups = [RowGroup(SamplingParams(seed=seed), 7, None, (), 1) for seed in range(rounds)]
    chosen = choose_tokens(torch.from_numpy(logits), groups).numpy()
    flipped = chosen != (logits.astype(np.float64) + noise).argmax(axis=1)
    assert 0.4 < chosen.mean() < 0.6
    assert near / 2 * flipped.mean() < 1e-6
    drafted = [noisy_scores(row, seed, 7).argmax() for seed, row in enumerate(logits)]
    assert drafted == chosen.tolist(), "a drafter has the same numbers"


def test_a_greedy_choice_is_the_lowest_id_among_the_largest_logits() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0], [3.0, 3.0, 3.0, 3.0]])
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert choose_tokens(logits.to(dtype), [RowGroup(GREEDY, 0, None, (1,), 2)]).tolist() == [1, 0]


def test_greedy_follows_bias_and_penalties_but_no_truncation() -> None:
    params = SamplingParams(temperature=0.0, top_k=1, top_p=0.1, presence_penalty=2.0, logit_bias=((2, 1.5),))
    group = RowGroup(params, 1, TokenCounts(3, [], [0]), (2,), 2)
    logits = torch.tensor([[3.0, 0.0, 1.0], [3.0, 0.75, 1.0]])  # adjusted: 1, 0, 2.5 and 1, 0.75, 0.5
    assert choose_tokens(logits, [group]).tolist() == [2, 0]
    assert target_probs(logits, [group]).tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


@given(seed=st.integers(0, 2**32), order=st.permutations(range(4)))
def test_batch_mates_and_their_order_change_no_choice(seed: int, order: list[int]) -> None:
    logits = torch.randn(4, 2, 40, generator=torch.Generator().manual_seed(seed))
    params = [GREEDY, SamplingParams(seed=seed), SamplingParams(temperature=0.5, top_p=0.7), SamplingParams(top_k=3)]
    groups = [RowGroup(one, 10 * i, None, (1,), 2) for i, one in enumerate(params)]
    together = choose_tokens(logits[order].reshape(8, 40), [groups[i] for i in order])
    alone = [choose_tokens(logits[i], [groups[i]]) for i in order]
    assert together.tolist() == torch.cat(alone).tolist()


@given(seed=st.integers(0, 2**32), agreed=st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_choices_along_a_draft_are_the_targets_as_far_as_it_can_be_accepted(seed: int, agreed: list[int]) -> None:
    """Each group's draft agrees with the target's choices that far; rules, penalties and lengths differ."""
    rng = torch.Generator().manual_seed(seed)
    rows = [1 + (seed + 2 * i) % 6 for i in range(len(agreed))]
    logits = torch.randn(sum(rows), 8, generator=rng)
    params = [GREEDY, *PARAMS]
    groups: list[RowGroup] = []
    for i, (count, common) in enumerate(zip(rows, agreed, strict=True)):
        start, group_params = sum(rows[:i]), replace(params[(seed + i) % len(params)], seed=seed + i)
        path: list[int] = []
        for row in range(count - 1):
            counts = TokenCounts(8, [0, 1], [1, 2, *path])
            alone = RowGroup(group_params, 5 + row, counts, (), 1)
            choice = int(choose_tokens(logits[start + row][None], [alone])[0])
            path.append(choice if row < common else (choice + 1) % 8)
        groups.append(RowGroup(group_params, 5, TokenCounts(8, [0, 1], [1, 2]), tuple(path), count))
    whole = choose_tokens(logits, groups).tolist()
    for i, (found, common) in enumerate(zip(launch_choices(logits, groups, Readback())(), agreed, strict=True)):
        expected = whole[sum(rows[:i]) :][: rows[i]]
        assert len(found) == rows[i]
        assert found[: common + 1] == expected[: common + 1]


def test_what_lies_behind_a_mismatch_is_not_drawn() -> None:
    logits, params = torch.zeros(4, 8), SamplingParams(seed=3)
    first = int(choose_tokens(logits[:1], [RowGroup(params, 5, None, (), 1)])[0])
    found = launch_choices(logits, [RowGroup(params, 5, None, ((first + 1) % 8, 0, 0), 4)], Readback())()
    assert found == [[first, -1, -1, -1]]


@given(seed=st.integers(0, 2**32))
def test_target_probs_sum_to_one_and_are_one_hot_where_greedy(seed: int) -> None:
    logits = torch.randn(3, 30, generator=torch.Generator().manual_seed(seed)) * 4
    groups = [RowGroup(SamplingParams(top_p=0.9, min_p=0.01), 0, None, (1,), 2), RowGroup(GREEDY, 0, None, (), 1)]
    probs = target_probs(logits, groups)
    assert probs.sum(dim=-1).tolist() == pytest.approx([1.0, 1.0, 1.0], abs=1e-5)
    assert probs[2].tolist() == [float(i == int(logits[2].argmax())) for i in range(30)]


def test_an_empty_batch_has_no_choices() -> None:
    assert choose_tokens(torch.zeros(0, 5), []).tolist() == []
    assert choose_tokens(
        torch.zeros(1, 5), [RowGroup(GREEDY, 0, None, (), 0), RowGroup(GREEDY, 0, None, (), 1)]
    ).tolist() == [0]


def test_groups_that_do_not_cover_the_logits_are_refused() -> None:
    for params in (GREEDY, SamplingParams()):
        with pytest.raises(ShapeError, match=r"need shape \[1, vocab\].*found \[2, 5\]"):
            choose_tokens(torch.zeros(2, 5), [RowGroup(params, 0, None, (), 1)])
