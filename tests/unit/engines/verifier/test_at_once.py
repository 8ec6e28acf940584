"""An engine whose logits are on a device of its own: the same outcomes, and two looks at that device for a pass."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch.utils._python_dispatch import TorchDispatchMode

from outrider.contracts.exchanged import Deferral
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, Outcome, Resolution
from outrider.engines.forward_model import Move, PassResult, Segment
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.torch.verifier import TorchVerifier
from outrider.engines.verifier.engine import PagedVerifier
from outrider.sampling.device_tensors import Readback, everywhere_at_once
from tests.unit.engines.conftest import BLOCK_TOKENS, VOCAB, loaded
from tests.unit.engines.fake_device import FakeDevice
from tests.unit.engines.reference import Client
from tests.unit.engines.semantic_device import ThresholdJudge, hidden_states
from tests.unit.engines.verifier.test_machine import BLOCKS, CHUNK, VerifierMachine, exact_model

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
WAITS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique_dim", "_unique2")
HOST_READS = (
    "numpy",
    "tolist",
    "item",
    "cpu",
    "__array__",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what makes a host wait for its device: operations whose outcome it has to know, and masks as indices."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []
        self.reads = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every operation comes by here."""
        indices = args[1] if str(func).startswith(("aten.index.", "aten.index_put")) else []
        masked = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)
        if str(func).split(".")[1] in WAITS or masked:
            self.waits.append(str(func))
        return func(*args, **kwargs or {})


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Every way to numbers of a tensor but one reading of several; each of these with anything to read counts one."""
    watch, read = Watch(), Readback.read

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(torch.Tensor, name)

        def method(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            watch.waits.append(name)
            return real(tensor, *args, **kwargs)

        return method

    def counted(readback: Readback) -> None:
        watch.reads += any(tensor.numel() for tensor in readback.wanted)
        with pytest.MonkeyPatch.context() as inside:
            for name, method in real_methods.items():
                inside.setattr(torch.Tensor, name, method)
            read(readback)

    real_methods = {name: getattr(torch.Tensor, name) for name in HOST_READS}
    with monkeypatch.context() as patch, watch:
        for name in HOST_READS:
            patch.setattr(torch.Tensor, name, noted(name))
        patch.setattr(Readback, "read", counted)
        yield watch


def made(names: Sequence[str], window: int, *, prompt_logprobs: bool) -> tuple[PagedVerifier, list[Block]]:
    """An engine with a generation of each kind, none of them computed yet, and a block of each."""
    engine = PagedVerifier(
        RandomModel(),
        vocab_size=VOCAB,
        max_context_tokens=128,
        prefill_chunk_tokens=4096,
        kept_rows_bytes=2**20,
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


def test_the_watch_sees_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    row, readback = torch.arange(4.0), Readback()
    readback.ask(row)
    with watched(monkeypatch) as watch:
        assert row[row > 1].tolist() == [2.0, 3.0]
        readback.read()
        Readback().read()
    assert watch.waits == ["aten.index.Tensor", "tolist"]
    assert watch.reads == 1
