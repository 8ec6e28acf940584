"""Describe an exported drafter: its metadata, in the .onnx file itself."""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np

from outrider.contracts.errors import ModelUnavailableError
from outrider.contracts.exchanged import IntRow
from outrider.models.identity import ModelIdentity

FORMAT = 2  # of the graph and of this description; raise it when an older engine could not run the file
METADATA_KEY = "outrider_drafter"
_LONGEST_TEXT, _MOST_ENDS = 200, 1024  # as cards may have (``wire.replies``)


@dataclass(frozen=True, slots=True)
class KvShape:
    """KV of one position: in each layer keys and values of ``heads`` * ``width`` numbers."""

    layers: int
    heads: int
    width: int
    number_bytes: int = 4  # of float32; 1: int8, with scales in the graph

    @property
    def dtype(self) -> type[np.int8 | np.float32]:
        return np.int8 if self.number_bytes == 1 else np.float32

    @property
    def token_bytes(self) -> int:
        return 2 * self.layers * self.heads * self.width * self.number_bytes


@dataclass(frozen=True, slots=True)
class ExportedDrafter:
    """Facts about the draft model that its file was made from, as its card needs them.

    ``token_ids``: ``[n]`` int64 ascending, the tokens that the logits' columns stand for; None: all.
    """

    identity: ModelIdentity  # of the model it was made from: it drafts the same
    kv: KvShape
    exporter: str  # version that made the file
    token_ids: IntRow | None = None

    @property
    def columns(self) -> int:
        return self.identity.vocab_size if self.token_ids is None else len(self.token_ids)

    def described(self) -> str:
        """Return JSON; token ids as base64 of little-endian int32."""
        packed = None if self.token_ids is None else base64.b64encode(self.token_ids.astype("<i4").tobytes()).decode()
        plain = {"identity": asdict(self.identity), "kv": asdict(self.kv), "exporter": self.exporter}
        return json.dumps({"format": FORMAT, **plain, "columns": packed}, sort_keys=True)

    @classmethod
    def read(cls, metadata: Mapping[str, str], file: str) -> "ExportedDrafter":
        """Read a file's metadata; of another kind or format, or damaged, it is a ``ModelUnavailableError``."""
        try:
            found: dict[str, Any] = json.loads(metadata.get(METADATA_KEY, "{}"))
            if (made := found.get("format")) != FORMAT:
                raise _refusal(file, f"format {made}")
            identity = found["identity"]
            identity["eos_token_ids"] = tuple(map(int, identity["eos_token_ids"]))
            packed = found["columns"]
            ids = None if packed is None else np.frombuffer(base64.b64decode(packed, validate=True), "<i4")
            drafter = cls(
                identity=ModelIdentity(**identity),
                kv=KvShape(**found["kv"]),
                exporter=found["exporter"],
                token_ids=None if ids is None else ids.astype(np.int64),
            )
            drafter.check()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise _refusal(file, repr(error)) from error
        return drafter

    def check(self) -> None:
        """Raise ``ValueError`` for facts that an engine would run into."""
        identity = self.identity
        texts = (identity.name, identity.model_hash, identity.token_map_hash, self.exporter)
        numbers = (identity.vocab_size, identity.max_context_tokens, *astuple(self.kv))
        wrong: list[object] = [text for text in texts if type(text) is not str or len(text) > _LONGEST_TEXT]
        wrong += [number for number in numbers if type(number) is not int or not 0 < number < 2**31]
        wrong += [self.kv.number_bytes] * (self.kv.number_bytes not in (1, 4))
        if wrong:
            raise ValueError(f"{wrong[0]!r:.100}")
        ends = identity.eos_token_ids
        if len(ends) > _MOST_ENDS or not all(0 <= end < 2**31 for end in ends):
            raise ValueError(f"{len(ends)} ends: {ends!r:.100}")
        ids = self.token_ids
        if ids is None:
            return
        if not (ids.size and ids[0] >= 0 and ids[-1] < self.identity.vocab_size and (np.diff(ids) > 0).all()):
            raise ValueError("token ids that do not ascend within the vocabulary")


def _refusal(file: str, found: str) -> ModelUnavailableError:
    return ModelUnavailableError(
        f"needs a drafter made by `outrider export drafter` in {file}, of format {FORMAT}, found {found}; "
        "export it again"
    )
