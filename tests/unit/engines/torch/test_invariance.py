"""On a CPU a row's logits are the same bits however its sequence is cut into passes, and in any company."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from outrider.engines.forward_model import MaskedModel
from outrider.engines.kinds import VerifierSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.registry import VERIFIERS
from outrider.engines.segments import Move, Segment
from outrider.engines.torch.fused.model import FusedModel
from outrider.engines.torch.fused.products import can_multiply, multiply_linears
from outrider.engines.torch.linears import (
    PLAIN,
    LinearKernel,
    agreeing_linear_rows,
    can_pack,
    pack_linears,
    unpackable_weights,
)
from outrider.engines.torch.model import PagedModel
from outrider.engines.torch.served import target_model
from outrider.engines.torch.sizes import LARGEST, Sizes, agreeing

VOCAB, LENGTH = 512, 300
SHAPE: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2}
HEADS: dict[str, Any] = {"num_attention_heads": 6, "num_key_value_heads": 2, "initializer_range": 0.3}


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SHAPE, **HEADS, head_dim=32, tie_word_embeddings=True))


def qwen2() -> PreTrainedModel:
    """With biases."""
    return Qwen2ForCausalLM(Qwen2Config(**SHAPE, **HEADS))


def qwen3() -> PreTrainedModel:
    """With norms on queries and keys, whose heads are narrow."""
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, **HEADS, head_dim=8))


def gpt2() -> PreTrainedModel:
    """With layers that are no ``Linear``, and one head per key."""
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_embd=96, n_layer=2, n_head=4, initializer_range=0.3))


class Served:
    """A model, and what serves it."""

    def __init__(
        self,
        make: Callable[[], PreTrainedModel],
        serve: Callable[[PreTrainedModel, int, int], MaskedModel],
        block_tokens: int = 8,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        self.make, self._serve, self._block_tokens, self._dtype = make, serve, block_tokens, dtype

    def __call__(self) -> MaskedModel:
        """On one thread."""
        torch.manual_seed(0)
        made = self.make().eval()
        model = made.bfloat16() if self._dtype is torch.bfloat16 else made
        if not (can_pack(model) or can_multiply(model)):
            pytest.skip("this processor does not compute in this type")
        return self._serve(model, 200, self._block_tokens)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def packed(model: PreTrainedModel, total_blocks: int, block_tokens: int) -> MaskedModel:
    """Over linear layers of a library."""
    pack_linears(model)
    return FusedModel(model, total_blocks, block_tokens)


def in_parts(model: PreTrainedModel, total_blocks: int, block_tokens: int) -> MaskedModel:
    """Passes of 72 rows and more are made by three threads."""
    multiply_linears(model)
    return FusedModel(model, total_blocks, block_tokens, parts=3)


def packed_in_parts(model: PreTrainedModel, total_blocks: int, block_tokens: int) -> MaskedModel:
    """Likewise, over linear layers of a library."""
    pack_linears(model)
    return FusedModel(model, total_blocks, block_tokens, parts=3)


def torchs_own(model: PreTrainedModel, total_blocks: int, block_tokens: int) -> MaskedModel:
    """Over linear layers as any device has them, in numbers of rows that agree there."""
    pack_linears(model, kernel=PLAIN)
    return PagedModel(model, total_blocks, block_tokens)


NARROW = [
    *(pytest.param(Served(make, PagedModel), id=f"{make.__name__}-paged") for make in (llama, qwen3, gpt2)),
    *(pytest.param(Served(make, packed), id=f"{make.__name__}-packed") for make in (llama, qwen2, qwen3)),
    *(pytest.param(Served(make, target_model), id=f"{make.__name__}-served") for make in (llama, qwen2, qwen3)),
    pytest.param(Served(qwen2, torchs_own), id="qwen2-torchs-own"),
    pytest.param(Served(llama, target_model, block_tokens=16), id="llama-served-lanes"),
    pytest.param(Served(llama, in_parts), id="llama-parts"),
    pytest.param(Served(llama, packed_in_parts), id="llama-packed-parts"),
]
WIDE = [
    pytest.param(Served(qwen2, target_model, dtype=torch.float32), id="qwen2-float32"),
    pytest.param(Served(llama, in_parts, block_tokens=16, dtype=torch.float32), id="llama-float32-parts"),
]
EVERY_MODEL = pytest.mark.parametrize("served", [*NARROW, *WIDE])
TOKENS = random.Random(0).choices(range(VOCAB), k=LENGTH)
BLOCKS = list(range(1, 40))


def cut(rng: random.Random, most: int) -> list[int]:
    sizes = list[int]()
    while (left := LENGTH - sum(sizes)) > 0:
        sizes.append(min(rng.randint(1, most), left))
    return sizes


def strangers(rng: random.Random) -> list[Segment]:
    """What others compute in the same pass, over blocks that are of no interest any more."""
    found = []
    for number in range(rng.randrange(5)):
        count = rng.randint(1, 20)
        blocks = range(50 + 10 * number, 60 + 10 * number)
        found.append(Segment([rng.randrange(VOCAB) for _ in range(count)], rng.randrange(50), blocks, count))
    return found


def logits_in_passes(model: MaskedModel, sizes: Sequence[int], rng: random.Random | None = None) -> torch.Tensor:
    """``[LENGTH, VOCAB]`` of the text, cut like this; with a generator in random company."""
    rows, start = list[torch.Tensor](), 0
    for size in sizes:
        segments = [] if rng is None else strangers(rng)
        before = 0 if rng is None else rng.randint(0, len(segments))
        first = sum(len(segment.token_ids) for segment in segments[:before])
        segments.insert(before, Segment(TOKENS[start : start + size], start, BLOCKS, size))
        rows.append(model.forward(segments).logits[first : first + size])
        start += size
    return torch.cat(rows)


@EVERY_MODEL
def test_cuts_and_company_change_no_bit(served: Served) -> None:
    model, rng = served(), random.Random(1)
    expected = logits_in_passes(model, [LENGTH])
    for sizes in ([1] * LENGTH, cut(rng, 3), cut(rng, 20), cut(rng, 150)):
        assert torch.equal(logits_in_passes(model, sizes), expected)
        assert torch.equal(logits_in_passes(model, sizes, rng), expected)


NODES = [11, 12, 13, 14, 15, 16]
PARENTS = [-1, -1, 0, 0, 1, 4]
PATHS = [[0], [1], [0, 2], [0, 3], [1, 4], [1, 4, 5]]


@EVERY_MODEL
@pytest.mark.parametrize("prefix", [5, 126, 200])  # one crosses to where more keys are seen
def test_a_tree_says_what_its_paths_say(served: Served, prefix: int) -> None:
    """Bit for bit: each node's row, and what follows a path that was moved to its positions."""
    model = served()
    model.forward([Segment(TOKENS[: prefix - 2], 0, BLOCKS, 0)])
    whole = Segment([*TOKENS[prefix - 2 : prefix], *NODES], prefix - 2, BLOCKS, len(NODES), PARENTS)
    rows = model.forward([whole]).logits
    alone = list(range(100, 150))
    for node, path in enumerate(PATHS):
        tokens = [*TOKENS[:prefix], *(NODES[one] for one in path)]
        assert torch.equal(model.forward([Segment(tokens, 0, alone, 1)]).logits[0], rows[node])
    model.move([Move(BLOCKS, [prefix + node for node in PATHS[5]], range(prefix, prefix + 3))])
    expected = model.forward([Segment([20, 21], prefix + 3, alone, 2)]).logits
    assert torch.equal(model.forward([Segment([20, 21], prefix + 3, BLOCKS, 2)]).logits, expected)


@pytest.mark.parametrize("served", NARROW)
def test_the_same_bits_are_the_right_ones(served: Served) -> None:
    """Of a text in chunks and of a tree behind it: as near to float32's as what plain transformers say in bfloat16."""
    torch.manual_seed(0)
    plain = served.make().bfloat16().eval()
    path = torch.tensor([[*TOKENS, *(NODES[one] for one in PATHS[5])]])
    with torch.inference_mode():
        narrow = plain(input_ids=path).logits[0].float()
        expected = plain.float()(input_ids=path).logits[0]
    model = served()
    rows = logits_in_passes(model, [7, 150, LENGTH - 157], random.Random(2))
    nodes = model.forward([Segment(NODES, LENGTH, BLOCKS, len(NODES), PARENTS)]).logits
    found = torch.cat([rows, nodes[PATHS[5]]]).float()
    assert (found - expected).abs().mean() < 1.1 * (narrow - expected).abs().mean()


@pytest.mark.parametrize("make", [llama, qwen2, qwen3, gpt2])
def test_packing_leaves_no_weights_behind(make: Callable[[], PreTrainedModel]) -> None:
    model = make().bfloat16().eval()
    if not can_pack(model):
        pytest.skip("this processor does not compute in bfloat16")
    tokens = torch.tensor([TOKENS[:50]])
    with torch.inference_mode():
        expected = model(input_ids=tokens).logits
        pack_linears(model)
        found = model(input_ids=tokens).logits
    torch.testing.assert_close(found, expected, atol=0.15, rtol=0.02)
    tables = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Embedding)}
    left = {name for name, weight in model.named_parameters() if weight.ndim > 1}
    assert left <= {f"{name}.weight" for name in tables}


def qwen3_moe() -> PreTrainedModel:
    """Whose experts are stacked in one tensor."""
    experts: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**SHAPE, **HEADS, **experts))


def test_weights_that_cannot_be_packed_are_named() -> None:
    assert "model.layers.0.mlp.experts.down_proj" in unpackable_weights(qwen3_moe())
    assert not unpackable_weights(llama())


def test_a_model_that_cannot_be_packed_is_not_taken_for_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    for make, dtype in ((llama, "bfloat16"), (qwen3_moe, "float32")):
        make().save_pretrained(folder := tmp_path / make.__name__)
        spec = VerifierSpec("torch", str(folder), "auto", "cpu", 1, EngineLimits(2**20))
        assert VERIFIERS["torch"].settled(spec).dtype == dtype
    Served(qwen3_moe, PagedModel)()
    assert "may depend on the batch" in caplog.text


def test_a_processor_that_does_not_compute_in_a_narrow_type_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("outrider.engines.torch.model.can_pack", lambda _model: False)
    PagedModel(llama().eval(), total_blocks=8, block_tokens=8)
    assert not caplog.text
    PagedModel(llama().bfloat16().eval(), total_blocks=8, block_tokens=8)
    assert "may depend on the batch on this CPU: use float32" in caplog.text


def test_sizes_at_which_a_row_depends_on_its_company_are_left_out() -> None:
    """A kernel that is different for a row alone, for more than 40, and for odd places of 6."""

    def kernel(rows: torch.Tensor) -> torch.Tensor:
        count = len(rows)
        if count == 1 or 40 < count < LARGEST:
            return rows + 1
        return rows + (torch.arange(count) % 2 == 1)[:, None] if count == 6 else rows.clone()

    sizes = agreeing(kernel, torch.arange(float(LARGEST))[:, None])
    assert sizes.counts == (2, 3, 4, 5, 7, 8, 12, 16, 20, 24, 28, 32, 36, 40, LARGEST)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (0, []),
        (1, [(0, 1, 2)]),
        (9, [(0, 9, 16)]),
        (LARGEST, [(0, LARGEST, LARGEST)]),
        (LARGEST + 3, [(0, LARGEST, LARGEST), (LARGEST, LARGEST + 3, 8)]),
    ],
)
def test_rows_are_filled_up_to_the_next_size(rows: int, expected: list[tuple[int, int, int]]) -> None:
    pieces = Sizes((2, 8, 16, LARGEST)).pieces(rows)
    assert [(piece.first, piece.last, piece.size) for piece in pieces] == expected


def test_a_trial_tells_short_sums_in_another_order() -> None:
    """Few of 48 numbers are rounded otherwise."""

    def multiplied(rows: torch.Tensor, weight: torch.Tensor, _bias: object) -> torch.Tensor:
        sums, step = torch.zeros(len(rows), len(weight)), 16 if len(rows) == 1 else 48
        for first in range(0, weight.shape[1], step):
            part = torch.zeros_like(sums)
            for at in range(first, first + step):
                part += rows[:, at, None].float() * weight[:, at].float()
            sums += part
        return sums.bfloat16()

    kernel = LinearKernel(lambda weight: weight, multiplied)
    assert agreeing_linear_rows(kernel, torch.empty(8, 48).bfloat16(), has_bias=False).counts[0] == 2
