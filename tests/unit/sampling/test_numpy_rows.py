"""Drawing with numpy alone chooses the token that torch's drawing chooses of the same logits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import FloatRow
from outrider.contracts.requests import SamplingParams
from outrider.sampling.choosing import TokenColumns, choose_tokens
from outrider.sampling.logits import adjust_logits
from outrider.sampling.numpy_rows import adjust_row, choose_token
from outrider.sampling.row_groups import RowGroup, TokenCounts

VOCAB = 300


@st.composite
def rows(draw: st.DrawFn) -> FloatRow:
    """Rows of 1 to 300 logits: smooth, full of ties, and with removed tokens."""
    size, seed = draw(st.one_of(st.integers(1, 4), st.integers(5, VOCAB))), draw(st.integers(0, 2**32 - 1))
    row = np.random.default_rng(seed).normal(0.0, draw(st.sampled_from([0.0, 0.5, 3.0, 40.0])), size)
    if draw(st.booleans()):
        row = np.round(row)  # ties
    if draw(st.booleans()):
        row[np.random.default_rng(seed + 1).random(size) < 0.3] = -np.inf
        row[draw(st.integers(0, size - 1))] = 0.25
    return row.astype(np.float32)


@st.composite
def groups(draw: st.DrawFn, *, naming: bool) -> RowGroup:
    ids = st.lists(st.integers(0, VOCAB - 1), max_size=12)
    named = {
        "repetition_penalty": draw(st.sampled_from([1.0, 0.5, 1.3])),
        "presence_penalty": draw(st.sampled_from([0.0, 0.7, -1.0])),
        "frequency_penalty": draw(st.sampled_from([0.0, 0.3])),
        "logit_bias": tuple((one, draw(st.sampled_from([-100.0, 0.5, 7.0]))) for one in draw(ids)),
        "withheld_ids": tuple(draw(ids)),
        "withheld_until": draw(st.sampled_from([0, 50])),
    }
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.0, 1e-30, 0.2, 0.7, 1.0, 2.0])),
        top_k=draw(st.sampled_from([0, 1, 2, 20, 1000])),
        top_p=draw(st.sampled_from([1.0, 1e-9, 0.35, 0.9, 0.9999])),
        min_p=draw(st.sampled_from([0.0, 0.05, 0.5, 1.0])),
        seed=draw(st.integers(0, 2**64 - 1)),
        **(named if naming else {}),  # type: ignore[arg-type]  # by name
    )
    counts = TokenCounts(VOCAB, draw(ids), draw(ids)) if params.penalised else None
    return RowGroup(params, draw(st.integers(0, 60)), counts, (), 1)


@given(row=rows(), group=groups(naming=False))
@settings(max_examples=600)
def test_adjusts_and_chooses_as_torch_does(row: FloatRow, group: RowGroup) -> None:
    theirs, before = adjust_logits(torch.from_numpy(row.copy())[None], [group])[0].numpy(), row.copy()
    np.testing.assert_array_equal(adjust_row(row, group), theirs)
    token_id = choose_token(row, group, None, len(row))
    assert token_id == int(choose_tokens(torch.from_numpy(row)[None], [group])[0])
    np.testing.assert_array_equal(row, before)


@given(row=rows(), group=groups(naming=True), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=600)
def test_chooses_as_torch_does_among_some_tokens(row: FloatRow, group: RowGroup, seed: int) -> None:
    token_ids = np.sort(np.random.default_rng(seed).choice(VOCAB, len(row), replace=False)).astype(np.int64)
    token_id = choose_token(row, group, token_ids, VOCAB)
    if group.names_tokens:
        whole = torch.full((1, VOCAB), float("-inf"))
        whole[0, token_ids] = torch.from_numpy(row)
        assert token_id == int(choose_tokens(whole, [group])[0])
    else:
        columns = TokenColumns(torch.from_numpy(token_ids), VOCAB)
        assert token_id == int(choose_tokens(torch.from_numpy(row)[None], [group], columns)[0])


def test_a_bias_outside_the_vocabulary_is_refused() -> None:
    group = RowGroup(SamplingParams(logit_bias=((9, 1.0),)), 0, None, (), 1)
    with pytest.raises(ParameterError, match="below the vocabulary's size 4"):
        choose_token(np.zeros(4, np.float32), group, None, 4)
