"""Pairs of a drafter and a target over a few tokens, as different as pairs can be."""

from collections.abc import Callable
from functools import cache

import numpy as np
from hypothesis import strategies as st

from outrider.contracts.exchanged import FloatRow
from tests.unit.verification.oracle import softmax

Model = Callable[[tuple[int, ...]], FloatRow]  # by the tokens behind the prefix

KINDS = ("random", "flat", "peaked", "disjoint", "equal", "truncated target")
_SCALE = {"flat": 0.05, "peaked": 12.0}


def pair(kind: str, vocab: int, seed: int) -> tuple[Model, Model]:
    """The drafter's logits and the target's probabilities, by the tokens behind the prefix."""
    half = np.arange(vocab) < (vocab + 1) // 2

    def normal(which: int, path: tuple[int, ...]) -> FloatRow:
        scale = _SCALE.get(kind, 2.0)
        return np.random.default_rng([seed, which, *path]).normal(scale=scale, size=vocab).astype(np.float32)

    @cache
    def draft_logits(path: tuple[int, ...]) -> FloatRow:
        row = normal(0, path)
        return np.where(half, row, -np.inf).astype(np.float32) if kind == "disjoint" else row

    @cache
    def target_probs(path: tuple[int, ...]) -> FloatRow:
        row = normal(0 if kind == "equal" else 1, path)
        if kind in ("disjoint", "truncated target"):
            row[half if kind == "disjoint" else row < np.median(row)] = -np.inf
        return softmax(row).astype(np.float32)

    return draft_logits, target_probs


pairs = st.tuples(st.sampled_from(KINDS), st.integers(3, 8), st.integers(0, 2**32))
