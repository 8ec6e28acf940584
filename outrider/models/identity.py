"""Facts about a model that its peers check and compute with. Free of torch and transformers."""

from dataclasses import dataclass, fields
from typing import Self


@dataclass(frozen=True, kw_only=True)
class ModelIdentity:
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
