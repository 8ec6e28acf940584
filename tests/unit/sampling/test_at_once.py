"""All rows at once, as on a device of its own: the choices are those that a processor makes row by row."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.requests import MAX_SEED, SamplingParams
from outrider.sampling.choosing import choose_tokens, launch_choices, target_probs
from outrider.sampling.device_tensors import Readback, everywhere_at_once
from outrider.sampling.logits import adjust_logits
from outrider.sampling.row_groups import RowGroup, TokenCounts

VOCAB = 150
tokens = st.integers(0, VOCAB - 1)
params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 5e-324, 1e-30, 1e-3, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 0, 1, 2, 70, VOCAB + 5]),
    top_p=st.sampled_from([1.0, 1.0, 1e-9, 0.3, 0.95, 1 - 1e-9]),
    min_p=st.sampled_from([0.0, 0.0, 1e-9, 0.2, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 0.1, 1.3, 10.0]),
    presence_penalty=st.sampled_from([0.0, 0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.0, -2.0, 0.3]),
    logit_bias=st.lists(st.tuples(tokens, st.sampled_from([-100.0, -0.1, 0.3, 100.0])), max_size=4).map(tuple),
    withheld_ids=st.lists(st.integers(0, VOCAB + 3), max_size=3).map(tuple),
    withheld_until=st.integers(0, 12),
    seed=st.integers(0, MAX_SEED),
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[torch.Tensor, list[RowGroup]]:
    """Groups of all kinds over rows with ties, removed logits, huge and equal ones."""
    groups = []
    for one in draw(st.lists(params, min_size=1, max_size=5)):
        path = tuple(draw(st.lists(tokens, max_size=4)))
        counts = TokenCounts(VOCAB, draw(st.lists(tokens, max_size=6)), draw(st.lists(tokens, max_size=6)))
        groups.append(RowGroup(one, draw(st.integers(0, 10)), counts, path, draw(st.integers(0, len(path) + 1))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = sum(group.rows for group in groups)
    logits = rng.normal(0, draw(st.sampled_from([0.0, 1.0, 30.0, 1e30])), (rows, VOCAB)).astype(np.float32)
    if draw(st.booleans()):
        logits = np.round(logits)
    removed = rng.random((rows, VOCAB)) < draw(st.sampled_from([0.0, 0.5, 0.99]))
    for row in removed:
        row[rng.choice(VOCAB, 4, replace=False)] = False  # more than may be withheld: something is left of each
    logits[removed] = -np.inf
    return torch.from_numpy(logits).to(draw(st.sampled_from([torch.float32, torch.bfloat16]))), groups


def choose_along(logits: torch.Tensor, groups: list[RowGroup]) -> list[list[int]]:
    choices = launch_choices(logits, groups, readback := Readback())
    readback.read()
    return choices()


@settings(max_examples=300, deadline=None)
@given(batch=batches())
def test_choices_and_probabilities_are_the_same_to_the_last_bit(batch: tuple[torch.Tensor, list[RowGroup]]) -> None:
    logits, groups = batch
    adjusted, probs = adjust_logits(logits, groups), target_probs(logits, groups)
    chosen, along = choose_tokens(logits, groups), choose_along(logits, groups)
    with everywhere_at_once():
        assert torch.equal(adjust_logits(logits, groups), adjusted)
        assert torch.equal(target_probs(logits, groups), probs)
        assert torch.equal(choose_tokens(logits, groups), chosen)
        for group, ours, theirs in zip(groups, choose_along(logits, groups), along, strict=True):
            needed = next((i for i, (a, b) in enumerate(zip(group.path, ours, strict=False)) if a != b), len(ours))
            assert ours[: needed + 1] == theirs[: needed + 1]


def test_a_whole_vocabulary_of_rows_is_drawn_alike() -> None:
    logits = torch.randn(12, 49_152, generator=torch.Generator().manual_seed(2)) * 3
    one = SamplingParams(seed=MAX_SEED, top_p=0.9)
    groups = [RowGroup(replace(one, top_p=1.0), 2**63, None, (1,) * 5, 6), RowGroup(one, 7, None, (1,) * 5, 6)]
    chosen = choose_tokens(logits, groups)
    with everywhere_at_once():
        assert torch.equal(choose_tokens(logits, groups), chosen)


def test_what_is_read_together_keeps_its_type_and_shape() -> None:
    wanted = [torch.arange(3), torch.ones(2, 0), torch.tensor([[True], [False]]), torch.full((1, 2), 0.1).double()]
    readback = Readback()
    fetched = [readback.add(tensor) for tensor in wanted]
    with pytest.raises(AssertionError, match="read comes first"):
        fetched[0]()
    readback.read()
    for tensor, numbers in zip(wanted, fetched, strict=True):
        assert torch.equal(torch.from_numpy(numbers().copy()), tensor)
    Readback().read()
