"""An engine whose logits are on a device of its own: the same outcomes, and two looks at that device for a pass."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import settings

from outrider.contracts.exchanged import Deferral
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, Outcome, Resolution
from outrider.engines.forward_model import PassResult
from outrider.engines.limits import EngineLimits, MemoryBesideKv
from outrider.engines.segments import Move, Segment
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.torch.verifier import TorchVerifier
from outrider.engines.verifier.engine import PagedVerifier
from outrider.sampling.device_tensors import everywhere_at_once
from tests.unit.engines.conftest import BLOCK_TOKENS, VOCAB, loaded
from tests.unit.engines.fake_device import FakeDevice
from tests.unit.engines.reference import Client
from tests.unit.engines.semantic_device import ThresholdJudge, hidden_states
from tests.unit.engines.verifier.test_machine import BLOCKS, CHUNK, VerifierMachine, exact_model
from tests.unit.engines.watching import watched

GREEDY, SAMPLED = SamplingParams(temperature=0.0), SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.001)
PENALISED = SamplingParams(repetition_penalty=1.2, frequency_penalty=0.3, logit_bias=((3, 2.0), (3, 1.0), (9, -1.0)))


class AtOnce(TorchVerifier):
    """The torch engine, deciding as it does on a device of its own."""

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        with everywhere_at_once():
            return super().verify(blocks, resolutions)


class AtOnceMachine(VerifierMachine):
    """Any interleaving of calls, checked by what the target says alone."""

    def make_engine(self) -> PagedVerifier:
        limits = EngineLimits(kv_bytes_per_token(exact_model()) * BLOCK_TOKENS * BLOCKS, BLOCK_TOKENS, CHUNK)
        return AtOnce(loaded(exact_model()), limits)


TestAtOnceMachine = AtOnceMachine.TestCase
TestAtOnceMachine.settings = settings(max_examples=60, stateful_step_count=25)


class RandomModel:
    """A ``MaskedModel`` of which pass n says what a generator of seed n does."""

    block_tokens, no_logits, total_blocks = 16, torch.zeros(0, VOCAB), 256

    def __init__(self) -> None:
        self._passes = 0

    def forward(self, segments: Sequence[Segment], *, want_hidden: bool = False) -> PassResult:
        self._passes += 1
        rng, rows = torch.Generator().manual_seed(self._passes), sum(segment.logit_rows for segment in segments)
        logits = torch.randn(rows, VOCAB, generator=rng) * 3
        return PassResult(logits, torch.randn(rows, 4, generator=rng) if want_hidden else None)

    def move(self, moves: Sequence[Move]) -> None:
        """Nothing is kept."""


def rows_of_nothing(tokens: tuple[int, ...]) -> torch.Tensor:
    """What a device's model says: a function of the tokens, as the verifier's is not."""
    rng = torch.Generator().manual_seed(hash(tokens) % 2**32)
    return torch.randn(len(tokens[-1:]), VOCAB, generator=rng)


Draft = Callable[[Client, FakeDevice, int], Block]


def plain(client: Client, device: FakeDevice, window: int) -> Block:
    return client.block(device.chain(client.tokens, window))


def judged(client: Client, device: FakeDevice, window: int) -> Block:
    block = client.block(device.chain(client.tokens, window), rule=AcceptanceRule.SEMANTIC)
    return replace(block, hidden=hidden_states(*np.linspace(-1.0, 2.0, window))) if window % 8 == 0 else block


def sparse(client: Client, device: FakeDevice, window: int) -> Block:
    draft = device.chain(client.tokens, window)
    return client.block(draft, rule=AcceptanceRule.RATIO, distribution=device.sparse() if draft else None)


def dense(client: Client, device: FakeDevice, window: int) -> Block:
    draft = device.chain(client.tokens, window)
    return client.block(draft, rule=AcceptanceRule.RATIO, distribution=device.dense() if draft else None)


def tree(client: Client, device: FakeDevice, window: int) -> Block:
    if not window:
        return client.block((), rule=AcceptanceRule.RATIO_DISTINCT)
    grown = device.tree(client.tokens, (2, 3)[: window // 4], distinct=True)
    rule = AcceptanceRule.RATIO_DISTINCT
    return client.block(grown.draft, parents=grown.parents, rule=rule, distribution=grown.distribution)


def deferred(client: Client, device: FakeDevice, window: int) -> Block:
    draft = device.chain(client.tokens, window)
    sent, asked = device.scalars(draft) if draft else None, Deferral(candidates=window % 3)
    return client.block(draft, bonus=bool(window % 8), rule=AcceptanceRule.RATIO, distribution=sent, deferral=asked)


KINDS: dict[str, tuple[SamplingParams, Draft]] = {
    "greedy": (GREEDY, plain),
    "shared noise": (SAMPLED, plain),
    "penalised": (PENALISED, plain),
    "semantic": (GREEDY, judged),
    "sparse": (SAMPLED, sparse),
    "dense": (PENALISED, dense),
    "tree": (SAMPLED, tree),
    "deferred": (SAMPLED, deferred),
}


def made(names: Sequence[str], window: int, *, prompt_logprobs: bool) -> tuple[PagedVerifier, list[Block]]:
    """An engine with a generation of each kind, none of them computed yet, and a block of each."""
    engine = PagedVerifier(
        RandomModel(),
        vocab_size=VOCAB,
        max_context_tokens=128,
        prefill_chunk_tokens=4096,
        memory=MemoryBesideKv(2**20),
        judges={"": ThresholdJudge()},
    )
    blocks: list[Block] = []
    for index, name in enumerate(names):
        params, draft = KINDS[name]
        client = Client(
            f"{name} {index}",
            [index, 7, 9, index + 20, 7],
            replace(params, seed=index),
            logprobs=index % 3 or None,
            prompt_logprobs=prompt_logprobs and index % 2 == 0,
        )
        engine.open(client.opening())
        blocks.append(draft(client, FakeDevice(rows_of_nothing, index), window))
    return engine, blocks


@pytest.mark.parametrize("window", [0, 4, 8])
@pytest.mark.parametrize("names", [*([name] for name in KINDS), [*KINDS, *KINDS]], ids=", ".join)
@pytest.mark.parametrize("prompt_logprobs", [False, True])
def test_a_pass_reads_the_device_twice_at_most_and_decides_the_same(
    names: list[str], window: int, monkeypatch: pytest.MonkeyPatch, *, prompt_logprobs: bool
) -> None:
    engine, blocks = made(names, window, prompt_logprobs=prompt_logprobs)
    expected = engine.verify(blocks)
    engine, blocks = made(names, window, prompt_logprobs=prompt_logprobs)
    with everywhere_at_once(), watched(monkeypatch) as watch:
        found = engine.verify(blocks)
    assert found == expected
    assert watch.waits == []
    assert 1 <= watch.reads <= 2
