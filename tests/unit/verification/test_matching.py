"""Chains and trees are matched exactly, and the committed output never depends on the drafter."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.errors import ShapeError
from outrider.contracts.requests import SamplingParams
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.row_groups import RowGroup, TokenCounts
from outrider.verification.decision import BlockDecision, shape_of
from outrider.verification.matching import match

VOCAB = 5
PROMPT = (1, 3)

tokens = st.integers(0, VOCAB - 1)


@given(chosen=st.lists(tokens, min_size=1, max_size=6), draft=st.data())
def test_the_accepted_part_of_a_chain_is_the_longest_common_prefix(chosen: list[int], draft: st.DataObject) -> None:
    window = draft.draw(st.sampled_from([len(chosen), len(chosen) - 1]))
    drafted = tuple(draft.draw(st.lists(tokens, min_size=window, max_size=window)))
    decision = match(chosen, drafted)
    n = decision.accepted_len
    assert decision.path == tuple(range(n))
    assert drafted[:n] == tuple(chosen[:n])
    assert n == window or drafted[n] != chosen[n]
    assert decision.token_after == (chosen[n] if n < len(chosen) else None)


def test_window_zero_yields_the_targets_own_token() -> None:
    assert match([4], ()) == BlockDecision((), 4)
    assert (
        match([], ())
        == match([4], (), bonus=False)
        == match([4], (), shape_of(0, ()), bonus=False)
        == BlockDecision((), None)
    )


@given(st.data())
def test_a_chain_written_as_a_tree_is_the_same(data: st.DataObject) -> None:
    drafted = data.draw(st.lists(st.integers(0, 1), max_size=4))
    chosen = data.draw(st.lists(st.integers(0, 1), min_size=len(drafted) + 1, max_size=len(drafted) + 1))
    tree = shape_of(len(drafted), range(-1, len(drafted) - 1))
    for bonus in (True, False):
        assert match(chosen, drafted, tree, bonus=bonus) == match(chosen, drafted, bonus=bonus)


@given(st.data())
def test_a_tree_commits_the_targets_choices_along_the_deepest_agreeing_path(data: st.DataObject) -> None:
    """Siblings differ, as they do in every tree made for this rule: then the path is unique."""
    count = data.draw(st.integers(0, 7))
    parents: list[int] = []
    draft: list[int] = []
    for node in range(count):
        taken = set(zip(parents, draft, strict=True))
        free = [(up, token) for up in range(-1, node) for token in range(3) if (up, token) not in taken]
        up, token = data.draw(st.sampled_from(free))
        parents.append(up)
        draft.append(token)
    chosen = data.draw(st.lists(st.integers(0, 2), min_size=count + 1, max_size=count + 1))
    bonus = data.draw(st.booleans())
    decision = match(chosen, draft, shape_of(count, parents), bonus=bonus)
    row, expected = 0, list[int]()
    while found := [n for n in range(count) if parents[n] == row - 1 and draft[n] == chosen[row]]:
        expected += found
        row = 1 + found[-1]
    assert decision.path == tuple(expected)
    inner = row - 1 in parents
    assert decision.token_after == (chosen[row] if bonus or inner else None)


def test_of_repeated_siblings_the_first_is_taken() -> None:
    assert match([2, 0, 0, 0], (2, 2, 1), shape_of(3, (-1, -1, 1))) == BlockDecision((0,), 0)


def test_what_is_emitted_is_the_targets_own_for_every_draft_and_every_choice() -> None:
    """So its law is that of the choices: total variation 0 for greedy and shared noise, whoever drafts."""
    shape = shape_of(5, (-1, -1, 0, 0, 1))
    for choice in product(range(3), repeat=2):  # what the target chooses at each depth
        for draft in product(range(3), repeat=5):
            depth = (0, 1, 1, 2, 2, 2)  # of the rows
            decision = match([(*choice, 2)[d] for d in depth], draft, shape)
            emitted = (*(draft[node] for node in decision.path), decision.token_after)
            assert emitted == (*choice, 2)[: len(emitted)]


def target_logits(prefix: tuple[int, ...]) -> torch.Tensor:
    """A toy target: ``[VOCAB]`` logits that depend on the whole prefix, ties included."""
    words = np.array([len(prefix), *prefix], dtype=np.uint32)
    return torch.from_numpy(np.random.default_rng(words).integers(-3, 4, VOCAB) / 2.0).float()


def target_alone(params: SamplingParams, count: int) -> tuple[int, ...]:
    output: tuple[int, ...] = ()
    for _ in range(count):
        prefix = PROMPT + output
        group = RowGroup(params, len(prefix), TokenCounts(VOCAB, PROMPT, output), (), 1)
        output += (int(choose_tokens(target_logits(prefix)[None], [group])),)
    return output


params_of_any_kind = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.0, 1.5]),
    top_k=st.integers(0, 4),
    top_p=st.sampled_from([0.6, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 2**64 - 1),
)


@settings(max_examples=200)
@given(params=st.lists(params_of_any_kind, min_size=1, max_size=3), data=st.data())
def test_the_output_is_the_targets_own_for_any_drafter_window_and_batch(
    params: list[SamplingParams], data: st.DataObject
) -> None:
    """Drafts are right up to a place hypothesis picks and arbitrary from there on."""
    own = [target_alone(one, 12) for one in params]
    outputs: list[tuple[int, ...]] = [() for _ in params]
    for _ in range(data.draw(st.integers(1, 4))):
        groups, logits = [], []
        for one, output, alone in zip(params, outputs, own, strict=True):
            right = data.draw(st.integers(0, 2))
            draft = alone[len(output) : len(output) + right] + tuple(data.draw(st.lists(tokens, max_size=2)))
            draft = draft[: 11 - len(output)]
            prefix, rows = PROMPT + output, len(draft) + data.draw(st.integers(0, 1))
            groups.append(RowGroup(one, len(prefix), TokenCounts(VOCAB, PROMPT, output), draft, rows))
            logits += [target_logits(prefix + draft[:i]) for i in range(rows)]
        choices = iter(choose_tokens(torch.stack(logits) if logits else torch.zeros(0, VOCAB), groups).tolist())
        for i, group in enumerate(groups):
            decision = match([next(choices) for _ in range(group.rows)], group.path)
            after = () if decision.token_after is None else (decision.token_after,)
            outputs[i] += group.path[: decision.accepted_len] + after
            assert outputs[i] == own[i][: len(outputs[i])]


@given(params=params_of_any_kind, window=st.integers(1, 6))
def test_a_draft_of_the_targets_own_tokens_is_accepted_whole(params: SamplingParams, window: int) -> None:
    own = target_alone(params, window + 1)
    draft, rows = own[:window], window + 1
    logits = torch.stack([target_logits(PROMPT + draft[:i]) for i in range(rows)])
    group = RowGroup(params, len(PROMPT), TokenCounts(VOCAB, PROMPT), draft, rows)
    everything = tuple(range(window))
    assert match(choose_tokens(logits, [group]).tolist(), draft) == BlockDecision(everything, own[window])
    without_bonus = choose_tokens(logits[:window], [replace(group, rows=window)]).tolist()
    assert match(without_bonus, draft) == BlockDecision(everything, None)


GREEDY_LOGITS = torch.tensor([[0.0, 1.0, 0.0], [2.0, 1.0, 2.0], [0.0, 0.0, 5.0]])  # argmax 1, 0 (tied with 2), 2


@pytest.mark.parametrize(
    ("draft", "rows", "expected"),
    [
        ((1, 0), 3, BlockDecision((0, 1), 2)),
        ((1, 0), 2, BlockDecision((0, 1), None)),
        ((2, 0), 3, BlockDecision((), 1)),
        ((1, 1), 2, BlockDecision((0,), 0)),
        ((1, 2), 3, BlockDecision((0,), 0)),  # a tied token with a higher id
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_choices_on_numbers_small_enough_to_read(
    draft: tuple[int, ...], rows: int, expected: BlockDecision, dtype: torch.dtype
) -> None:
    group = RowGroup(SamplingParams(temperature=0.0), 7, None, draft, rows)
    assert match(choose_tokens(GREEDY_LOGITS[:rows].to(dtype), [group]).tolist(), draft) == expected


def test_disagreeing_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match="2 tokens needs 2 rows, or 3 with a bonus token; found 1"):
        match([1], (1, 2))
    with pytest.raises(ShapeError, match="2 tokens needs 3 rows; found 2"):
        match([1, 2], (1, 2), shape_of(2, (-1, 0)))
    with pytest.raises(ShapeError, match=r"one parent each, -1 or an earlier node; found \(-1, 1\)"):
        shape_of(2, (-1, 1))
    with pytest.raises(ShapeError, match="2 nodes needs one parent each"):
        shape_of(2, (-1,))
