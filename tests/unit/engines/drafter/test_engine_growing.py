"""Trees that grow where the model is sure: the nodes best-first search finds, one at a time, over its own logits."""

import random
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush

import pytest

from outrider.contracts.drafting import Draft
from outrider.contracts.errors import UnsupportedBlockError
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import SamplingParams
from outrider.protocols.registry import PROTOCOLS, growing_protocols
from outrider.sampling.distributions import softmax
from outrider.sampling.noise import Purpose, gumbel_noise
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
    draft_of,
    parents_of,
    path_tokens,
)

pytestmark = WHOLE_DRAFTERS

PARAMS = pytest.mark.parametrize("params", [GREEDY, SAMPLED, PENALISED], ids=["greedy", "sampled", "penalised"])


def best_first(device: Device, rows: int, depth: int) -> set[tuple[int, ...]]:
    """Paths of the best nodes, each expanded by itself."""
    found: set[tuple[int, ...]] = set()
    heap: list[tuple[float, tuple[int, ...]]] = []

    def expand(path: tuple[int, ...], survival: float) -> None:
        scores = device.logits(path)
        if not device.params.greedy:
            position = len(device.tokens) + len(path)
            scores = scores + gumbel_noise(device.params.seed, position, Purpose.TARGET_TOKEN, VOCAB)
        for token_id, prob in enumerate(softmax(scores).tolist()):
            heappush(heap, (-survival * prob, (*path, token_id)))

    expand((), 1.0)
    while len(found) < rows:
        survival, path = heappop(heap)
        found.add(path)
        if len(path) < depth:
            expand(path, -survival)
    return found


def paths_of(draft: Draft) -> set[tuple[int, ...]]:
    return {tuple(path_tokens(draft, node)) for node in range(len(draft.token_ids))}


@PARAMS
@pytest.mark.parametrize(("rows", "window"), [(1, 1), (4, 4), (8, 3)])
def test_it_has_the_nodes_of_best_first_search(
    make_drafter: MakeDrafter, params: SamplingParams, rows: int, window: int
) -> None:
    engine, device = make_drafter(), Device("a", params)
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(window, rows=rows))
    assert paths_of(draft) == best_first(device, rows, window)
    assert len(draft.token_ids) == rows
    assert list(parents_of(draft)) == sorted(parents_of(draft)), "breadth first"
    assert draft.distribution is None


def test_the_price_of_an_order_ends_it_early(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", GREEDY)
    engine.open(device.opening(), TERMS)
    request = device.request(4, rows=8)
    whole = paths_of(draft_of(engine, request))
    sizes = [
        len(draft_of(engine, replace(request, round=number, price=price)).token_ids)
        for number, price in enumerate((DraftPrice(0.02), DraftPrice(0.3), DraftPrice(1.0)), 2)
    ]
    assert len(whole) >= sizes[0] > sizes[1] > sizes[2] == 0


@PARAMS
def test_kv_of_the_accepted_path_serves_the_next_block(make_drafter: MakeDrafter, params: SamplingParams) -> None:
    model = tiny_llama()
    engine, device, passes = make_drafter(model), Device("a", params), Passes(model)
    engine.open(device.opening(), TERMS)
    rng = random.Random(5)
    for number in range(6):
        draft = draft_of(engine, device.request(4, rows=7))
        computed = passes.taken()
        fresh = make_drafter()
        fresh.open(device.opening(), TERMS)
        twin = Device("a", params)
        twin.tokens, twin.known = list(device.tokens), len(device.tokens)
        assert draft == draft_of(fresh, twin.request(4, rows=7)) or number
        assert paths_of(draft) == best_first(device, 7, 4)
        inner = len(set(parents_of(draft)) - {-1})
        assert inner <= computed - (len(PROMPT) if not number else 1) <= 3 * 6 + 1
        deepest = max(range(len(draft.token_ids)), key=lambda node: len(path_tokens(draft, node)))
        device.tokens += [*path_tokens(draft, deepest)[: rng.randint(0, 4)], rng.randrange(VOCAB)]


def test_it_shares_passes_and_scarce_memory(make_drafter: MakeDrafter) -> None:
    rng = random.Random(7)
    scarce = make_drafter(blocks=30)
    plans: Sequence[tuple[int, tuple[int, ...], int]] = [(3, (), 5), (0, (2, 2), 0), (4, (), 0)]
    devices = [
        Device(f"d{i}", [SAMPLED, GREEDY][i % 2], tuple(rng.randrange(VOCAB) for _ in range(rng.randint(5, 30))))
        for i in range(6)
    ]
    for device in devices:
        scarce.open(device.opening(), TERMS)
    for _ in range(3):
        expected = {}
        for i, device in enumerate(devices):
            window, expansion, rows = plans[i % 3]
            alone = make_drafter()
            alone.open(device.opening(), TERMS)
            twin = Device(device.name, device.params, device.prompt)
            twin.tokens, twin.known = list(device.tokens), len(device.tokens)
            expected[device.name] = draft_of(alone, twin.request(window, expansion, rows=rows))
            scarce.submit(device.request(window, expansion, rows=rows))
        answers = answers_of(scarce)
        for device in devices:
            answer, wanted = answers[device.name], expected[device.name]
            assert isinstance(answer, Draft)
            assert (answer.token_ids, answer.parents) == (wanted.token_ids, wanted.parents)
            device.tokens += [*wanted.token_ids[:1], rng.randrange(VOCAB)]
    assert scarce.usage().evictions > 0


def test_a_nearly_full_context_makes_it_shallower(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", GREEDY, (1,) * 254)
    engine.open(device.opening(), TERMS)
    assert paths_of(draft_of(engine, device.request(5, rows=6))) == best_first(device, 6, 2)
    device.tokens += [7] * 2
    draft = draft_of(engine, device.request(5, rows=6))
    assert (draft.token_ids, draft.parents) == ((), ())


def test_memory_that_does_not_hold_its_nodes_makes_it_shallower(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(blocks=4), Device("a", GREEDY)
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(8, rows=8))
    assert paths_of(draft) == best_first(device, 8, 2), "7 of 16 slots, and up to 7 for each layer behind the first"


def test_tokens_that_cannot_be_said_have_no_row(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", SamplingParams(temperature=1.0, seed=1, top_k=2))
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(1, rows=5))
    assert len(draft.token_ids) == 2


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name not in growing_protocols()])
def test_what_a_ratio_rule_has_drawn_is_not_chosen_from(make_drafter: MakeDrafter, protocol: str) -> None:
    engine, device = make_drafter(), Device("a", SAMPLED, protocol=protocol)
    engine.open(device.opening(), TERMS)
    request = device.request(2, rows=4)
    with pytest.raises(UnsupportedBlockError, match=f"dynamic trees .token_ids., found {protocol}"):
        engine.submit(request)
    assert not engine.busy
