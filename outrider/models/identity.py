"""Identity of a model and of a safetensors file. Free of torch and transformers."""

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

_SAMPLED_WINDOWS = 64
_WINDOW_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class ModelIdentity:
    """Facts about a model that its peers check and compute with."""

    vocab_size: int  # length to which logits rows are cut: real tokens only, no padding
    eos_token_ids: tuple[int, ...]  # tokens that end a response, ascending
    max_context_tokens: int  # positions the model may use
    name: str  # short, for logs and metrics
    model_hash: str  # identity of config and weights (``target_folder.model_hash``)
    token_map_hash: str  # sha256 of the token map; equal for every model of a pair

    @classmethod
    def of(cls, facts: "ModelIdentity") -> Self:
        """Return these facts alone, of an object that has more."""
        return cls(**{field.name: getattr(facts, field.name) for field in fields(cls)})


def sampled_hash(file: Path) -> str:
    """Return a hash over a safetensors file's size, header and 64 evenly spaced windows of 4 KiB."""
    size_bytes = file.stat().st_size
    digest = hashlib.sha256(size_bytes.to_bytes(8, "big"))
    with file.open("rb") as stream:
        digest.update(stream.read(8 + int.from_bytes(stream.read(8), "little")))
        for window in range(_SAMPLED_WINDOWS):
            stream.seek(window * max(size_bytes - _WINDOW_BYTES, 0) // (_SAMPLED_WINDOWS - 1))
            digest.update(stream.read(_WINDOW_BYTES))
    return digest.hexdigest()
