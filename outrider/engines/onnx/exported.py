"""Describe an exported drafter: its metadata, in the .onnx file itself."""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from outrider.contracts.errors import ModelUnavailableError
from outrider.contracts.exchanged import IntRow

FORMAT = 1  # of the graph and of this description; raise it when an older engine could not run the file
METADATA_KEY = "outrider_drafter"


@dataclass(frozen=True, slots=True)
class KvShape:
    """KV of one position: in each layer keys and values of ``heads`` * ``width`` float32."""

    layers: int
    heads: int
    width: int

    @property
    def token_bytes(self) -> int:
        return 2 * self.layers * self.heads * self.width * 4


@dataclass(frozen=True, slots=True)
class ExportedDrafter:
    """Facts about the draft model that its file was made from, as its card needs them.

    ``token_ids``: ``[n]`` int64 ascending, the tokens that the logits' columns stand for; None: all.
    """

    name: str
    model_hash: str  # of the model it was made from: the same drafts, so the same identity
    token_map_hash: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_context_tokens: int
    kv: KvShape
    exporter: str  # version that made the file
    token_ids: IntRow | None = None

    def described(self) -> str:
        """Return JSON; token ids as base64 of little-endian int32."""
        plain = replace(self, token_ids=None)
        packed = None if self.token_ids is None else base64.b64encode(self.token_ids.astype("<i4").tobytes()).decode()
        return json.dumps({"format": FORMAT, **asdict(plain), "token_ids": packed}, sort_keys=True)

    @classmethod
    def read(cls, metadata: Mapping[str, str], file: str) -> "ExportedDrafter":
        """Read a file's metadata; of another kind or format, or damaged, it is a ``ModelUnavailableError``."""
        try:
            found: dict[str, Any] = json.loads(metadata.get(METADATA_KEY, "{}"))
            if (made := found.pop("format", None)) != FORMAT:
                raise _refusal(file, f"format {made}")
            packed = found.pop("token_ids")
            ids = None if packed is None else np.frombuffer(base64.b64decode(packed, validate=True), "<i4")
            eos = tuple(map(int, found.pop("eos_token_ids")))
            drafter = cls(
                **{**found, "kv": KvShape(**found["kv"])},
                eos_token_ids=eos,
                token_ids=None if ids is None else ids.astype(np.int64),
            )
            drafter.check()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise _refusal(file, repr(error)) from error
        return drafter

    def check(self) -> None:
        """Raise ``ValueError`` for facts that an engine would run into."""
        numbers = self.vocab_size, self.max_context_tokens, self.kv.layers, self.kv.heads, self.kv.width
        if not all(type(number) is int and 0 < number < 2**31 for number in numbers):
            raise ValueError(f"sizes {numbers}")
        texts = self.name, self.model_hash, self.token_map_hash, self.exporter
        if not all(type(text) is str and len(text) < 1000 for text in texts):
            raise ValueError("names that are no short text")
        ids = self.token_ids
        if ids is not None and not (
            ids.size and ids[0] >= 0 and ids[-1] < self.vocab_size and (np.diff(ids) > 0).all()
        ):
            raise ValueError("token ids that do not ascend within the vocabulary")


def _refusal(file: str, found: str) -> ModelUnavailableError:
    return ModelUnavailableError(
        f"needs a drafter made by `outrider export drafter` in {file}, of format {FORMAT}, found {found}; "
        "export it again"
    )
