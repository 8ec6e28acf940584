"""Tiny random models and the engines under test. Another joins by adding a factory to ``VERIFIERS`` or ``DRAFTERS``."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast
from uuid import uuid4

import pytest
import torch
from _pytest.mark import ParameterSet
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from outrider.contracts.drafting import DrafterEngine
from outrider.drafting.recalibration import OnVerdict
from outrider.drafting.stopping import Stops
from outrider.drafting.stops import NeverStop, StopRule
from outrider.engines.drafter.chains_first import ChainsFirstDrafter
from outrider.engines.drafter.engine import TorchDrafter
from outrider.engines.forward_model import BranchModel, PassResult
from outrider.engines.limits import EngineLimits, MemoryBesideKv
from outrider.engines.onnx.engine import OnnxDrafter, refused_of
from outrider.engines.onnx.export import export_drafter
from outrider.engines.onnx.model import OnnxModel
from outrider.engines.segments import BlockCopy, Move, Segment
from outrider.engines.torch.linears import computes_bfloat16
from outrider.engines.torch.model import PagedModel, kv_bytes_per_token
from outrider.engines.torch.verifier import TorchVerifier
from outrider.engines.verifier.engine import PagedVerifier
from outrider.models.loading import LoadedModel
from outrider.verification.semantic import MismatchJudge
from tests.unit.drafting.always import Always
from tests.unit.engines import toy_grammar
from tests.unit.engines.table_drafter import TableDrafter, TableModel
from tests.unit.engines.toy_grammar import toy_grammars
from tests.unit.engines.vllm_models import VLLM_BLOCK_TOKENS, VLLM_MODELS, FirstBlocks

VOCAB = toy_grammar.VOCAB
BLOCK_TOKENS = 4
CONTEXT_TOKENS = 256
DEVICE = os.environ.get("OUTRIDER_TEST_DEVICE", "cpu")  # of torch's engines; elsewhere there are no others


def loaded(model: PreTrainedModel) -> LoadedModel:
    """A tiny model as engines want it, without tokenizer and names."""
    return LoadedModel(
        tokenizer=cast("Any", None),
        vocab_size=VOCAB,
        eos_token_ids=(),
        max_context_tokens=CONTEXT_TOKENS,
        name="",
        model_hash="",
        token_map_hash="",
        model=model,
    )


def placed(model: PreTrainedModel) -> PreTrainedModel:
    """It, or a copy on ``DEVICE``."""
    return model if DEVICE == "cpu" else deepcopy(model).to(DEVICE)  # type: ignore[arg-type]  # a device by name


def tiny_llama(seed: int = 0, layers: int = 2) -> LlamaForCausalLM:
    """Random weights large enough that the argmax is never a near-tie; logits are wider than the vocabulary."""
    model = deepcopy(_tiny_llama(seed, layers))
    torch.manual_seed(seed)
    return model


@cache
@torch.inference_mode(mode=False)
def _tiny_llama(seed: int, layers: int) -> LlamaForCausalLM:
    """Copies are made in a fraction of the time."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB + 7,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,  # the smallest that vLLM computes on a CPU
        max_position_embeddings=256,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config)
    model.eval()
    return model


class OneJudge(dict[str, MismatchJudge]):
    """Under every name."""

    def __contains__(self, name: object) -> bool:
        """If it has a judge at all."""
        return bool(len(self))

    def __missing__(self, name: str) -> MismatchJudge:
        """The judge."""
        return next(iter(self.values()))


def judges_of(judge: MismatchJudge | None) -> OneJudge:
    """By whatever name a block gives, or none."""
    return OneJudge() if judge is None else OneJudge({"": judge})


def torch_verifier(
    model: PreTrainedModel, *, blocks: int = 200, prefill_chunk_tokens: int = 16, judge: MismatchJudge | None = None
) -> TorchVerifier:
    """The torch engine with room for ``blocks`` KV blocks."""
    budget = kv_bytes_per_token(model) * BLOCK_TOKENS * blocks
    return TorchVerifier(
        loaded(placed(model)),
        EngineLimits(budget, BLOCK_TOKENS, prefill_chunk_tokens),
        judges_of(judge),
        toy_grammars(),
    )


def bfloat16_verifier(
    model: PreTrainedModel, *, blocks: int = 200, prefill_chunk_tokens: int = 16, judge: MismatchJudge | None = None
) -> TorchVerifier:
    """The torch engine in bfloat16: exact in itself, not in what it says of float32's answers."""
    return torch_verifier(model.bfloat16(), blocks=blocks, prefill_chunk_tokens=prefill_chunk_tokens, judge=judge)


class BranchedModel:
    """The torch model as one that takes trees path by path, and copies whole blocks."""

    def __init__(self, model: PreTrainedModel, blocks: int) -> None:
        self._model = PagedModel(model, blocks, BLOCK_TOKENS)
        self.total_blocks, self.block_tokens, self.no_logits = blocks, BLOCK_TOKENS, self._model.no_logits

    def forward(
        self, segments: Sequence[Segment], copies: Sequence[BlockCopy] = (), *, want_hidden: bool = False
    ) -> PassResult:
        """Copy blocks, then compute; no segment is a tree."""
        assert not any(segment.parents for segment in segments)
        size = self.block_tokens
        if copies:
            self._model.move([Move([one.source, one.target], range(size), range(size, 2 * size)) for one in copies])
        return self._model.forward(segments, want_hidden=want_hidden)


def verifier_over(
    forward: BranchModel,
    model: PreTrainedModel,
    *,
    blocks: int,
    prefill_chunk_tokens: int,
    judge: MismatchJudge | None,
) -> PagedVerifier:
    """The paged engine over any model, with the limits of ``torch_verifier``."""
    return PagedVerifier(
        forward,
        vocab_size=VOCAB,
        max_context_tokens=CONTEXT_TOKENS,
        prefill_chunk_tokens=prefill_chunk_tokens,
        memory=MemoryBesideKv.of(kv_bytes_per_token(model) * forward.block_tokens * blocks),
        judges=judges_of(judge),
        grammars=toy_grammars(),
    )


def branched_verifier(
    model: PreTrainedModel, *, blocks: int = 200, prefill_chunk_tokens: int = 16, judge: MismatchJudge | None = None
) -> PagedVerifier:
    """The paged engine over a model without tree masks."""
    forward = BranchedModel(model, blocks)
    return verifier_over(forward, model, blocks=blocks, prefill_chunk_tokens=prefill_chunk_tokens, judge=judge)


def vllm_verifier(
    model: PreTrainedModel, *, blocks: int = 200, prefill_chunk_tokens: int = 16, judge: MismatchJudge | None = None
) -> PagedVerifier:
    """The paged engine over vLLM's blocks as whoever used them before has left them."""
    forward = FirstBlocks(VLLM_MODELS.started(model), blocks)
    return verifier_over(forward, model, blocks=blocks, prefill_chunk_tokens=prefill_chunk_tokens, judge=judge)


class MakesVerifier(Protocol):
    """A function that makes an engine of ``blocks`` KV blocks."""

    def __call__(
        self,
        model: PreTrainedModel,
        *,
        blocks: int = 200,
        prefill_chunk_tokens: int = 16,
        judge: MismatchJudge | None = None,
    ) -> PagedVerifier: ...


@dataclass(frozen=True)
class MakeVerifier:
    """Makes engines of one kind.

    Attributes:
        make: see ``__call__``.
        block_tokens: positions in one of their KV blocks.
        stop: ends what the engines made so far share, and so these.
        narrow: whether they round otherwise than plain transformers; then they are measured by themselves.
    """

    make: MakesVerifier
    block_tokens: int = BLOCK_TOKENS
    stop: Callable[[], None] = lambda: None
    narrow: bool = False

    def __call__(
        self,
        model: PreTrainedModel,
        *,
        blocks: int = 200,
        prefill_chunk_tokens: int = 16,
        judge: MismatchJudge | None = None,
    ) -> PagedVerifier:
        """An engine with room for ``blocks`` KV blocks."""
        return self.make(model, blocks=blocks, prefill_chunk_tokens=prefill_chunk_tokens, judge=judge)

    def blocks_of(self, positions: int) -> int:
        """KV blocks that hold as many positions."""
        return -(-positions // self.block_tokens)


_ON_CPU = {
    "torch": MakeVerifier(torch_verifier),
    "branched": MakeVerifier(branched_verifier),
    "vllm": MakeVerifier(vllm_verifier, VLLM_BLOCK_TOKENS, VLLM_MODELS.stop),
}
VERIFIERS = _ON_CPU if DEVICE == "cpu" else {"torch": _ON_CPU["torch"]}
# Those whose answers are what they say alone, in one pass after another; so are those of the others.
EXACT_VERIFIERS = {**VERIFIERS, "bfloat16": MakeVerifier(bfloat16_verifier, narrow=True)}
# In one process, because starting vLLM takes longer than these tests.
ON_VLLM = pytest.mark.xdist_group("vllm")


IN_BFLOAT16 = pytest.mark.skipif(
    DEVICE == "cpu" and not computes_bfloat16(), reason="this processor does not compute in bfloat16"
)
_MARKS = {"vllm": ON_VLLM, "bfloat16": IN_BFLOAT16}


def _named(verifiers: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(name, marks=_MARKS.get(name, ())) for name in sorted(verifiers)]


@pytest.fixture(params=_named(VERIFIERS))
def make_verifier(request: pytest.FixtureRequest) -> MakeVerifier:
    """Each engine in turn."""
    return VERIFIERS[request.param]


@pytest.fixture(params=_named(EXACT_VERIFIERS))
def make_exact_verifier(request: pytest.FixtureRequest) -> MakeVerifier:
    """Each in turn, in each type; see ``reference.alone``."""
    return EXACT_VERIFIERS[request.param]


@pytest.fixture(scope="session", autouse=True)
def stop_vllm() -> Iterator[None]:
    """Leave no engine running behind the last test."""
    yield
    VLLM_MODELS.stop()


class MakesDrafter(Protocol):
    """A function that makes a drafter of ``blocks`` KV blocks, where it has any."""

    def __call__(
        self, model: Any, *, blocks: int = 200, prefill_chunk_tokens: int = 16, rule: StopRule | None = None
    ) -> DrafterEngine: ...


def torch_drafter(
    model: PreTrainedModel,
    *,
    blocks: int = 200,
    prefill_chunk_tokens: int = 16,
    rule: StopRule | None = None,
    stops: Stops | None = None,
    on_verdict: OnVerdict | None = None,
) -> TorchDrafter:
    """The torch drafter with room for ``blocks`` KV blocks."""
    budget = kv_bytes_per_token(model) * BLOCK_TOKENS * blocks
    limits = EngineLimits(budget, BLOCK_TOKENS, prefill_chunk_tokens)
    return TorchDrafter(loaded(placed(model)), limits, stops or Always(rule or NeverStop()), on_verdict)


@dataclass(frozen=True)
class MakeDrafter:
    """Makes drafters of one kind.

    Attributes:
        make: see ``__call__``.
        model: what they draft with.
        whole: whether they draft by every protocol over KV of limited size; if not, chains of token ids.
        scarce_blocks: KV blocks that hold some of five texts; None: it has no KV.
        stops: whether they take a rule that stops chains.
    """

    make: MakesDrafter
    model: Callable[[], PreTrainedModel | TableModel] = tiny_llama
    whole: bool = True
    scarce_blocks: int | None = 26
    stops: bool = True

    def __call__(
        self,
        model: PreTrainedModel | None = None,
        *,
        blocks: int = 200,
        prefill_chunk_tokens: int = 16,
        rule: StopRule | None = None,
    ) -> DrafterEngine:
        """An engine over this model, or over one of its own."""
        return self.make(model or self.model(), blocks=blocks, prefill_chunk_tokens=prefill_chunk_tokens, rule=rule)


_EXPORTED = TemporaryDirectory(prefix="outrider-exported-")


def onnx_drafter(
    model: PreTrainedModel,
    *,
    blocks: int = 200,
    prefill_chunk_tokens: int = 16,
    rule: StopRule | None = None,
    on_verdict: OnVerdict | None = None,
) -> OnnxDrafter:
    """The onnx drafter over the model in float32, which draws what torch draws, with room for ``blocks`` KV blocks."""
    file = Path(_EXPORTED.name) / f"{uuid4().hex}.onnx"
    export_drafter(loaded(model), file, quantise=False)
    exported = OnnxModel(file, 1)
    limits = EngineLimits(exported.drafter.kv.token_bytes * BLOCK_TOKENS * blocks, BLOCK_TOKENS, prefill_chunk_tokens)
    return OnnxDrafter(exported, limits, Always(rule or NeverStop()), on_verdict)


def chains_first_drafter(
    model: PreTrainedModel, *, blocks: int = 200, prefill_chunk_tokens: int = 16, rule: StopRule | None = None
) -> ChainsFirstDrafter:
    """Both; the torch drafter is built by the first order that needs it. Onnx has memory for one text at least."""
    limits: Any = {"prefill_chunk_tokens": prefill_chunk_tokens, "rule": rule}
    return ChainsFirstDrafter(
        onnx_drafter(model, blocks=max(blocks, CONTEXT_TOKENS // BLOCK_TOKENS), **limits),
        lambda request: refused_of(request) is None,
        lambda: torch_drafter(model, blocks=blocks, **limits),
    )


DRAFTERS = {
    "chains first": MakeDrafter(chains_first_drafter, scarce_blocks=3 * CONTEXT_TOKENS // BLOCK_TOKENS),
    "onnx": MakeDrafter(onnx_drafter, whole=False, scarce_blocks=3 * CONTEXT_TOKENS // BLOCK_TOKENS),  # whole rows
    "torch": MakeDrafter(torch_drafter),
    "table": MakeDrafter(
        lambda model, **_: TableDrafter(model),
        lambda: TableModel(VOCAB),
        whole=False,
        scarce_blocks=None,
        stops=False,
    ),
}
EVERY_DRAFTER = pytest.mark.parametrize("make_drafter", DRAFTERS.values(), ids=DRAFTERS.keys())
WHOLE_DRAFTERS = pytest.mark.parametrize(
    "make_drafter", [pytest.param(one, id=name) for name, one in DRAFTERS.items() if one.whole]
)
STOPPING_DRAFTERS = pytest.mark.parametrize(
    "make_drafter", [pytest.param(one, id=name) for name, one in DRAFTERS.items() if one.stops]
)
DRAFTERS_WITH_KV = pytest.mark.parametrize(
    "make_drafter", [pytest.param(one, id=name) for name, one in DRAFTERS.items() if one.scarce_blocks is not None]
)
