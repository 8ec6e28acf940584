"""Chains are matched exactly, and the committed output never depends on the drafter."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.errors import ShapeError
from outrider.sampling import RowGroup, TokenCounts, choose_tokens
from outrider.types import SamplingParams
from outrider.verification.chain import ChainDecision, match_chains, verify_chains

VOCAB = 5
PROMPT = (1, 3)

tokens = st.integers(0, VOCAB - 1)


@given(chosen=st.lists(tokens, min_size=1, max_size=6), draft=st.data())
def test_the_accepted_part_is_the_longest_common_prefix(chosen: list[int], draft: st.DataObject) -> None:
    window = draft.draw(st.sampled_from([len(chosen), len(chosen) - 1]))
    drafted = tuple(draft.draw(st.lists(tokens, min_size=window, max_size=window)))
    (decision,) = match_chains([chosen], [drafted])
    n = decision.accepted_len
    assert drafted[:n] == tuple(chosen[:n])
    assert n == window or drafted[n] != chosen[n]
    assert decision.token_after == (chosen[n] if n < len(chosen) else None)


def test_window_zero_yields_the_targets_own_token() -> None:
    assert match_chains([[4], []], [(), ()]) == [ChainDecision(0, 4), ChainDecision(0, None)]


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
        groups, drafts, logits = [], [], []
        for one, output, alone in zip(params, outputs, own, strict=True):
            right = data.draw(st.integers(0, 2))
            draft = alone[len(output) : len(output) + right] + tuple(data.draw(st.lists(tokens, max_size=2)))
            draft = draft[: 11 - len(output)]
            prefix, rows = PROMPT + output, len(draft) + data.draw(st.integers(0, 1))
            groups.append(RowGroup(one, len(prefix), TokenCounts(VOCAB, PROMPT, output), draft, rows))
            drafts.append(draft)
            logits += [target_logits(prefix + draft[:i]) for i in range(rows)]
        stacked = torch.stack(logits) if logits else torch.zeros(0, VOCAB)
        for i, decision in enumerate(verify_chains(stacked, groups, drafts)):
            after = () if decision.token_after is None else (decision.token_after,)
            outputs[i] += drafts[i][: decision.accepted_len] + after
            assert outputs[i] == own[i][: len(outputs[i])]


@given(params=params_of_any_kind, window=st.integers(1, 6))
def test_a_draft_of_the_targets_own_tokens_is_accepted_whole(params: SamplingParams, window: int) -> None:
    own = target_alone(params, window + 1)
    draft, rows = own[:window], window + 1
    logits = torch.stack([target_logits(PROMPT + draft[:i]) for i in range(rows)])
    group = RowGroup(params, len(PROMPT), TokenCounts(VOCAB, PROMPT), draft, rows)
    assert verify_chains(logits, [group], [draft]) == [ChainDecision(window, own[window])]
    without_bonus = replace(group, rows=window)
    assert verify_chains(logits[:window], [without_bonus], [draft]) == [ChainDecision(window, None)]


def test_disagreeing_shapes_are_refused() -> None:
    group = RowGroup(SamplingParams(), 0, None, (1, 2), 1)
    with pytest.raises(ShapeError, match="2 tokens needs 2 rows, or 3 with a bonus token; found 1"):
        verify_chains(torch.zeros(1, VOCAB), [group], [(1, 2)])
    with pytest.raises(ShapeError, match="one row group per draft, found 1 and 2"):
        verify_chains(torch.zeros(1, VOCAB), [group], [(1, 2), ()])
    with pytest.raises(ShapeError, match="path needs to be its draft"):
        verify_chains(torch.zeros(1, VOCAB), [group], [(1, 1)])
