"""Tiny random models with a tiny tokenizer, saved as Hugging Face folders."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

WORDS = 40
_END = "<eos>"
EOS = WORDS  # the only added token, behind the words


def save_tokenizer(folder: Path, words: int = WORDS, rename: dict[int, str] | None = None) -> None:
    """Words ``w0 .. w<n-1>``, then ``<eos>``; ``rename`` gives ids other words."""
    names = [(rename or {}).get(i, f"w{i}") for i in range(words)]
    raw = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=names[0]))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=_END).save_pretrained(folder)


def tiny_model(kind: str, *, layers: int = 3, vocab: int = 48, hidden: int = 32, tied: bool = True) -> PreTrainedModel:
    """A random ``llama``, ``qwen2`` or ``qwen3`` in float32 whose logits are wider than the tokenizer."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 4,
        "max_position_embeddings": 128,
        "tie_word_embeddings": tied,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": EOS,
        "pad_token_id": None,
    }
    model: PreTrainedModel
    if kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**sizes))
    elif kind == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**sizes))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**sizes))
    model.train(mode=False)
    return model


def save_model(folder: Path, model: PreTrainedModel) -> Path:
    """Model and tokenizer into one folder."""
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder
