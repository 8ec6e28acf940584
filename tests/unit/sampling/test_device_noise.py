"""Tensor operations make the noise that numpy makes, to the last bit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.gpu.noise import Compared, compare
from outrider.contracts.requests import MAX_SEED
from outrider.sampling.device_noise import device_gumbel_noise, gumbel_of
from outrider.sampling.gumbel import CHUNK_WORDS, gumbel_of_words
from outrider.sampling.noise import Purpose, gumbel_noise

CPU = torch.device("cpu")
words = st.integers(0, MAX_SEED)


def test_ten_million_counters_give_the_same_words_and_the_same_noise() -> None:
    assert compare(CPU, 10_000_000, 49_152) == Compared(10_002_432, 0, 0)


@given(st.lists(st.tuples(words, words), max_size=4), st.sampled_from(Purpose), st.integers(0, 50))
def test_rows_are_those_of_their_keys(keys: list[tuple[int, int]], purpose: Purpose, vocab_size: int) -> None:
    seeds, positions = [seed for seed, _ in keys], [position for _, position in keys]
    made = device_gumbel_noise(seeds, positions, purpose, vocab_size, CPU)
    assert made.dtype == torch.float32
    assert made.shape == (len(keys), vocab_size)
    for row, (seed, position) in zip(made, keys, strict=True):
        assert np.array_equal(row.numpy(), gumbel_noise(seed, position, purpose, vocab_size))


@given(st.lists(st.integers(0, 400), unique=True), st.tuples(words, words))
def test_some_tokens_have_the_noise_they_have_among_all(token_ids: list[int], key: tuple[int, int]) -> None:
    wanted = torch.tensor(sorted(token_ids), dtype=torch.int64)
    made = device_gumbel_noise(key[:1], key[1:], Purpose.TARGET_TOKEN, 401, CPU, token_ids=wanted)
    assert np.array_equal(made[0].numpy(), gumbel_noise(*key, Purpose.TARGET_TOKEN, 401)[wanted.numpy()])


def test_words_at_both_ends_give_the_same_noise() -> None:
    ends = np.arange(CHUNK_WORDS // 2, dtype=np.uint64) << np.uint64(12)
    numbers = np.concatenate([ends, ~ends])
    made, noise = gumbel_of(torch.from_numpy(numbers.view(np.int64))), np.empty(numbers.size, dtype=np.float32)
    gumbel_of_words(numbers.copy(), noise)
    assert np.array_equal(made.numpy(), noise)


@pytest.mark.parametrize(("seed", "position"), [(-1, 0), (0, -1), (2**64, 0), (0, 2**64)])
def test_words_outside_64_bits_are_refused(seed: int, position: int) -> None:
    with pytest.raises(OverflowError):
        device_gumbel_noise([seed], [position], Purpose.TARGET_TOKEN, 4, CPU)
