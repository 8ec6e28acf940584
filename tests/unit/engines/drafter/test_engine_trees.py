"""Token trees: rows as on a chain along each path, children by their own noise, KV of the accepted path kept."""

import random
from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.drafting import DraftTerms
from outrider.contracts.exchanged import SparseDraft
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.sampling.distributions import draw, softmax, without
from outrider.sampling.noise import Purpose, gumbel_noise, uniforms
from outrider.sampling.rounding import truncated
from tests.unit.engines.conftest import VOCAB, WHOLE_DRAFTERS, MakeDrafter, tiny_llama
from tests.unit.engines.drafter_device import (
    GREEDY,
    PENALISED,
    PROMPT,
    SAMPLED,
    TERMS,
    Device,
    Passes,
    answers_of,
    children_of,
    draft_of,
    inner_nodes,
    parents_of,
    path_tokens,
)

pytestmark = WHOLE_DRAFTERS

TREE = "tslt_tree"
SHAPES = [(3,), (2, 2, 2), (1, 3, 1), (4, 1, 2), (1, 1, 1)]
REPLACING = DraftTerms(replace(TERMS.wire, distinct_siblings=False))


@pytest.mark.parametrize("terms", [TERMS, REPLACING], ids=["distinct", "replacing"])
@pytest.mark.parametrize("params", [SAMPLED, PENALISED], ids=["sampled", "penalised"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_are_those_of_each_path_and_children_follow_their_noise(
    make_drafter: MakeDrafter, shape: tuple[int, ...], params: SamplingParams, terms: DraftTerms
) -> None:
    engine, device = make_drafter(), Device("a", params, protocol=TREE)
    engine.open(device.opening(), terms)
    draft = draft_of(engine, device.request(expansion=shape))
    assert parents_of(draft) == shape_parents(shape), "parents first, children of one node side by side"
    assert draft.hidden is None
    sent_chain = draft.distribution
    assert isinstance(sent_chain, SparseDraft)
    for row, node in enumerate(inner_nodes(draft)):
        path = path_tokens(draft, node)
        token_ids, logits = truncated(device.logits(path), terms.wire)
        np.testing.assert_array_equal(sent_chain.token_ids[row], token_ids)
        np.testing.assert_allclose(sent_chain.logits[row], logits, atol=2**-7 + 2e-4)
        children = children_of(draft, node)
        position = len(device.tokens) + len(path)
        probs = softmax(sent_chain.logits[row])
        for token_id, uniform in zip(
            children, uniforms(params.seed, position, Purpose.DRAFT_TOKEN, len(children)), strict=True
        ):
            drawn = draw(probs, float(uniform))
            assert token_id == sent_chain.token_ids[row][drawn]
            if terms.wire.distinct_siblings:
                probs = without(probs, drawn)
        assert len(set(children)) == len(children) or not terms.wire.distinct_siblings


def shape_parents(shape: tuple[int, ...]) -> tuple[int, ...]:
    parents: list[int] = []
    layer = [-1]
    for children in shape:
        first = len(parents)
        parents += [node for node in layer for _ in range(children)]
        layer = list(range(first, len(parents)))
    return tuple(parents)


def test_siblings_drawn_with_replacement_repeat(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", SAMPLED, protocol=TREE)
    engine.open(device.opening(), DraftTerms(replace(REPLACING.wire, top_k=2)))
    draft = draft_of(engine, device.request(expansion=(4, 2)))
    roots = children_of(draft, -1)
    assert len(roots) == 4
    assert len(set(roots)) <= 2
    of_one = [children_of(draft, node) for node in range(4) if draft.token_ids[node] == roots[0]]
    assert of_one.count(of_one[0]) == len(of_one), "what follows a repeated sibling is the same"


def test_a_support_that_runs_out_gives_fewer_children(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", SAMPLED, protocol=TREE)
    engine.open(device.opening(), DraftTerms(replace(TERMS.wire, top_k=2)))
    draft = draft_of(engine, device.request(expansion=(3, 3)))
    assert parents_of(draft) == (-1, -1, 0, 0, 1, 1)


@pytest.mark.parametrize("protocol", [TREE, "token_ids"])
def test_greedy_children_are_the_most_likely_tokens(make_drafter: MakeDrafter, protocol: ProtocolName) -> None:
    engine, device = make_drafter(), Device("a", GREEDY, protocol=protocol)
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(expansion=(3, 2, 1)))
    assert parents_of(draft) == shape_parents((3, 2, 1))
    assert draft.distribution is None
    for node in inner_nodes(draft):
        children = children_of(draft, node)
        logits = device.logits(path_tokens(draft, node))
        assert children == np.argsort(-logits, kind="stable")[: len(children)].tolist()


def test_token_ids_expand_by_logits_and_shared_noise(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", PENALISED, protocol="token_ids")
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(expansion=(2, 3)))
    assert draft.distribution is None
    for node in inner_nodes(draft):
        path = path_tokens(draft, node)
        noise = gumbel_noise(device.params.seed, len(PROMPT) + len(path), Purpose.TARGET_TOKEN, VOCAB)
        children = children_of(draft, node)
        expected = np.argsort(-(device.logits(path) + noise), kind="stable")
        assert children == expected[: len(children)].tolist()


def test_a_tree_of_single_children_is_the_chain(make_drafter: MakeDrafter) -> None:
    for protocol in (TREE, "token_ids"):
        drafts = []
        for window, expansion in ((0, (1, 1, 1)), (3, ())):
            engine, device = make_drafter(), Device("a", SAMPLED, protocol=protocol)
            engine.open(device.opening(), TERMS)
            drafts.append(draft_of(engine, device.request(window, expansion)))
        tree, chain = drafts
        assert tree.token_ids == chain.token_ids
        assert tree.distribution == chain.distribution
        assert (tree.parents, chain.parents) == ((-1, 0, 1), None)


def test_kv_of_the_accepted_path_serves_the_next_block(make_drafter: MakeDrafter) -> None:
    model = tiny_llama()
    engine, device, passes = make_drafter(model), Device("a", SAMPLED, protocol=TREE), Passes(model)
    engine.open(device.opening(), TERMS)
    rng = random.Random(5)
    draft_of(engine, device.request(0))
    passes.taken()  # one that is built by its first order is warmed up
    missing = 1
    for accepted in (0, 1, 2, 3, 2, 1, 3):
        draft = draft_of(engine, device.request(expansion=(3, 2, 2)))
        assert passes.taken() == missing + 3 + 6
        fresh = make_drafter()
        fresh.open(device.opening(), TERMS)
        twin = Device("a", SAMPLED, tuple(PROMPT), TREE)
        twin.tokens, twin.known = list(device.tokens), len(device.tokens)
        other = draft_of(fresh, twin.request(expansion=(3, 2, 2)))
        assert draft.token_ids == other.token_ids
        assert isinstance(draft.distribution, SparseDraft)
        assert isinstance(other.distribution, SparseDraft)
        for mine, theirs in zip(draft.distribution.logits, other.distribution.logits, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2**-7 + 2e-4)
        leaf = rng.choice([node for node in range(len(draft.token_ids)) if node not in parents_of(draft)])
        device.tokens += [*path_tokens(draft, leaf)[:accepted], rng.randrange(VOCAB)]
        missing = 1 + (accepted == 3)  # the appended token, and the leaf's KV


def test_trees_and_chains_share_passes_and_scarce_memory(make_drafter: MakeDrafter) -> None:
    rng = random.Random(7)
    scarce = make_drafter(blocks=24)
    devices = [
        Device(
            f"d{i}",
            [SAMPLED, PENALISED, GREEDY][i % 3],
            tuple(rng.randrange(VOCAB) for _ in range(rng.randint(5, 30))),
            [TREE, "token_ids", "dssd"][i % 3],
        )
        for i in range(6)
    ]
    shapes: list[tuple[int, ...]] = [(2, 2, 2), (3, 1), ()]
    for device in devices:
        scarce.open(device.opening(), TERMS)
    for _ in range(4):
        expected = {}
        for i, device in enumerate(devices):
            window, expansion = (0, shapes[i % 3]) if shapes[i % 3] else (4, ())
            alone = make_drafter()
            alone.open(device.opening(), TERMS)
            twin = Device(device.name, device.params, device.prompt, device.protocol)
            twin.tokens, twin.known = list(device.tokens), len(device.tokens)
            expected[device.name] = draft_of(alone, twin.request(window, expansion))
            scarce.submit(device.request(window, expansion))
        answers = answers_of(scarce)
        for device in devices:
            answer = answers[device.name]
            assert getattr(answer, "token_ids", None) == expected[device.name].token_ids
            accepted = expected[device.name].token_ids[:1] if rng.random() < 0.7 else ()
            device.tokens += [*accepted, rng.randrange(VOCAB)]
    assert scarce.usage().evictions > 0
    for device in devices:
        scarce.close(device.name)
    assert scarce.usage().used_blocks == 0


def test_a_nearly_full_context_makes_a_tree_shallower(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", GREEDY, (1,) * 254, TREE)
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(expansion=(2, 2, 2)))
    assert parents_of(draft) == (-1, -1, 0, 0, 1, 1)
    device.tokens += [7] * 2
    draft = draft_of(engine, device.request(expansion=(2, 2)))
    assert (draft.token_ids, draft.parents) == ((), ())


def test_a_tree_wider_than_the_memory_loses_layers(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(blocks=4), Device("a", GREEDY, PROMPT, TREE)
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(expansion=(3, 3, 3)))
    assert parents_of(draft) == shape_parents((3, 3)), "7 + 3 of 16 slots; 9 more nodes with children do not fit"
