"""Models of known shapes with random weights, made on the device: the time of a pass does not depend on weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from outrider.models.loading import LoadedModel
from outrider.models.model_classes import PreTrainedModel

_COMMON: dict[str, Any] = {"max_position_embeddings": 16384, "bos_token_id": None, "eos_token_id": None}
_FIELDS = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "initializer_range", "tie_word_embeddings"),
)
_SHAPES = {
    "tiny": (512, 64, 128, 2, 4, 2, 32, 0.3, True),
    "30M": (4096, 512, 1536, 8, 8, 4, 64, 0.1, True),
    "1B": (128256, 2048, 8192, 16, 32, 8, 64, 0.02, True),
    "8B": (128256, 4096, 14336, 32, 32, 8, 128, 0.02, False),
}
SHAPES: dict[str, dict[str, Any]] = {name: dict(zip(_FIELDS, of, strict=True)) for name, of in _SHAPES.items()}


def random_model(shape: str, device: torch.device, dtype: torch.dtype, seed: int = 0) -> PreTrainedModel:
    """One of ``SHAPES``, in eval mode without gradients; determined by the seed and the device."""
    torch.manual_seed(seed)
    with _default(dtype), device:
        model = LlamaForCausalLM(LlamaConfig(**_COMMON | SHAPES[shape]))
    return cast("PreTrainedModel", model.eval().requires_grad_(requires_grad=False))


def as_loaded(model: PreTrainedModel) -> LoadedModel:
    """The model in the form that engines take, without tokenizer and names."""
    config = model.config
    return LoadedModel(
        tokenizer=cast("Any", None),
        vocab_size=config.vocab_size,
        eos_token_ids=(),
        max_context_tokens=config.max_position_embeddings,
        name="",
        model_hash="",
        token_map_hash="",
        model=model,
    )


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
