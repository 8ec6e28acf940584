"""A mix of prompts of several kinds by stated shares: always the same ones in the same order. No randomness.

The gain of speculation depends on the prompts: an answer that repeats its prompt is easy to guess, a story is not.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

KINDS = ("chat", "extraction", "editing", "lists", "code")
_FOLDER = Path(__file__).parents[1] / "prompts"


@dataclass(frozen=True, slots=True)
class MixedPrompt:
    """A prompt and its kind, one of ``KINDS``."""

    kind: str
    text: str


@cache
def prompts_of(kind: str) -> tuple[str, ...]:
    """All prompts of a kind."""
    return tuple(tomllib.loads((_FOLDER / f"{kind}.toml").read_text(encoding="utf-8"))["prompts"])


def mixed(count: int, shares: Mapping[str, float]) -> tuple[MixedPrompt, ...]:
    """Return ``count`` prompts; at every length the kinds' numbers are as near to their shares as possible.

    Each prompt is of the kind that lacks most; ties go to the kind named first. A kind's prompts are used in order and
    repeated.
    """
    given = dict.fromkeys(shares, 0)
    found = []
    for number in range(1, count + 1):
        kind = max(shares, key=lambda one: shares[one] * number - given[one])
        prompts = prompts_of(kind)
        found.append(MixedPrompt(kind, prompts[given[kind] % len(prompts)]))
        given[kind] += 1
    return tuple(found)
