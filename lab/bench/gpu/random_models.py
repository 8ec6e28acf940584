"""Models of known shapes with random weights, made on the device: the time of a pass does not depend on weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from outrider.models.loading import LoadedModel
from outrider.models.model_classes import PreTrainedModel

_COMMON: dict[str, Any] = {"max_position_embeddings": 16384, "bos_token_id": None, "eos_token_id": None}
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "initializer_range": 0.3,
        "tie_word_embeddings": True,
    },
    "30M": {
        "vocab_size": 4096,
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "initializer_range": 0.1,
        "tie_word_embeddings": True,
    },
    "1B": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "8B": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": False,
    },
}


def random_model(shape: str, device: torch.device, dtype: torch.dtype, seed: int = 0) -> PreTrainedModel:
    """One of ``SHAPES``, in eval mode without gradients; determined by the seed and the device."""
    torch.manual_seed(seed)
    with _default(dtype), device:
        model = LlamaForCausalLM(LlamaConfig(**_COMMON | SHAPES[shape]))
    return cast("PreTrainedModel", model.eval().requires_grad_(requires_grad=False))


def as_loaded(model: PreTrainedModel) -> LoadedModel:
    """The model in the form that engines take, without tokenizer and names."""
    config = model.config
    return LoadedModel(cast("Any", None), config.vocab_size, (), config.max_position_embeddings, "", "", "", model)


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
