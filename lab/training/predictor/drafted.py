"""Verified draft tokens: features known before each was drawn, and whether it was accepted.

Of a round these are the accepted tokens and the first rejected one. Tokens behind it carry no information: they follow
a token that was never committed (WISP section 4.1 and appendix B).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import ArrayData

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class DraftedTokens(ArrayData):
    """N tokens, ordered by request, then by position."""

    features: Floats  # ``[N, 4]``, as ``DraftFeatures.vector``
    accepted: Ints  # ``[N]``: 1, or 0 for the first rejection of a round
    temperature: Floats  # ``[N]``, of the request
    prompt: Ints  # ``[N]``, index of the request's prompt

    def __len__(self) -> int:
        return len(self.accepted)

    def where(self, chosen: npt.NDArray[np.bool_]) -> "DraftedTokens":
        return DraftedTokens(
            self.features[chosen], self.accepted[chosen], self.temperature[chosen], self.prompt[chosen]
        )


def together(parts: Sequence[DraftedTokens]) -> DraftedTokens:
    columns = ("features", "accepted", "temperature", "prompt")
    return DraftedTokens(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))


@dataclass(frozen=True, slots=True)
class DataSplit:
    """Parts with disjoint prompts, so that no text is on both sides."""

    train: DraftedTokens  # to fit
    validation: DraftedTokens  # to stop early and to choose among fits
    calibration: DraftedTokens  # to turn scores into probabilities
    test: DraftedTokens  # to report on


_SHARES = {"validation": 0.15, "calibration": 0.1, "test": 0.15}  # of the prompts; the rest is for training
LEAST_PROMPTS = len(_SHARES) + 1  # one for each part
_LEAST_OF_A_KIND = 10  # accepted, and rejected, tokens needed in each part


def part_prompts(prompts: Sequence[Sequence[int]], field: str = "prompts") -> dict[str, list[int]]:
    """Indices of prompts by part, in order. A prompt's part depends on the prompts' token ids, not on their order."""
    digests = [hashlib.sha256(np.asarray(ids, dtype="<u8").tobytes()).digest() for ids in prompts]
    waiting = sorted(range(len(prompts)), key=lambda index: digests[index])
    parts: dict[str, list[int]] = {}
    for name, share in _SHARES.items():
        count = max(1, round(share * len(prompts)))
        parts[name], waiting = sorted(waiting[:count]), waiting[count:]
    if not waiting:
        raise ParameterError(field, f"at least {LEAST_PROMPTS}, one for each part", len(prompts))
    return {"train": sorted(waiting), **parts}


def split(
    tokens: DraftedTokens, prompts: Sequence[Sequence[int]], least_tokens: int, field: str = "prompts"
) -> DataSplit:
    """Split by prompt; an error names ``field`` as what to give more of.

    Raises:
        ParameterError: fewer than ``least_tokens``, or a part with too few accepted or rejected ones.
    """
    if len(tokens) < least_tokens:
        raise ParameterError(field, f"enough for at least {least_tokens} verified draft tokens", len(tokens))
    own = {name: tokens.where(np.isin(tokens.prompt, of)) for name, of in part_prompts(prompts, field).items()}
    for name, part in own.items():
        accepted = int(part.accepted.sum())
        if min(accepted, len(part) - accepted) < _LEAST_OF_A_KIND:
            needed = f"enough for at least {_LEAST_OF_A_KIND} accepted and as many rejected tokens for {name}"
            raise ParameterError(field, needed, f"{accepted} accepted of {len(part)}")
    return DataSplit(**own)
