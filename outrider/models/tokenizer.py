"""Load tokenizers alone, which suffice for ingress and coordinator. Most of them load without torch."""

import json
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from outrider.contracts.errors import ModelUnavailableError
from outrider.models.folders import resolve_folder

_GENERIC = {"PreTrainedTokenizerFast", "TokenizersBackend"}  # classes for which tokenizer.json is complete


def load_tokenizer(name_or_path: str) -> PreTrainedTokenizerBase:
    """Load a model's tokenizer, with its chat template if any; without one it is a ``ModelUnavailableError``."""
    return read_tokenizer(resolve_folder(name_or_path))


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer in a folder; without one it is a ``ModelUnavailableError``."""
    kind: Any = PreTrainedTokenizerFast
    if not _names_generic_class(folder):
        from transformers import AutoTokenizer as kind  # noqa: N813, PLC0415 (knows all classes; imports torch)
    try:
        tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelUnavailableError(f"needs a tokenizer in {folder}, found: {error}") from error
    return tokenizer


def _names_generic_class(folder: Path) -> bool:
    config = folder / "tokenizer_config.json"
    if not config.is_file():
        return False
    try:
        found = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelUnavailableError(f"needs a JSON object in {config}, found: {error}; fetch it again") from error
    return isinstance(found, dict) and found.get("tokenizer_class") in _GENERIC
