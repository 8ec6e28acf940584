"""Shared noise of a device against numpy's: words and Gumbel values bit for bit, key by key."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
import torch

from lab.bench.gpu.setting import Found, Setting
from outrider.contracts.requests import MAX_SEED
from outrider.sampling.device_noise import device_words, gumbel_of
from outrider.sampling.noise import BLOCK_WORDS, Purpose, gumbel_noise

# Extremes of both halves of a word, and numbers without a pattern.
WORDS = (0, 1, 7, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, MAX_SEED - 1, MAX_SEED, 0x9E3779B97F4A7C15)
_KEYS_AT_ONCE = 16
_DRAWS, _FEW_DRAWS = 1_000_000, 20_000
_VOCAB = 49_152
_WORDS_A_COUNTER = 4


def run(setting: Setting) -> Found:
    counters = (_FEW_DRAWS if setting.small else _DRAWS) // _WORDS_A_COUNTER
    found = compare(setting.device, counters, _VOCAB)
    draws = found.counters * _WORDS_A_COUNTER
    faults = [] if found.equal else [f"{found.other_words} words and {found.other_noise} values differ from numpy's"]
    header = ("draws", "words that differ", "values that differ")
    figures = {"draws": draws, "other_words": found.other_words, "other_noise": found.other_noise}
    return Found(header, [(draws, found.other_words, found.other_noise)], figures, faults)


@dataclass(frozen=True, slots=True)
class Compared:
    counters: int  # of Philox, four words each
    other_words: int  # that differ
    other_noise: int  # values that differ

    @property
    def equal(self) -> bool:
        return not (self.other_words or self.other_noise)


def keys() -> Iterator[tuple[Purpose, int, int]]:
    """Yield purpose, seed and position: all extremes first, then others without end."""
    yield from product(Purpose, WORDS, WORDS)
    random = np.random.default_rng(5)
    while True:
        seed, position = (int(word) for word in random.integers(0, MAX_SEED, 2, dtype=np.uint64, endpoint=True))
        yield Purpose.TARGET_TOKEN, seed, position


def compare(device: torch.device, counters: int, vocab_size: int) -> Compared:
    """Compare at least ``counters`` of Philox, in rows of ``vocab_size``."""
    blocks = -(-vocab_size // BLOCK_WORDS)
    wanted = list(islice(keys(), -(-counters // blocks)))
    other_words = other_noise = 0
    for purpose in Purpose:
        pairs = [(seed, position) for of, seed, position in wanted if of is purpose]
        for start in range(0, len(pairs), _KEYS_AT_ONCE):
            seeds, positions = zip(*pairs[start : start + _KEYS_AT_ONCE], strict=True)
            made = device_words(seeds, positions, purpose, vocab_size, device)
            words, noise = made.cpu().numpy().view(np.uint64), gumbel_of(made).cpu().numpy()
            for seed, position, its_words, its_noise in zip(seeds, positions, words, noise, strict=True):
                other_words += int((its_words != _numpy_words(seed, position, purpose, vocab_size)).sum())
                ours = gumbel_noise(seed, position, purpose, vocab_size)
                other_noise += int((its_noise.view(np.int32) != ours.view(np.int32)).sum())
    return Compared(len(wanted) * blocks, other_words, other_noise)


def _numpy_words(seed: int, position: int, purpose: Purpose, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    key, counter = np.array([seed, 0], dtype=np.uint64), np.array([0, position, purpose, 0], dtype=np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(count)
