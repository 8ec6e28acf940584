"""docs/reference/models.md: its configurations are read by the loader, and its arithmetic is the engines' own."""

import re
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from outrider.config.reading import parse_config
from outrider.engines.torch.model import configured_kv_bytes_per_token

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "models.md").read_text(encoding="utf-8")
CONFIGURATIONS = dict(re.findall(r"^### (.+?)\n.*?^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
SIZES = re.findall(r"^\| ([\w.-]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| [\d.]+ \|$", TEXT, re.MULTILINE)


def test_there_is_a_configuration_under_each_heading() -> None:
    headings = re.findall(r"^### (.+)$", TEXT, re.MULTILINE)
    assert list(CONFIGURATIONS) == headings
    assert len(headings) == TEXT.count("```yaml") > 5
    assert {name.split()[0] for name in headings} >= {"Llama", "Qwen", "Gemma", "SmolLM2", "SmolLM3"}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_each_is_one_that_outrider_takes(name: str) -> None:
    config = parse_config(CONFIGURATIONS[name], "docs/reference/models.md")
    assert config.model.target
    assert [group.count for group in config.drafters] == [1]


@pytest.mark.parametrize("row", SIZES, ids=[row[0] for row in SIZES])
def test_kv_is_what_the_engines_allocate(row: tuple[str, ...]) -> None:
    layers, heads, width, kv_bytes, of_8192_mib = map(int, row[1:])
    config = LlamaConfig(
        num_hidden_layers=layers,
        num_key_value_heads=heads,
        num_attention_heads=heads,
        head_dim=width,
        hidden_size=heads * width,
    )
    assert configured_kv_bytes_per_token(config, torch.bfloat16) == kv_bytes
    assert kv_bytes * 8192 == of_8192_mib * 2**20
    assert len(SIZES) == 18
