"""Plan the batches to measure: the configurations of WISP Appendix C, scaled to the machine, and a sixth kind of ours.

The paper's 123 training configurations are 25 compute-bound ones on a grid (totals of 1200 to 2000 tokens, nothing
cached, in batch patterns single, split in 2, split in 4, varied), 48 memory-bound ones on a grid (1 to 100 new tokens
of 500 to 2000, batches of 1 and 4), 15 and 15 random ones of both, and 20 mixed ones; its 50 test configurations come
from other seeds. Here 2000 tokens are ``largest_tokens``, and the rest is scaled by the same factor. The paper does not
define "varied", nor the split of the 50. Here, two uneven patterns (5 totals x 5 patterns = 25), and 16 compute-bound,
26 memory-bound and 8 mixed configurations, all random.

The sixth kind has the rows of real verification: 1 + K for short drafts, at several batch sizes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from outrider.contracts.cost import VerifyCost
from outrider.contracts.errors import ParameterError
from outrider.costs.fit_figures import BatchKind

SMALLEST_LARGEST_TOKENS = 64
_PATTERNS = ((1.0,), (0.5, 0.5), (0.25, 0.25, 0.25, 0.25), (0.5, 0.25, 0.125, 0.125), (0.7, 0.2, 0.1))
_TOTAL_SHARES = (0.6, 0.7, 0.8, 0.9, 1.0)  # 1200 to 2000 of 2000
_LENGTH_SHARES = (0.25, 0.5, 0.75, 1.0)  # 500 to 2000
_NEW_SHARES = (0.0005, 0.0025, 0.005, 0.01, 0.025, 0.05)  # 1 to 100
_MEMORY_BATCHES = (1, 4)
_LARGEST_DRAFT = 8


@dataclass(frozen=True, slots=True)
class Configuration:
    """One batch to measure: blocks with new and resident positions."""

    kind: BatchKind
    blocks: tuple[VerifyCost, ...]

    @property
    def new_tokens(self) -> int:
        return sum(block.new_tokens for block in self.blocks)


@dataclass(frozen=True, slots=True)
class ProfilingPlan:
    """Configurations to fit on and to test with; none is in both."""

    train: tuple[Configuration, ...]
    test: tuple[Configuration, ...]


def profiling_plan(largest_tokens: int, seed: int = 0, share: float = 1.0) -> ProfilingPlan:
    """Return the configurations for a machine.

    Args:
        largest_tokens: positions of the largest computed batch, and of the longest mostly cached block.
        seed: of the random configurations.
        share: in (0, 1], of each kind to keep, evenly spaced over its grid.

    Raises:
        ParameterError: ``largest_tokens`` is too small, or ``share`` is out of range.
    """
    if largest_tokens < SMALLEST_LARGEST_TOKENS:
        raise ParameterError("largest_tokens", f"at least {SMALLEST_LARGEST_TOKENS}", largest_tokens)
    if not 0.0 < share <= 1.0:
        raise ParameterError("share", "a number in (0, 1]", share)
    rng = np.random.default_rng((seed, 0))
    kinds: tuple[Sequence[Configuration], ...] = (
        tuple(_compute_grid(largest_tokens)),
        tuple(_memory_grid(largest_tokens)),
        _drawn(15, _random_compute, largest_tokens, rng, ()),
        _drawn(15, _random_memory, largest_tokens, rng, ()),
        _drawn(20, _random_mixed, largest_tokens, rng, ()),
        tuple(_verification_grid(largest_tokens, rng)),
    )
    train = tuple(configuration for kind in kinds for configuration in _thinned(kind, share))
    rng = np.random.default_rng((seed, 1))
    test: list[Configuration] = []
    for count, draw in ((16, _random_compute), (26, _random_memory), (8, _random_mixed), (12, _random_verification)):
        test += _drawn(max(1, round(share * count)), draw, largest_tokens, rng, train)
    return ProfilingPlan(train, tuple(test))


def _thinned(kind: Sequence[Configuration], share: float) -> list[Configuration]:
    count = max(1, round(share * len(kind)))
    return [kind[index * len(kind) // count] for index in range(count)]


_Draw = Callable[[int, np.random.Generator], Configuration]


def _drawn(
    count: int, draw: _Draw, largest: int, rng: np.random.Generator, taken: Sequence[Configuration]
) -> list[Configuration]:
    seen, found = set(taken), list[Configuration]()
    while len(found) < count:
        one = draw(largest, rng)
        if one not in seen:
            seen.add(one)
            found.append(one)
    return found


def _compute_grid(largest: int) -> Iterable[Configuration]:
    for total, pattern in product(_TOTAL_SHARES, _PATTERNS):
        yield _cold(max(1, round(largest * total * part)) for part in pattern)


def _memory_grid(largest: int) -> Iterable[Configuration]:
    new_counts: list[int] = []
    for new_share in _NEW_SHARES:
        # On a small scale rounded shares coincide: keep the counts distinct.
        new_counts.append(max(round(largest * new_share), new_counts[-1] + 1 if new_counts else 1))
    for new, length, blocks in product(new_counts, _LENGTH_SHARES, _MEMORY_BATCHES):
        yield Configuration(BatchKind.MEMORY_BOUND, (VerifyCost(new, round(largest * length) - new),) * blocks)


def _verification_grid(largest: int, rng: np.random.Generator) -> Iterable[Configuration]:
    for draft, blocks in product(range(_LARGEST_DRAFT + 1), (1, 2, 4)):
        cached = (_between(rng, largest // 8, largest // 2) for _ in range(blocks))
        yield Configuration(BatchKind.VERIFICATION, tuple(VerifyCost(1 + draft, prefix) for prefix in cached))


def _random_compute(largest: int, rng: np.random.Generator) -> Configuration:
    total, blocks = _between(rng, round(0.6 * largest), largest), _between(rng, 1, 6)
    cuts = np.sort(rng.choice(np.arange(1, total), blocks - 1, replace=False))
    return _cold(np.diff([0, *cuts, total]).tolist())


def _random_memory(largest: int, rng: np.random.Generator) -> Configuration:
    def block() -> VerifyCost:
        new = _between(rng, 1, max(2, largest // 20))
        return VerifyCost(new, _between(rng, largest // 4, largest) - new)

    return Configuration(BatchKind.MEMORY_BOUND, tuple(block() for _ in range(_between(rng, 1, 4))))


def _random_mixed(largest: int, rng: np.random.Generator) -> Configuration:
    cold = [VerifyCost(_between(rng, largest // 20, largest // 3), 0) for _ in range(_between(rng, 1, 2))]
    return Configuration(BatchKind.MIXED, (*cold, *_random_memory(largest, rng).blocks[: _between(rng, 1, 4)]))


def _random_verification(largest: int, rng: np.random.Generator) -> Configuration:
    blocks = (
        VerifyCost(_between(rng, 1, 1 + _LARGEST_DRAFT), _between(rng, largest // 8, largest // 2))
        for _ in range(_between(rng, 1, 6))
    )
    return Configuration(BatchKind.VERIFICATION, tuple(blocks))


def _cold(new_counts: Iterable[int]) -> Configuration:
    return Configuration(BatchKind.COMPUTE_BOUND, tuple(VerifyCost(new, 0) for new in new_counts))


def _between(rng: np.random.Generator, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))
