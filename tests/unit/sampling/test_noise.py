"""Noise is a pure function of (seed, position, purpose).

Statistical tests are seeded and state their false-alarm rate.
"""

import hashlib
import math
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import ParameterError, ShapeError
from outrider.contracts.requests import MAX_SEED
from outrider.sampling.gumbel import CHUNK_WORDS, gumbel_of_words
from outrider.sampling.noise import Purpose, gumbel_noise, noisy_scores, uniforms
from outrider.versions import VERSIONS

words = st.integers(0, MAX_SEED)
NOISE_HASH = "01240a23817de884ee9cc7a11d6db15259b28ca3c178995e112d7e17f3b595da"
SECOND_PURPOSE = cast("Purpose", 1)
GOLDEN = [
    0.20429112262964877,
    0.3134745033737568,
    0.026755731961463858,
    0.823174371095721,
    0.30858675441982986,
    0.8313299058950491,
]


@given(seed=words, position=words, count=st.integers(1, 300))
def test_a_draw_depends_on_its_arguments_alone(seed: int, position: int, count: int) -> None:
    first = gumbel_noise(seed, position, Purpose.TARGET_TOKEN, count)
    gumbel_noise(seed ^ 1, position ^ 1, Purpose.TARGET_TOKEN, 7)
    np.random.Generator(np.random.PCG64(seed)).random()
    assert np.array_equal(first, gumbel_noise(seed, position, Purpose.TARGET_TOKEN, count))


@given(seed=words, position=words, short=st.integers(1, 200), longer=st.integers(0, 200))
def test_a_larger_vocabulary_extends_the_draw(seed: int, position: int, short: int, longer: int) -> None:
    whole = uniforms(seed, position, Purpose.TARGET_TOKEN, short + longer)
    assert np.array_equal(whole[:short], uniforms(seed, position, Purpose.TARGET_TOKEN, short))


def test_another_process_draws_the_same() -> None:
    code = (
        "import sys; from outrider.sampling.noise import Purpose, gumbel_noise;"
        "sys.stdout.write(gumbel_noise(2**64 - 1, 12345, Purpose.TARGET_TOKEN, 1000).tobytes().hex())"
    )
    root = Path(__file__).parents[2]
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root)
    assert other.stdout == gumbel_noise(2**64 - 1, 12345, Purpose.TARGET_TOKEN, 1000).tobytes().hex()


def test_the_stream_is_fixed_between_releases() -> None:
    """A drafter of another release must draw the same: these numbers are part of the contract."""
    drawn = uniforms(7, 1000, Purpose.TARGET_TOKEN, 6)
    assert drawn.tolist() == pytest.approx(GOLDEN, rel=1e-15)


def test_streams_of_different_keys_are_uncorrelated() -> None:
    """False-alarm rate 1e-6: |r| of n independent pairs passes sqrt(2 ln(2 m / 1e-6) / n) with rate 1e-6 / m."""
    keys = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (1, 1), (2**32, 0), (0, 2**32), (2**63, 0), (0, 2**63)]
    streams = [uniforms(seed, at, Purpose.TARGET_TOKEN, 20_000) for seed, at in keys]
    streams += [uniforms(seed, at, SECOND_PURPOSE, 20_000) for seed, at in keys]
    pairs = list(combinations(range(len(streams)), 2))
    limit = math.sqrt(2 * math.log(2 * len(pairs) / 1e-6) / 20_000)
    correlation = np.corrcoef(np.stack(streams))
    assert max(abs(correlation[pair]) for pair in pairs) < limit


def test_consecutive_positions_are_independent_of_each_other_token_by_token() -> None:
    """A request's own draws, one token's noise over positions; false-alarm rate 1e-6 as above."""
    drawn = np.stack([uniforms(3, at, Purpose.TARGET_TOKEN, 16) for at in range(10_000)])
    lagged = [np.corrcoef(drawn[:-lag, token], drawn[lag:, token])[0, 1] for lag in (1, 2, 3) for token in range(16)]
    assert np.abs(lagged).max() < math.sqrt(2 * math.log(2 * 48 / 1e-6) / 9_997)


@pytest.mark.parametrize("axis", ["seed", "position"])
def test_uniforms_are_uniform(axis: str) -> None:
    """Chi-square over 64 cells, along one draw per key; false-alarm rate 1e-6 (Laurent and Massart 2000, lemma 1)."""
    keys = [(i, 5) if axis == "seed" else (5, i) for i in range(2000)]
    drawn = np.concatenate([uniforms(seed, at, Purpose.TARGET_TOKEN, 32) for seed, at in keys])
    counts, expected = np.bincount((drawn * 64).astype(np.int64), minlength=64), drawn.size / 64
    statistic = float(((counts - expected) ** 2).sum() / expected)
    x = math.log(1e6)
    assert statistic < 63 + 2 * math.sqrt(63 * x) + 2 * x


@given(seed=words, position=words)
def test_gumbel_noise_is_the_gumbel_quantile_of_the_uniforms(seed: int, position: int) -> None:
    drawn = uniforms(seed, position, Purpose.TARGET_TOKEN, 500)
    noise = gumbel_noise(seed, position, Purpose.TARGET_TOKEN, 500)
    assert noise.dtype == np.float32
    assert np.all((drawn > 0) & (drawn < 1))
    assert np.exp(-np.exp(-noise.astype(np.float64))) == pytest.approx(drawn, abs=2e-6)


def test_the_noise_has_gumbels_distribution() -> None:
    """Kolmogorov's distance of n draws passes sqrt(log(2 / 1e-6) / (2 n)) with rate 1e-6 (Massart 1990)."""
    noise = np.sort(gumbel_noise(11, 5, Purpose.TARGET_TOKEN, 1_000_000).astype(np.float64))
    below = np.exp(-np.exp(-noise))
    steps = np.arange(noise.size + 1) / noise.size
    distance = max(np.abs(below - steps[:-1]).max(), np.abs(below - steps[1:]).max())
    assert distance < math.sqrt(math.log(2 / 1e-6) / (2 * noise.size))


def test_the_largest_noise_has_the_distribution_of_a_largest() -> None:
    """The part that chooses: the largest of V less log V is standard Gumbel again; false-alarm rate 1e-6 as above."""
    largest = [gumbel_noise(3, at, Purpose.TARGET_TOKEN, 4096).max() for at in range(5000)]
    below = np.sort(np.exp(-np.exp(-(np.array(largest, dtype=np.float64) - math.log(4096)))))
    distance = np.abs(below - (np.arange(below.size) + 0.5) / below.size).max() + 0.5 / below.size
    assert distance < math.sqrt(math.log(2 / 1e-6) / (2 * below.size))


def test_noise_is_the_true_quantile_nearly_to_rounding() -> None:
    """Against long doubles, at both ends of the uniforms and between."""
    ends = np.arange(4096, dtype=np.uint64)
    between = np.random.default_rng(0).integers(0, 2**52, 200_000, dtype=np.uint64)
    halves = 2 ** np.arange(1, 52, dtype=np.uint64)
    numbers = np.concatenate([ends, 2**52 - 1 - ends, between, halves, halves - 1])
    words, noise = numbers << np.uint64(12), np.empty(numbers.size, dtype=np.float32)
    for start in range(0, numbers.size, CHUNK_WORDS):
        gumbel_of_words(words[start : start + CHUNK_WORDS].copy(), noise[start : start + CHUNK_WORDS])
    low = (numbers.astype(np.longdouble) + 0.5) * np.longdouble(2.0) ** -52
    exact = -np.log(np.where(low > 0.5, -np.log1p(low - 1), -np.log(low)))
    error = np.abs(noise - exact)
    assert noise.min() > -3.7
    assert noise.max() < 36.8
    assert error.max() < 4e-6
    assert error[exact < 8].max() < 6e-7


def test_the_tokens_drawn_are_those_of_a_librarys_logarithm() -> None:
    """4e-7 of difference exchanges two tokens in one of some million draws: in none of these."""
    rows = np.random.default_rng(1).normal(0, 3, (300, 8192)).astype(np.float32)
    shifted = rows - rows.max(axis=1, keepdims=True)
    library = [-np.log(-np.log(uniforms(9, at, Purpose.TARGET_TOKEN, 8192))) for at in range(300)]
    for at, (row, noise) in enumerate(zip(shifted, library, strict=True)):
        ours, theirs = noisy_scores(row, 9, at), row + noise.astype(np.float32)
        assert np.argmax(ours) == np.argmax(theirs)
        clear = np.sort(theirs)[::-1][:20]
        if np.diff(-clear).min() > 4e-6:
            assert np.argsort(-ours)[:20].tolist() == np.argsort(-theirs)[:20].tolist()


def test_the_noise_is_fixed_between_releases() -> None:
    """Bits, as drafters on other machines have them; other ones need another version of noise."""
    drawn = gumbel_noise(2**64 - 1, 2**63, Purpose.TARGET_TOKEN, 49_152)
    assert VERSIONS.noise == (2, 2)
    assert hashlib.sha256(drawn.astype("<f4").tobytes()).hexdigest() == NOISE_HASH


def test_the_extreme_uniforms_give_finite_noise() -> None:
    """The smallest and largest numbers ``uniforms`` can return; both lie inside (0, 1)."""
    low, high = 0.5 * 2.0**-52, (2.0**52 - 0.5) * 2.0**-52
    assert 0 < low < high < 1
    assert -np.log(-np.log(low)) == pytest.approx(-3.6, abs=0.1)
    assert -np.log(-np.log(high)) == pytest.approx(36.7, abs=0.1)


@pytest.mark.parametrize(("seed", "position"), [(-1, 0), (0, -1), (2**64, 0), (0, 2**64)])
def test_words_outside_64_bits_are_refused(seed: int, position: int) -> None:
    with pytest.raises(OverflowError):
        gumbel_noise(seed, position, Purpose.TARGET_TOKEN, 4)


@given(seed=words, position=words, token_ids=st.sets(st.integers(0, 40_000), max_size=40))
def test_some_tokens_noise_is_that_of_the_whole_row(seed: int, position: int, token_ids: set[int]) -> None:
    ids = np.array(sorted(token_ids), dtype=np.int64)
    whole = gumbel_noise(seed, position, Purpose.TARGET_TOKEN, 40_001)
    some = gumbel_noise(seed, position, Purpose.TARGET_TOKEN, 40_001, token_ids=ids)
    assert some.dtype == np.float32
    assert np.array_equal(some, whole[ids])


@given(seed=words, token_ids=st.sets(st.integers(0, 499), max_size=40))
def test_some_tokens_scores_are_those_of_the_whole_row(seed: int, token_ids: set[int]) -> None:
    rows = np.random.default_rng(seed).normal(0, 9, (2, 500)).astype(np.float32)
    ids = np.array(sorted({*token_ids, *rows.argmax(axis=1).tolist()}), dtype=np.int64)
    some = noisy_scores(rows[:, ids], seed, 12, token_ids=ids)
    assert np.array_equal(some, noisy_scores(rows, seed, 12)[:, ids])


@pytest.mark.parametrize("ids", [[3, 2], [2, 2], [-1, 4], [5, 10], [[1, 2]]])
def test_token_ids_that_are_no_ascending_part_of_the_vocabulary_are_refused(ids: list[int]) -> None:
    with pytest.raises(ParameterError, match=r"token ids needs ascending token ids in 0\.\.9"):
        gumbel_noise(0, 0, Purpose.TARGET_TOKEN, 10, token_ids=np.array(ids, dtype=np.int64))


def test_every_column_needs_its_token_id() -> None:
    with pytest.raises(ShapeError, match="3 columns need one token id each, found 2"):
        noisy_scores(np.zeros(3, dtype=np.float32), 0, 0, token_ids=np.array([1, 2]))
