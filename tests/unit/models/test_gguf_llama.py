"""A random Llama written as GGUF and converted back gives the same logits and the same token ids."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from outrider.models.gguf_llama import convert, half_split_rotary
from outrider.training.traces import prompt_ids
from tests.unit.models.tiny_gguf import MERGES, interleaved_rotary, write_tiny_gguf


@pytest.mark.parametrize("heads", [1, 3])
def test_half_split_rotary_undoes_llama_cpps_interleaving(heads: int) -> None:
    weight: npt.NDArray[np.float32] = np.random.default_rng(0).normal(size=(heads * 8, 5)).astype(np.float32)
    assert not np.array_equal(interleaved_rotary(weight, heads), weight)
    np.testing.assert_array_equal(half_split_rotary(interleaved_rotary(weight, heads), heads), weight)


def test_converted_model_equals_the_original(tmp_path: Path) -> None:
    original = write_tiny_gguf(tmp_path / "tiny.gguf")
    folder = tmp_path / "converted"
    folder.mkdir()
    convert(tmp_path / "tiny.gguf", folder, dtype=torch.float32, progress=False)
    converted = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    with torch.inference_mode():
        torch.testing.assert_close(converted(ids).logits, original(ids).logits)
    assert converted.generation_config.eos_token_id == 2


def test_converted_tokenizer_merges_splits_digits_and_keeps_special_tokens(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    convert(tmp_path / "tiny.gguf", tmp_path, dtype=torch.float32, progress=False)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.tokenize("ab12<|im_end|>") == [MERGES[0].replace(" ", ""), "1", "2", "<|im_end|>"]
    assert tokenizer.decode(prompt_ids(tokenizer, "ab")) == "<|im_start|>ab<|im_end|>"
