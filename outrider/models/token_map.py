"""Token maps: which id means which token. Speculation is only lossless between models that agree on all of them.

A silent mismatch is lossy without any error, so maps are compared by hash whenever a drafter joins a target. Logit
rows may be wider than the map (Qwen pads them differently by model size): the padding is cut off, so that no padding
id is ever sampled.
"""

import hashlib
from dataclasses import dataclass
from itertools import zip_longest

from transformers import PreTrainedTokenizerBase

from outrider.contracts.errors import VocabularyMismatchError


@dataclass(frozen=True, slots=True)
class TokenDifference:
    """The first id on which two token maps differ; None where a map has no (further) token."""

    token_id: int
    left: str | None
    right: str | None


@dataclass(frozen=True, slots=True)
class TokenMap:
    """``entries``: (id, token) by ascending id, added and special tokens included; ids may have gaps."""

    entries: tuple[tuple[int, str], ...]

    @property
    def length(self) -> int:
        """Width a logits row needs to hold every token: the highest id + 1."""
        return self.entries[-1][0] + 1 if self.entries else 0

    def sha256(self) -> str:
        """Hex digest over ids and tokens; equal iff the maps are equal."""
        digest = hashlib.sha256()
        for token_id, token in self.entries:
            encoded = token.encode("utf-8", "surrogatepass")
            digest.update(token_id.to_bytes(8, "big") + len(encoded).to_bytes(8, "big") + encoded)
        return digest.hexdigest()


def token_map(tokenizer: PreTrainedTokenizerBase) -> TokenMap:
    """The token map of a tokenizer."""
    return TokenMap(tuple(sorted((token_id, token) for token, token_id in tokenizer.get_vocab().items())))


def first_difference(left: TokenMap, right: TokenMap) -> TokenDifference | None:
    """The lowest id that means different tokens, None if the maps are equal."""
    for mine, other in zip_longest(left.entries, right.entries):
        if mine == other:
            continue
        token_id = min(entry[0] for entry in (mine, other) if entry is not None)
        return TokenDifference(
            token_id,
            mine[1] if mine is not None and mine[0] == token_id else None,
            other[1] if other is not None and other[0] == token_id else None,
        )
    return None


def check_same_token_map(target: TokenMap, drafter: TokenMap, *, target_name: str, drafter_name: str) -> None:
    """Refuse a drafter whose token ids mean something else than the target's.

    Raises:
        VocabularyMismatchError: names both hashes, and the first id that differs with both its tokens.
    """
    difference = first_difference(target, drafter)
    if difference is not None:
        raise VocabularyMismatchError(
            f"drafter {drafter_name} needs the token map of target {target_name} (sha256 {target.sha256()}), found "
            f"{drafter.sha256()}: id {difference.token_id} is {difference.left!r} in the target and "
            f"{difference.right!r} in the drafter; use a drafter with the target's tokenizer, or distil one from it"
        )


def usable_vocab_size(tokens: TokenMap, *logits_widths: int) -> int:
    """Length to which logits rows are cut: all real tokens, no padding, nothing a row does not have."""
    return min(tokens.length, *logits_widths)
