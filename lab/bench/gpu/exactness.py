"""Number of responses that differ in batches from those alone: in float32, in bfloat16, and with fixed sizes."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from time import perf_counter

import torch

from lab.bench.exactness.company import MOST_GENERATIONS, tried
from lab.bench.exactness.reference import Target
from lab.bench.exactness.requests import Request, draw_requests
from lab.bench.gpu.random_models import SHAPES, random_model
from lab.bench.gpu.setting import Found, Setting
from outrider.engines.forward_model import BranchModel, MaskedModel
from outrider.engines.torch.attention import agreeing_rows
from outrider.engines.torch.linears import PLAIN, pack_linears
from outrider.engines.torch.model import PagedModel
from outrider.engines.torch.sizes import Sizes
from outrider.models.model_classes import PreTrainedModel

_REQUESTS, _FEW_REQUESTS = 1000, 6
_BLOCK_TOKENS, _POSITIONS = 16, 320
CONTEXT_TOKENS = 400
_TEXTS, _TEXT_TOKENS = 50, 60
Make = Callable[[PreTrainedModel, int, int], MaskedModel]


def run(setting: Setting) -> Found:
    """Answer the same requests with every kind of model, each against its own responses alone."""
    shape = shape_of(setting)
    return compared(
        {
            name: partial(make, random_model(shape, setting.device, dtype), blocks_of(_BLOCK_TOKENS), _BLOCK_TOKENS)
            for name, (dtype, make) in _KINDS.items()
        },
        setting,
    )


def compared(models: Mapping[str, Callable[[], MaskedModel | BranchModel]], setting: Setting) -> Found:
    """For each model, by its kind: its responses alone against those in batches."""
    vocab = SHAPES[shape_of(setting)]["vocab_size"]
    requests = _requests(vocab, _FEW_REQUESTS if setting.small else _REQUESTS, setting.seed)
    figures, rows, faults = dict[str, object](), list[Sequence[object]](), list[str]()
    for name, make in models.items():
        target = Target(make(), vocab, CONTEXT_TOKENS)
        began_s = perf_counter()
        counts = tried(target, requests, setting.seed)
        took_s = perf_counter() - began_s
        figures[name] = asdict(counts) | {"seconds": took_s}
        bits = f"{counts.logprob_bits} of {counts.logprobs}"
        rows.append((name, counts.requests, counts.differences, bits, f"{took_s:.1f}"))
        if counts.tokens == 0:
            faults.append(f"{name}: no token was compared")
    header = ("kind", "responses", "that differ", "log-probabilities with other bits", "s")
    return Found(header, rows, figures, faults)


def shape_of(setting: Setting) -> str:
    return "tiny" if setting.small else "30M"


def blocks_of(block_tokens: int) -> int:
    """KV blocks for all generations of a pass."""
    return MOST_GENERATIONS * -(-_POSITIONS // block_tokens)


def _requests(vocab: int, count: int, seed: int) -> tuple[Request, ...]:
    rng = random.Random(seed)  # noqa: S311 (inputs, not secrets)
    texts = [[rng.randrange(vocab) for _ in range(_TEXT_TOKENS)] for _ in range(_TEXTS)]
    return draw_requests(texts, count, seed, vocab)


class FixedSizes(PagedModel):
    """Linear layers and attention in numbers of rows that agree on this device, as on CPUs in bfloat16."""

    def _settled(self, model: PreTrainedModel) -> Sizes:
        pack_linears(model, kernel=PLAIN)
        config = model.config.get_text_config()
        like = torch.empty(0, dtype=model.dtype, device=model.device)
        heads = config.num_attention_heads, config.num_key_value_heads
        return agreeing_rows(*heads, config.head_dim, self.block_tokens, like)


_KINDS: Mapping[str, tuple[torch.dtype, Make]] = {
    "float32": (torch.float32, PagedModel),
    "bfloat16": (torch.bfloat16, PagedModel),
    "bfloat16, fixed sizes": (torch.bfloat16, FixedSizes),
}
