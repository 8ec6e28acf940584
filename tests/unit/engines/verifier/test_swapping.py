"""KV that had to make room is copied to host memory and back: the same bits, and the same answers."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from outrider.contracts.requests import SamplingParams
from outrider.engines.kv.host_cache import HostCopy
from outrider.engines.limits import EngineLimits, MemoryBesideKv
from outrider.engines.segments import Segment
from outrider.engines.torch.fused.model import FusedModel
from outrider.engines.torch.model import PagedModel, kv_bytes_per_token
from outrider.engines.torch.served import target_model
from outrider.engines.torch.swapping import swap_prices
from outrider.engines.torch.verifier import TorchVerifier
from outrider.engines.verifier.engine import PagedVerifier
from tests.unit.engines.conftest import BLOCK_TOKENS, VOCAB, loaded, tiny_llama
from tests.unit.engines.reference import Client, generate

GREEDY, SEEDED = SamplingParams(temperature=0.0), SamplingParams(temperature=0.8, seed=5)
TYPES = {"fused": torch.float32, "narrow": torch.bfloat16, "paged": torch.float64}


@pytest.fixture(params=list(TYPES.values()), ids=list(TYPES))
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    made: Any = tiny_llama()
    return cast("PreTrainedModel", made.to(request.param))


def guessed(guesses: random.Random, _: Client) -> list[int]:
    """A draft that is hardly ever right."""
    return [guesses.randrange(VOCAB) for _ in range(3)]


def swapping(model: PreTrainedModel, blocks: int, host_blocks: int, chunk_tokens: int = 16) -> PagedVerifier:
    served = target_model(model, blocks, BLOCK_TOKENS)
    served.give_host_memory(host_blocks)
    return PagedVerifier(
        served,
        vocab_size=VOCAB,
        max_context_tokens=256,
        prefill_chunk_tokens=chunk_tokens,
        memory=MemoryBesideKv(2**20, host_blocks),
    )


def kv_of(model: FusedModel | PagedModel, block: int) -> list[np.ndarray]:
    """All that a block holds."""
    positions, found = slice(block * model.block_tokens, (block + 1) * model.block_tokens), []
    for pool in model.pools:
        held = pool if isinstance(pool, np.ndarray) else pool.float().numpy()  # numpy has no bfloat16
        found.append((held[:, block] if held.ndim == 4 else held[:, positions]).copy())  # the fused model's keys: 4
    return found


def same(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(left, right, strict=True))


def test_a_block_comes_back_bit_by_bit_wherever_it_goes(model: PreTrainedModel) -> None:
    served = target_model(model, 6, BLOCK_TOKENS)
    served.give_host_memory(3)
    tokens = [(7 * at) % VOCAB for at in range(3 * BLOCK_TOKENS)]
    served.forward([Segment(tokens, 0, [0, 1, 2], 1)])
    before = [kv_of(served, block) for block in range(3)]
    assert not same(before[0], before[1])
    served.swap([HostCopy(0, 2, out=True), HostCopy(1, 0, out=True), HostCopy(2, 1, out=True)])
    served.forward([Segment([5] * 3 * BLOCK_TOKENS, 0, [0, 1, 2], 1)])
    assert not same(kv_of(served, 0), before[0])
    # In order: what block 3 held on its way is what slot 1 gets.
    served.swap(
        [HostCopy(3, 2, out=False), HostCopy(0, 0, out=False), HostCopy(3, 1, out=True), HostCopy(5, 1, out=False)]
    )
    for block, was in ((3, 0), (0, 1), (5, 0)):
        assert same(kv_of(served, block), before[was])


@pytest.mark.parametrize("host_blocks", [60, 9], ids=["for_all", "for_some"])
@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_who_says_what_does_not_depend_on_swapping(
    model: PreTrainedModel, params: SamplingParams, host_blocks: int
) -> None:
    """KV for one or two of five: the same tokens as with room for all, and as computed again."""
    rng, said, counted = random.Random(3), [], []
    prompts = [[rng.randrange(VOCAB) for _ in range(40)] for _ in range(5)]
    for blocks, host in ((200, 0), (96 // BLOCK_TOKENS, 0), (96 // BLOCK_TOKENS, host_blocks)):
        engine = swapping(model, blocks, host)
        clients = [Client(f"c{number}", prompt, params) for number, prompt in enumerate(prompts)]
        generate(engine, clients, partial(guessed, random.Random(4)), 12)
        said.append([client.output for client in clients])
        counted.append(engine.usage())
    assert said[0] == said[1] == said[2]
    roomy, computed, swapped = counted
    assert (roomy.evictions, roomy.recomputed_tokens) == (0, 0)
    assert min(computed.evictions, computed.evicted_blocks, computed.recomputed_tokens) > 0
    assert (computed.swapped_out_blocks, swapped.host_blocks) == (0, host_blocks)
    assert min(swapped.swapped_out_blocks, swapped.swapped_in_blocks, swapped.host_used_blocks) > 0
    assert swapped.recomputed_tokens < computed.recomputed_tokens


def test_an_engine_takes_kv_from_whoever_is_due_last(model: PreTrainedModel) -> None:
    engine = swapping(model, 96 // BLOCK_TOKENS, 0)
    clients = [Client(f"c{number}", [number + 1] * 30, GREEDY) for number in range(4)]
    for client, due_at_s in zip(clients[:3], (9.0, 1.0, 5.0), strict=True):
        generate(engine, [client], lambda _: [], 1)
        engine.due(client.name, due_at_s)
    generate(engine, clients[3:], lambda _: [], 1)
    lost = dict(engine.evicted()) or {"c0": 0}
    assert set(lost) == {"c0"}
    held = engine.usage()
    assert held.evictions > 0


def ticking(seconds: Sequence[float]) -> Callable[[], float]:
    """A clock that was read so often; what lies between two readings, in turn."""
    now_s, at = 0.0, count()

    def read() -> float:
        nonlocal now_s
        number = next(at)
        if number % 2:
            now_s += seconds[min(number // 2 // 3, len(seconds) - 1)]
        return now_s

    return read


def test_prices_are_the_machines_own() -> None:
    """Each is tried three times: out, in, a chunk of 16 rows, one row."""
    served = target_model(tiny_llama(), 4, BLOCK_TOKENS)
    served.give_host_memory(2)
    prices = swap_prices(served, 2, 16, ticking([0.5, 0.25, 4.0, 1.0]))
    assert (prices.out_s, prices.in_s) == (0.25, 0.125)
    assert prices.recompute_s == pytest.approx(BLOCK_TOKENS * 3.0 / 15)
    assert prices.copying_pays == (BLOCK_TOKENS * 0.2 > 0.375)


def test_an_engine_has_host_memory_where_it_was_given_some() -> None:
    """Whether it is used, the machine decides."""
    model = tiny_llama(layers=4)
    token_bytes = kv_bytes_per_token(model)
    budget = 8 * BLOCK_TOKENS * token_bytes
    engine = TorchVerifier(loaded(model), EngineLimits(budget, BLOCK_TOKENS, 16, swap_bytes=budget))
    assert engine.usage().host_blocks in (0, 8)
    assert EngineLimits(budget, BLOCK_TOKENS).host_blocks(token_bytes) == 0
