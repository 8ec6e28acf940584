"""A mix of prompts of several kinds by stated shares: always the same ones in the same order. No randomness.

The gain of speculation depends on the prompts: an answer that repeats its prompt is easy to guess, a story is not.
"""

import argparse
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

KINDS = ("chat", "extraction", "editing", "lists", "code")
USUAL_SHARES: Mapping[str, float] = {"chat": 0.4, "extraction": 0.15, "editing": 0.15, "lists": 0.15, "code": 0.15}
_FOLDER = Path(__file__).parents[1] / "prompts"
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class MixedPrompt:
    kind: str
    text: str


@cache
def prompts_of(kind: str) -> tuple[str, ...]:
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


def parse_share(text: str) -> tuple[str, float]:
    """``KIND=SHARE``."""
    kind, _, share = text.partition("=")
    try:
        found = float(share)
    except ValueError:
        found = 0.0
    if kind not in KINDS or not 0.0 < found <= 1.0:
        raise argparse.ArgumentTypeError(f"needs KIND=SHARE, a kind of {', '.join(KINDS)} and (0, 1], found {text!r}")
    return kind, found


def shares_of(pairs: list[tuple[str, float]]) -> dict[str, float]:
    """Shares by kind; ``ValueError`` if a kind is named twice, or they do not add up to 1."""
    shares = dict(pairs)
    if len(shares) < len(pairs) or abs(sum(shares.values()) - 1.0) > _ROUNDING:
        told = " ".join(f"{kind}={share:g}" for kind, share in pairs)
        raise ValueError(f"needs each kind once and shares that add up to 1, found {told}")
    return shares
