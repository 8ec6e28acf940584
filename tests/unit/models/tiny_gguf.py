"""A random two-layer Llama with a byte-level tokenizer, written the way llama.cpp's converter writes it."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGUFWriter
from transformers import LlamaConfig, LlamaForCausalLM

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["a b"]
TOKENS = [*SPECIAL, *"abc", *"0123456789", "Ġ", "ab"]
_HEADS, _KV_HEADS = 4, 2
_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def interleaved_rotary(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """HF's halves to llama.cpp's interleaved rotary pairs (``permute`` of convert_hf_to_gguf.py)."""
    rows, hidden = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, hidden).swapaxes(1, 2).reshape(rows, hidden)


def write_tiny_gguf(file: Path) -> LlamaForCausalLM:
    """Write the file; returns the model it was made from."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KV_HEADS,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config)
    model.eval()
    writer = GGUFWriter(file, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(5000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in TOKENS])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}")
    for name, value in model.model.state_dict().items():
        writer.add_tensor(*_gguf_tensor(name, value.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _gguf_tensor(name: str, value: npt.NDArray[np.float32]) -> tuple[str, npt.NDArray[np.float32]]:
    if name == "embed_tokens.weight":
        return "token_embd.weight", value
    if name == "norm.weight":
        return "output_norm.weight", value
    _, layer, kind = name.removesuffix(".weight").split(".", 2)
    heads = {"attn_q": _HEADS, "attn_k": _KV_HEADS}.get(_NAMES[kind])
    value = value if heads is None else interleaved_rotary(value, heads)
    return f"blk.{layer}.{_NAMES[kind]}.weight", np.ascontiguousarray(value)
