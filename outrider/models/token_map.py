"""Token maps: which id means which token. Speculation is lossless only between models that agree on all of them.

A mismatch would be lossy without any error, so maps are compared by hash whenever a drafter joins a target. Logits rows
may be wider than the map (Qwen pads them differently by model size). The padding is cut off, so no padding id is ever
sampled.
"""

import hashlib
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from outrider.contracts.errors import VocabularyMismatchError


@dataclass(frozen=True, slots=True)
class TokenMap:
    """``entries``: (id, token) by ascending id, added and special tokens included; ids may have gaps."""

    entries: tuple[tuple[int, str], ...]

    @property
    def length(self) -> int:
        """Width of a logits row that holds every token: the highest id + 1."""
        return self.entries[-1][0] + 1 if self.entries else 0

    def sha256(self) -> str:
        """Return a hex digest over ids and tokens; equal iff the maps are equal."""
        digest = hashlib.sha256()
        for token_id, token in self.entries:
            encoded = token.encode("utf-8", "surrogatepass")
            digest.update(token_id.to_bytes(8, "big") + len(encoded).to_bytes(8, "big") + encoded)
        return digest.hexdigest()


def token_map(tokenizer: PreTrainedTokenizerBase) -> TokenMap:
    return TokenMap(tuple(sorted((token_id, token) for token, token_id in tokenizer.get_vocab().items())))


def first_difference(left: TokenMap, right: TokenMap) -> int | None:
    """Return the lowest id that has different tokens, or that one map lacks; None if the maps are equal."""
    return min((token_id for token_id, _ in {*left.entries} ^ {*right.entries}), default=None)


def check_same_token_map(target: TokenMap, drafter: TokenMap, *, target_name: str, drafter_name: str) -> None:
    differing = first_difference(target, drafter)
    if differing is not None:
        theirs, ours = (dict(tokens.entries).get(differing) for tokens in (target, drafter))
        raise VocabularyMismatchError(
            f"drafter {drafter_name} needs the token map of target {target_name} (sha256 {target.sha256()}), found "
            f"{drafter.sha256()}: id {differing} is {theirs!r} in the target and {ours!r} in the drafter; "
            "use a drafter with the target's tokenizer, or distil one from it"
        )


def usable_vocab_size(tokens: TokenMap, *logits_widths: int) -> int:
    """Return the length to which logits rows are cut: all real tokens and no padding."""
    return min(tokens.length, *logits_widths)
