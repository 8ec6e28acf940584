"""Drafts of right, nearly right, wrong and misleading tokens, in chains and trees. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.lookup.suffixes import Suffixes

MOST_TOKENS = 16
_TREES = 0.3  # share of all drafts
_RIGHT = 0.8  # share of the tokens of a nearly right draft


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is known of the tokens to come."""

    truth: Sequence[int]  # the reference's next tokens
    runners_up: Sequence[int]  # for each, the most probable other token
    text: Sequence[int]  # prompt and output so far


@dataclass(frozen=True, slots=True)
class Drafted:
    """A chain, or with ``parents`` a tree (see ``Block.parents``)."""

    token_ids: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None


def draw_draft(ahead: Ahead, rng: random.Random, vocab_size: int) -> Drafted:
    window = rng.randint(0, MOST_TOKENS)
    if window and rng.random() < _TREES:
        return _tree(ahead, window, rng, vocab_size)
    kind = rng.choice((_right, _nearly, _misled, _random, _looked_up))
    return Drafted(tuple(kind(ahead, window, rng, vocab_size)))


def _right(ahead: Ahead, window: int, rng: random.Random, vocab_size: int) -> Sequence[int]:  # noqa: ARG001 (as all)
    return ahead.truth[:window]


def _nearly(ahead: Ahead, window: int, rng: random.Random, vocab_size: int) -> Sequence[int]:
    return [token if rng.random() < _RIGHT else rng.randrange(vocab_size) for token in ahead.truth[:window]]


def _misled(ahead: Ahead, window: int, rng: random.Random, vocab_size: int) -> Sequence[int]:
    """Right except for one token, which is the most probable other."""
    draft = list(ahead.truth[:window])
    if draft:
        at = rng.randrange(len(draft))
        draft[at] = _other(ahead, at, rng, vocab_size)
    return draft


def _random(ahead: Ahead, window: int, rng: random.Random, vocab_size: int) -> Sequence[int]:  # noqa: ARG001
    return [rng.randrange(vocab_size) for _ in range(window)]


def _looked_up(ahead: Ahead, window: int, rng: random.Random, vocab_size: int) -> Sequence[int]:  # noqa: ARG001
    suffixes = Suffixes()
    suffixes.extend(ahead.text)
    found = suffixes.find(window)
    return () if found is None else found.token_ids


def _other(ahead: Ahead, at: int, rng: random.Random, vocab_size: int) -> int:
    return ahead.runners_up[at] if at < len(ahead.runners_up) else rng.randrange(vocab_size)


def _tree(ahead: Ahead, nodes: int, rng: random.Random, vocab_size: int) -> Drafted:
    """A tree with a right path of some length; other branches are the most probable other tokens, or random."""
    tokens, parents, depths = list[int](), list[int](), list[int]()
    right = -1  # last node of the right path
    for node in range(nodes):
        level = 0 if right < 0 else depths[right]
        grows = level < len(ahead.truth) and rng.random() < 0.5
        parent = right if grows else rng.randint(-1, node - 1)
        depth = 0 if parent < 0 else depths[parent]
        token = ahead.truth[depth] if grows else _other(ahead, depth, rng, vocab_size)
        tokens.append(token)
        parents.append(parent)
        depths.append(depth + 1)
        right = node if grows else right
    return Drafted(tuple(tokens), tuple(parents))
