"""Convert a GGUF file of the llama architecture into a Hugging Face model folder.

transformers reads GGUF, too, but four times slower and into a model that cannot be saved again. Supported is only what
the embedded target needs: llama architecture, byte-level BPE tokenizer, tied embedding.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers import models as tokenizer_models
from tokenizers import pre_tokenizers as split
from tqdm import tqdm

_CONTROL_TOKEN = 3  # GGUF token_type of special tokens
_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(gguf_file: Path, folder: Path, *, dtype: torch.dtype, progress: bool) -> None:
    """Write ``folder`` (must exist): model.safetensors in ``dtype``, configs, tokenizer with chat template.

    Raises:
        KeyError, ValueError: the file is not a GGUF of the llama architecture with a byte-level BPE tokenizer.
    """
    reader = GGUFReader(gguf_file)
    save_file(_tensors(reader, dtype, progress=progress), folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", _config(reader, dtype))
    ids = {name: int(_value(reader, f"tokenizer.ggml.{name}")) for name in ("bos_token_id", "eos_token_id")}
    _write_json(folder / "generation_config.json", {**ids, "pad_token_id": ids["eos_token_id"]})
    _tokenizer(reader).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(reader))


def half_split_rotary(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Reorder the rows of a query or key projection from llama.cpp's interleaved rotary pairs to HF's halves.

    Args:
        weight: ``[heads * head_dim, hidden]``, rows of a head ordered (0, d/2, 1, d/2 + 1, ...).
        heads: number of heads in ``weight``.

    Returns:
        The same shape, rows of a head ordered (0, 1, ..., d - 1).
    """
    rows, hidden = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, hidden).swapaxes(1, 2).reshape(rows, hidden)


def _tensors(reader: GGUFReader, dtype: torch.dtype, *, progress: bool) -> dict[str, torch.Tensor]:
    heads = {
        "attn_q": int(_value(reader, "llama.attention.head_count")),
        "attn_k": int(_value(reader, "llama.attention.head_count_kv")),
    }
    state: dict[str, torch.Tensor] = {}
    for tensor in tqdm(reader.tensors, desc="converting the target", unit="tensor", disable=not progress):
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name == "token_embd.weight":
            name = "model.embed_tokens.weight"
        elif tensor.name == "output_norm.weight":
            name = "model.norm.weight"
        else:
            _, layer, kind, _ = tensor.name.split(".")
            name = f"model.layers.{layer}.{_PER_LAYER[kind]}.weight"
            if kind in heads:
                weight = half_split_rotary(weight, heads[kind])
        state[name] = torch.from_numpy(np.ascontiguousarray(weight)).to(dtype)
    return state


def _config(reader: GGUFReader, dtype: torch.dtype) -> dict[str, Any]:
    heads, hidden = (_value(reader, f"llama.{name}") for name in ("attention.head_count", "embedding_length"))
    theta = float(_value(reader, "llama.rope.freq_base"))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(_value(reader, "tokenizer.ggml.tokens")),
        "hidden_size": hidden,
        "intermediate_size": _value(reader, "llama.feed_forward_length"),
        "num_hidden_layers": _value(reader, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _value(reader, "llama.attention.head_count_kv"),
        "head_dim": hidden // heads,
        "max_position_embeddings": _value(reader, "llama.context_length"),
        "rms_norm_eps": float(str(np.float32(_value(reader, "llama.attention.layer_norm_rms_epsilon")))),
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": _value(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _value(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _value(reader, "tokenizer.ggml.eos_token_id"),
        "dtype": str(dtype).removeprefix("torch."),
    }


def _tokenizer(reader: GGUFReader) -> Tokenizer:
    tokens = _value(reader, "tokenizer.ggml.tokens")
    kinds = _value(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in _value(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(
        tokenizer_models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges, fuse_unk=False)
    )
    tokenizer.pre_tokenizer = split.Sequence(
        [split.Digits(individual_digits=True), split.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == _CONTROL_TOKEN
        ]
    )
    return tokenizer


def _tokenizer_config(reader: GGUFReader) -> dict[str, Any]:
    tokens = _value(reader, "tokenizer.ggml.tokens")
    bos, eos, unknown = (
        tokens[_value(reader, f"tokenizer.ggml.{kind}_token_id")] for kind in ("bos", "eos", "unknown")
    )
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "unk_token": unknown,
        "pad_token": eos,
        "model_max_length": _value(reader, "llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "chat_template": _value(reader, "tokenizer.chat_template"),
    }


def _value(reader: GGUFReader, key: str) -> Any:
    return reader.fields[key].contents()


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
