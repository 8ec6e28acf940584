"""``adjust_logits`` against a plain reference written row by row, and against transformers' processors."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from outrider.contracts.errors import ParameterError, ShapeError
from outrider.contracts.requests import SamplingParams
from outrider.sampling.choosing import choose_tokens, target_probs
from outrider.sampling.device_tensors import everywhere_at_once
from outrider.sampling.logits import adjust_logits
from outrider.sampling.row_groups import RowGroup, TokenCounts

VOCAB = 12


@pytest.fixture(scope="module", params=[False, True], ids=["on a processor", "at once"], autouse=True)
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    with everywhere_at_once() if request.param else nullcontext():
        yield


BOUNDARY = 1e-5  # float32 may decide either way on mass or logits this close to a limit

Row = npt.NDArray[np.float64]


def reference(logits: Row, params: SamplingParams, prompt: list[int], output: list[int]) -> Row:
    """One row by the documented order, in float64; rejects examples at a float32 boundary."""
    row = logits.astype(np.float64).copy()
    for token, bias in params.logit_bias:
        row[token] += bias
    for token in range(row.size):
        if token in prompt or token in output:
            row[token] = (
                row[token] / params.repetition_penalty if row[token] > 0 else row[token] * params.repetition_penalty
            )
        if token in output:
            row[token] -= params.presence_penalty + params.frequency_penalty * output.count(token)
    if len(prompt) + len(output) < params.withheld_until:
        row[[token for token in params.withheld_ids if token < row.size]] = -np.inf
    return row if params.greedy else truncated((row - row.max()) / params.temperature, params)


def truncated(row: Row, params: SamplingParams) -> Row:
    """Top-k, top-p and min-p of one row, in place; of equal logits the lowest ids come first."""
    best_first = np.argsort(-row, kind="stable")
    if 0 < params.top_k < row.size:
        row[best_first[params.top_k :]] = -np.inf
    if params.top_p < 1.0:
        probs = np.exp(row) / np.exp(row).sum()
        mass, kept = 0.0, 0
        while kept < row.size:
            assume(abs(mass - params.top_p) > BOUNDARY)
            if mass >= params.top_p:
                break
            mass, kept = mass + probs[best_first[kept]], kept + 1
        row[best_first[kept:]] = -np.inf
    if params.min_p == 1.0:
        row[best_first[1:]] = -np.inf
    elif params.min_p > 0.0:
        limit = row.max() + np.log(params.min_p)
        assume(not np.any(np.abs(row - limit) < BOUNDARY))
        row[row < limit] = -np.inf
    return row


def same_distribution(found: torch.Tensor, expected: Row) -> None:
    got = found.double().numpy()
    assert np.array_equal(np.isneginf(got), np.isneginf(expected))
    kept = ~np.isneginf(expected)
    assert (got - got.max())[kept] == pytest.approx((expected - expected.max())[kept], abs=1e-4, rel=1e-5)


# Sums of powers of two are exact in float32, so ties here are the ties the code sees; a small range makes many.
tokens = st.integers(0, VOCAB - 1)
quarters = st.integers(-12, 12).map(lambda n: n / 4)
logits_rows = st.lists(quarters, min_size=VOCAB, max_size=VOCAB)
sampling_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0, 1.3, 2.0]),
    top_k=st.integers(0, VOCAB + 2),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    min_p=st.one_of(st.just(0.0), st.floats(0.01, 1.0)),
    repetition_penalty=st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    presence_penalty=st.sampled_from([-2.0, 0.0, 0.5, 2.0]),
    frequency_penalty=st.sampled_from([-0.5, 0.0, 0.25, 2.0]),
    logit_bias=st.lists(st.tuples(tokens, quarters), max_size=3).map(tuple),
    withheld_ids=st.lists(st.sampled_from([0, 3, 4, VOCAB, VOCAB + 9]), max_size=3).map(tuple),
    withheld_until=st.integers(0, 12),
)


@st.composite
def groups_of_rows(draw: st.DrawFn) -> tuple[RowGroup, list[list[float]], list[int], list[int]]:
    """A group, its logits, prompt and output."""
    path = tuple(draw(st.lists(tokens, max_size=3)))
    rows = draw(st.integers(0, len(path) + 1))
    logits = draw(st.lists(logits_rows, min_size=rows, max_size=rows))
    prompt, output = draw(st.lists(tokens, max_size=5)), draw(st.lists(tokens, max_size=5))
    params = draw(sampling_params)
    counts = TokenCounts(VOCAB, prompt, output) if params.penalised or draw(st.booleans()) else None
    return RowGroup(params, len(prompt) + len(output), counts, path, rows), logits, prompt, output


def stack(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32).reshape(len(rows), VOCAB)


@settings(max_examples=300)
@given(batch=st.lists(groups_of_rows(), min_size=1, max_size=4))
def test_every_row_of_a_mixed_batch_equals_the_reference(
    batch: list[tuple[RowGroup, list[list[float]], list[int], list[int]]],
) -> None:
    logits = stack([row for _, rows, _, _ in batch for row in rows])
    before = logits.clone()
    adjusted = adjust_logits(logits, [group for group, _, _, _ in batch])
    assert adjusted.dtype == torch.float32
    assert torch.equal(logits, before)
    found = iter(adjusted)
    for group, rows, prompt, output in batch:
        for i, row in enumerate(rows):
            expected = reference(np.array(row), group.params, prompt, output + list(group.path[:i]))
            same_distribution(next(found), expected)


@given(batch=st.lists(groups_of_rows(), min_size=2, max_size=4))
def test_batch_mates_change_no_bit(batch: list[tuple[RowGroup, list[list[float]], list[int], list[int]]]) -> None:
    together = adjust_logits(stack([row for _, rows, _, _ in batch for row in rows]), [item[0] for item in batch])
    alone = [adjust_logits(stack(rows), [group]) for group, rows, _, _ in batch]
    assert torch.equal(together, torch.cat(alone))


@given(
    logits=st.lists(st.floats(-30, 30, width=32), min_size=VOCAB, max_size=VOCAB),
    top_p=st.floats(0.01, 0.999),
    temperature=st.floats(0.1, 2.0),
)
def test_top_p_keeps_the_smallest_set_that_reaches_the_mass(
    logits: list[float], top_p: float, temperature: float
) -> None:
    group = RowGroup(SamplingParams(temperature=temperature, top_p=top_p), 0, None, (), 1)
    kept = ~adjust_logits(stack([logits]), [group])[0].isneginf().numpy()
    scaled = (np.array(logits) - max(logits)) / temperature
    probs = np.exp(scaled) / np.exp(scaled).sum()
    assert probs[kept].sum() >= top_p - BOUNDARY
    least = probs[kept].min()
    assert probs[kept & (probs > least * (1 + BOUNDARY))].sum() < top_p + BOUNDARY
    assert not np.any(probs[~kept] > least * (1 + BOUNDARY))


def test_top_p_finds_its_set_however_many_tokens_it_takes() -> None:
    """Peaked and flat rows of one batch, from one token to nearly all of 3000; of the flat row the lowest ids stay."""
    generator = np.random.default_rng(0)
    logits = np.stack([generator.normal(size=3000) * spread for spread in (30.0, 4.0, 2.5, 1.0, 0.5, 0.0)])
    group = RowGroup(SamplingParams(top_p=0.9), 0, None, (0,) * 5, 6)
    adjusted = adjust_logits(torch.tensor(logits, dtype=torch.float32), [group])
    kept = (~adjusted.isneginf()).sum(dim=-1).tolist()
    assert kept[0] < 64 < kept[2] < 512 < kept[3] < kept[4] < kept[5]
    assert kept[5] == pytest.approx(2700, abs=1)
    assert not adjusted[5, : kept[5]].isneginf().any()
    for found, row in zip(adjusted[:5], logits[:5], strict=True):
        probs = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        ordered = np.sort(probs)[::-1]
        expected = probs >= ordered[int((np.cumsum(ordered) < 0.9).sum())] * (1 - 1e-6)
        assert abs(int(expected.sum()) - int((~found.isneginf()).sum())) <= 1  # float32 at the boundary


@given(top_k=st.integers(1, VOCAB - 1), logits=st.permutations(range(VOCAB)))
def test_top_k_removes_all_but_k_distinct_logits(top_k: int, logits: list[int]) -> None:
    adjusted = adjust_logits(
        stack([[float(n) for n in logits]]), [RowGroup(SamplingParams(top_k=top_k), 0, None, (), 1)]
    )
    assert int(adjusted.isneginf().sum()) == VOCAB - top_k


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        (SamplingParams(top_k=2), [1, 2]),
        (SamplingParams(top_p=0.5), [1, 2]),
        (SamplingParams(min_p=1.0), [1]),
        (SamplingParams(min_p=0.9), [1, 2, 4]),  # it bounds probabilities, not how many tokens have them
    ],
    ids=["top_k", "top_p", "min_p", "min_p below 1"],
)
def test_of_tokens_tied_with_the_last_one_kept_the_lowest_ids_are_kept(params: SamplingParams, kept: list[int]) -> None:
    adjusted = adjust_logits(torch.tensor([[1.0, 3.0, 3.0, 0.0, 3.0]]), [RowGroup(params, 0, None, (), 1)])
    assert (~adjusted[0].isneginf()).nonzero()[:, 0].tolist() == kept


STRICTEST = (SamplingParams(top_k=1), SamplingParams(top_p=1e-9), SamplingParams(min_p=1.0))


@given(
    rows=st.lists(st.lists(st.sampled_from([-3.0, 0.5, 7.0, 7.03125]), min_size=VOCAB, max_size=VOCAB), min_size=1),
    params=st.sampled_from(STRICTEST),
    temperature=st.sampled_from([1e-30, 0.2, 0.7, 1.0, 1.9]),
    dtype=st.sampled_from([torch.bfloat16, torch.float16, torch.float32]),
    seed=st.integers(0, 2**64 - 1),
)
def test_the_strictest_truncations_are_greedy_whatever_ties(
    rows: list[list[float]], params: SamplingParams, temperature: float, dtype: torch.dtype, seed: int
) -> None:
    """By what shared noise chooses, and by the distribution that ratio rules draw from."""
    logits, path = stack(rows).to(dtype), (0,) * (len(rows) - 1)
    expected = [row.index(max(row)) for row in logits.tolist()]
    group = RowGroup(replace(params, temperature=temperature, seed=seed), 5, None, path, len(rows))
    assert choose_tokens(logits, [group]).tolist() == expected
    probs = target_probs(logits, [group])
    assert torch.equal(probs, torch.nn.functional.one_hot(torch.tensor(expected), VOCAB).float())


@given(prompt=st.lists(tokens, max_size=6), output=st.lists(tokens, max_size=6), cut=st.integers(0, 6))
def test_counts_of_a_resumed_generation_equal_those_of_one_that_ran_through(
    prompt: list[int], output: list[int], cut: int
) -> None:
    resumed = TokenCounts(VOCAB, prompt, output)
    grown = TokenCounts(VOCAB, prompt, output[:cut])
    grown.append(output[cut:])
    assert np.array_equal(resumed.seen, grown.seen)
    assert np.array_equal(resumed.output, grown.output)
    assert resumed.output.tolist() == [output.count(token) for token in range(VOCAB)]
    assert resumed.seen.tolist() == [token in prompt or token in output for token in range(VOCAB)]


def test_a_prompt_token_gets_the_repetition_penalty_only() -> None:
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=0.5)
    group = RowGroup(params, 3, TokenCounts(3, [0, 0], [1, 1]), (), 1)
    assert adjust_logits(torch.tensor([[4.0, 4.0, 4.0]]), [group]).tolist() == [[2.0, 0.0, 4.0]]


def test_row_i_counts_exactly_the_draft_tokens_before_it() -> None:
    group = RowGroup(SamplingParams(frequency_penalty=1.0), 1, TokenCounts(3, [0]), (2, 2, 1), 4)
    assert adjust_logits(torch.zeros(4, 3), [group]).tolist() == [[0, 0, 0], [0, 0, -1], [0, 0, -2], [0, -1, -2]]


def test_a_batch_with_nothing_to_do_is_not_copied() -> None:
    logits = torch.randn(3, VOCAB)
    plain = [
        RowGroup(SamplingParams(), 0, None, (1,), 2),
        RowGroup(SamplingParams(temperature=0.0, top_k=3), 0, None, (), 1),
    ]
    assert adjust_logits(logits, plain) is logits


@pytest.mark.parametrize("params", [SamplingParams(temperature=0.0), SamplingParams(temperature=0.5, top_k=1)])
def test_tokens_are_withheld_from_the_rows_below_their_position_only(params: SamplingParams) -> None:
    held = replace(params, withheld_ids=(1, 7), withheld_until=12)
    logits = torch.tensor([[0.0, 5.0, 3.0]])
    for position, path, expected in (
        (10, (1, 1, 1), [2, 2, 1, 1]),  # row i predicts position 10 + i
        (12, (1,), [1, 1]),
        (3, (0, 0), [2, 2, 2]),
    ):
        group = RowGroup(held, position, None, path, len(expected))
        assert choose_tokens(logits.expand(len(expected), -1), [group]).tolist() == expected
        assert target_probs(logits.expand(len(expected), -1), [group]).argmax(dim=-1).tolist() == expected


def test_no_bias_brings_a_withheld_token_back() -> None:
    params = SamplingParams(logit_bias=((1, 100.0),), presence_penalty=-2.0, withheld_ids=(1,), withheld_until=9)
    group = RowGroup(params, 3, TokenCounts(3, [0], [1, 1]), (), 1)
    assert target_probs(torch.zeros(1, 3), [group]).tolist() == [[0.5, 0.0, 0.5]]


def test_rows_behind_the_withheld_positions_are_not_copied() -> None:
    logits = torch.randn(3, VOCAB)
    params = SamplingParams(withheld_ids=(2,), withheld_until=7)
    assert adjust_logits(logits, [RowGroup(params, 7, None, (1, 2), 3)]) is logits
    unnamed = SamplingParams(withheld_until=9)
    assert adjust_logits(logits, [RowGroup(unnamed, 7, None, (1, 2), 3)]) is logits


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 5e-324])
def test_a_temperature_near_zero_leaves_the_argmax_and_nothing_undefined(temperature: float) -> None:
    group = RowGroup(SamplingParams(temperature=temperature, top_p=0.9), 0, None, (), 1)
    assert target_probs(torch.tensor([[30.0, -70.0, 30.5, 2.0]]), [group]).tolist() == [[0.0, 0.0, 1.0, 0.0]]


def test_logits_the_model_itself_removed_stay_removed() -> None:
    params = SamplingParams(temperature=0.5, top_p=0.99, top_k=4, min_p=0.001, repetition_penalty=1.5)
    group = RowGroup(params, 1, TokenCounts(4, [1]), (), 1)
    probs = target_probs(torch.tensor([[1.0, -torch.inf, 1.0, -torch.inf]]), [group])
    assert probs.tolist() == [[0.5, 0.0, 0.5, 0.0]]


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32),
    temperature=st.floats(0.1, 2.0),
    top_k=st.integers(1, 40),
    top_p=st.floats(0.05, 0.99),
    min_p=st.floats(0.001, 0.9),
    penalty=st.floats(0.5, 2.0),
    prompt=st.lists(st.integers(0, 31), min_size=1, max_size=8),
)
def test_equal_to_the_processors_of_transformers(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float, penalty: float, prompt: list[int]
) -> None:
    """Repetition penalty, temperature, top-k, top-p, min-p in that order; on logits without ties both mean the same."""
    logits = torch.randn(1, 32, generator=torch.Generator().manual_seed(seed)) * 3
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=penalty)
    theirs = LogitsProcessorList(
        [
            RepetitionPenaltyLogitsProcessor(penalty),
            TemperatureLogitsWarper(temperature),
            TopKLogitsWarper(top_k),
            TopPLogitsWarper(top_p),
            MinPLogitsWarper(min_p),
        ]
    )
    reference(logits[0].double().numpy(), params, prompt, [])  # leaves out examples at a boundary
    ids = torch.tensor([prompt], dtype=torch.int64)
    expected = theirs(cast("torch.LongTensor", ids), cast("torch.FloatTensor", logits.clone()))[0].double().numpy()
    found = adjust_logits(logits, [RowGroup(params, len(prompt), TokenCounts(32, prompt), (), 1)])
    same_distribution(found[0], expected)


def test_half_precision_logits_are_adjusted_in_float32() -> None:
    logits = torch.randn(2, VOCAB).bfloat16()
    group = RowGroup(SamplingParams(temperature=0.7), 0, None, (0,), 2)
    assert torch.equal(adjust_logits(logits, [group]), adjust_logits(logits.float(), [group]))


def test_rows_that_do_not_add_up_are_refused() -> None:
    group = RowGroup(SamplingParams(), 0, None, (1,), 2)
    with pytest.raises(ShapeError, match=r"need shape \[2, vocab\].*found \[3, 5\]"):
        adjust_logits(torch.zeros(3, 5), [group])


def test_a_bias_outside_the_vocabulary_is_refused() -> None:
    group = RowGroup(SamplingParams(logit_bias=((5, 1.0),)), 0, None, (), 1)
    with pytest.raises(ParameterError, match="logit_bias needs token ids below the vocabulary's size 5, found 5"):
        adjust_logits(torch.zeros(1, 5), [group])


def test_a_group_with_undetermined_rows_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"1 draft tokens needs 0\.\.2 rows, found 3"):
        RowGroup(SamplingParams(), 0, None, (1,), 3)
    with pytest.raises(ShapeError, match="needs token counts, found None"):
        RowGroup(SamplingParams(presence_penalty=1.0), 0, None, (1,), 2)
