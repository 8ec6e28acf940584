"""Facts about a target from its folder alone, without loading the model.

A device that runs only the drafter needs the target's embedding and head, its config and its hash. The rest of the
weights might not fit there.
"""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, PretrainedConfig

from outrider.contracts.errors import ModelUnavailableError
from outrider.models.identity import sampled_hash

_VOLATILE_CONFIG_KEYS = ("_name_or_path", "transformers_version")


def read_config(folder: Path) -> PretrainedConfig:
    """Return the model's config; of a multimodal model, its text part."""
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelUnavailableError(
            f"needs a Hugging Face model folder with a config.json of a supported architecture at {folder}, "
            f"found: {error}"
        ) from error
    text: PretrainedConfig = config.get_text_config(decoder=True)
    return text


def weight_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelUnavailableError(
            f"needs weights as *.safetensors in {folder}, found none; convert other formats with transformers' "
            "save_pretrained"
        )
    return files


def model_hash(folder: Path) -> str:
    """Return an identity of config and weights, in milliseconds.

    It covers config.json (without keys that transformers rewrites) and, of each safetensors file, name, size, header
    and 64 evenly spaced windows of 4 KiB. It distinguishes fine-tunes of one base; it does not prove integrity.
    """
    digest = hashlib.sha256()
    try:
        config = dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ModelUnavailableError(f"needs a JSON object in {folder}/config.json, found: {error}") from error
    for key in _VOLATILE_CONFIG_KEYS:
        config.pop(key, None)
    digest.update(json.dumps(config, sort_keys=True).encode())
    for file in weight_files(folder):
        digest.update(file.name.encode() + bytes.fromhex(sampled_hash(file)))
    return digest.hexdigest()


def read_embedding_and_head(
    folder: Path, *, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Read only the input embedding and, if not tied to it, the output head.

    Returns:
        Two tensors ``[vocab, hidden]`` in ``dtype`` on ``device``; the second is None for a tied model.
    """
    embedding = _read_tensor(folder, "embed_tokens.weight", dtype, device)
    if embedding is None:
        raise ModelUnavailableError(f"needs a Llama-like model with *.embed_tokens.weight in {folder}, found none")
    if getattr(read_config(folder), "tie_word_embeddings", False):
        return embedding, None
    return embedding, _read_tensor(folder, "lm_head.weight", dtype, device)


def _read_tensor(folder: Path, suffix: str, dtype: torch.dtype, device: str) -> torch.Tensor | None:
    for file in weight_files(folder):
        try:
            with safe_open(file, framework="pt", device=device) as tensors:
                for key in tensors.keys():  # noqa: SIM118  safe_open has no __iter__
                    if key == suffix or key.endswith("." + suffix):
                        tensor: torch.Tensor = tensors.get_tensor(key).to(dtype)
                        return tensor
        except SafetensorError as error:
            raise ModelUnavailableError(f"needs readable safetensors in {file}, found: {error}; fetch it") from error
    return None
