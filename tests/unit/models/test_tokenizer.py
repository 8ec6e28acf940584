import json
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
from transformers import AutoTokenizer

from outrider.contracts.errors import ModelUnavailableError
from outrider.models.folders import EMBEDDED, resolve_folder
from outrider.models.tokenizer import load_tokenizer, read_tokenizer

TEXT = "Ünïcode, 12345 and <|im_start|>user\n"
WITHOUT_TORCH = """
import sys
import serve_app.ingress.ingress, serve_app.coordination.coordinator
from outrider.models.tokenizer import load_tokenizer
load_tokenizer("embedded").apply_chat_template([{"role": "user", "content": "Hello"}], add_generation_prompt=True)
assert "torch" not in sys.modules
"""


def test_ingress_and_coordinator_never_wait_for_torch() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True, timeout=120)


def test_whoever_reads_a_tokenizer_reads_the_same(tmp_path: Path) -> None:
    expected = AutoTokenizer.from_pretrained(resolve_folder(EMBEDDED))
    folder = copytree(resolve_folder(EMBEDDED), tmp_path / "special", ignore=lambda *_: ["model.safetensors"])
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "tokenizer_class": "GPT2Tokenizer"}))
    for found in (load_tokenizer(EMBEDDED), read_tokenizer(folder)):
        assert found(TEXT)["input_ids"] == expected(TEXT)["input_ids"]
        assert found.get_vocab() == expected.get_vocab()
        assert found.chat_template == expected.chat_template


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match=str(tmp_path)):
        read_tokenizer(tmp_path)
