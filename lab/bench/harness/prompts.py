"""Prompts for the benches, and a mix of kinds by stated shares: always the same ones in the same order."""

import argparse
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

PROMPTS = (
    "Explain how a rainbow forms.",
    "What is the capital of France, and what is it known for?",
    "Write a Python function that checks whether a number is prime.",
    "List three differences between cats and dogs.",
    "Summarise in one sentence: The committee agreed to postpone the vote until all members had read the report.",
    "Translate 'good morning' into Spanish, French and German.",
    "Write a short poem about the sea.",
    "A train leaves at 9:15 and arrives at 11:40. How long is the journey?",
    "Give me a recipe for pancakes.",
    "Rewrite politely: Send me the file now.",
    "What are the benefits of regular exercise?",
    "Write an SQL query that counts the orders of each customer.",
    "Describe the water cycle to a child.",
    "Name five animals that live in the ocean.",
    "Complete the story: The old clock in the hall had not moved for years, until one night",
    "Classify the sentiment: I waited an hour and the food was cold.",
)

CONTINUATIONS = (
    "The three primary colours are",
    "Once upon a time, in a village by the river,",
    "def fibonacci(n):\n    ",
    "Water boils at",
    "Dear Sir or Madam,\n\nI am writing to",
    "1, 2, 4, 8, 16,",
)

_SUBJECTS = ("The council", "A young engineer", "The harbour", "Every second train", "The old library", "Our neighbour")
_VERBS = ("waited for", "wrote a report about", "slowly changed", "was known for", "lost", "depended on")
_OBJECTS = (
    "the northern bridge",
    "a box of letters",
    "the price of wheat",
    "two summers",
    "the weather",
    "a quiet road",
)
_ENDINGS = ("until the rain stopped", "although nobody had asked", "in the year of the flood", "with great care")


def document(rng: np.random.Generator, words: int) -> str:
    """Plain sentences of at least ``words`` words, hardly ever the same text twice."""
    text: list[str] = []
    while len(text) < words:
        parts = (parts[rng.integers(len(parts))] for parts in (_SUBJECTS, _VERBS, _OBJECTS, _ENDINGS))
        text += f"{' '.join(parts)}.".split()
    return " ".join(text)


# The gain of speculation depends on the prompts: an answer that repeats its prompt is easy to guess, a story is not.
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
