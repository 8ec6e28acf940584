"""Rounds against a text: what a plan's arithmetic says, and what the engine's drafts do."""

import pytest
import torch

from lab.bench.trees.rounds import WeightedSiblings, played, ranks, shaped, shapes_of
from lab.bench.trees.texts import Text, write_texts
from lab.training.head.paged_texts import PagedTexts
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import SamplingParams
from outrider.engines.drafter.engine import TorchDrafter
from outrider.engines.torch.model import PagedModel
from outrider.protocols.registry import register, unregister
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_drafter
from tests.unit.engines.reference import tiny_alone

PROMPTS = [(5, 17, 42), (8, 61), (30, 2, 9, 4)]
PARAMS = {"greedy": SamplingParams(temperature=0.0), "sampled": SamplingParams(temperature=0.8, seed=3)}


def drafter() -> TorchDrafter:
    """The target with noise on its weights."""
    model = tiny_llama()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for values in model.parameters():
            values.add_(torch.randn(values.shape, generator=generator), alpha=0.05)
    return torch_drafter(model)


def texts(params: SamplingParams) -> list[Text]:
    target = PagedTexts(PagedModel(tiny_llama(), 60, 4), VOCAB)
    return write_texts(target, [(prompt, params) for prompt in PROMPTS], 24, ())


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_texts_are_the_targets_own(params: SamplingParams) -> None:
    for text, prompt in zip(texts(params), PROMPTS, strict=True):
        assert text.token_ids == tuple(tiny_alone(list(prompt), params, 24))


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 2)], ids=str)
def test_the_arithmetic_of_shapes_is_what_drafts_of_them_bring(params: SamplingParams, shape: tuple[int, ...]) -> None:
    written, engine = texts(params), drafter()
    expected = shaped(ranks(engine, written, VOCAB), shape)
    found = played(engine, written, DraftPlan("token_ids", 3, () if max(shape) == 1 else shape), VOCAB)
    assert found.tokens_per_round == expected
    assert found.tokens == sum(len(text.token_ids) - 1 for text in written)
    assert found.rows_per_round == pytest.approx(DraftPlan("token_ids", 3, shape).nodes)
    assert engine.usage().used_blocks == 0


def test_a_tree_that_grows_brings_no_less_than_its_first_node_and_costs_no_more_than_it_may() -> None:
    written, engine = texts(PARAMS["greedy"]), drafter()
    one, eight = (played(engine, written, DraftPlan("token_ids", min(rows, 4), rows=rows), VOCAB) for rows in (1, 8))
    assert one.tokens_per_round == shaped(ranks(engine, written, VOCAB), (1,))
    assert eight.tokens_per_round >= one.tokens_per_round
    assert eight.rows == 8 * eight.rounds
    priced = played(engine, written, DraftPlan("token_ids", 4, rows=8), VOCAB, DraftPrice(0.2))
    assert priced.rows < 8 * priced.rounds


def test_siblings_that_count_for_nothing_leave_a_chain() -> None:
    register(WeightedSiblings(0.0))
    try:
        written, engine = texts(PARAMS["greedy"]), drafter()
        chain = played(engine, written, DraftPlan(WeightedSiblings.name, 3, rows=3), VOCAB)
        assert chain.tokens_per_round == shaped(ranks(engine, written, VOCAB), (1, 1, 1))
        assert (chain.rows, chain.layers) == (3 * chain.rounds, 3 * chain.rounds)
    finally:
        unregister(WeightedSiblings.name)


def test_all_shapes_of_so_many_rows() -> None:
    assert shapes_of(3, 3) == [(1,), (1, 1), (1, 1, 1), (1, 2), (2,), (3,)]
    assert all(DraftPlan("token_ids", len(shape), shape).nodes <= 9 for shape in shapes_of(9, 4))
    assert max(map(len, shapes_of(9, 4))) == 4


def test_rounds_of_a_chain_by_hand() -> None:
    """Ranks 0 0 1 0 0 0: two accepted and a correction, then two and the last."""
    assert shaped([[0, 0, 1, 0, 0, 0]], (1, 1)) == 3.0
    assert shaped([[0, 0, 1, 0, 0, 0]], (2, 2, 1)) == 3.0
    assert shaped([[1, 1]], (1,)) == 1.0
