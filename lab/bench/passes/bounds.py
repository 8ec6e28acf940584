"""Lower bound of a pass's time: reading weights and KV once, at this machine's memory bandwidth. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from lab.bench.harness.samples import Spread
from lab.bench.passes.shapes import PassShape


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """Bytes read in a pass: ``weights`` once, ``kv_token`` for each resident position of each sequence."""

    weights: int
    kv_token: int

    def of_pass(self, shape: PassShape, context_tokens: int) -> int:
        """Bytes of a pass, without the KV that the new tokens write."""
        return self.weights + self.of_kv(context_tokens) * shape.generations

    def of_kv(self, tokens: int) -> int:
        """KV bytes of one sequence's resident positions."""
        return self.kv_token * tokens


def ratios(tops: Sequence[float], bottoms: Sequence[float]) -> Spread:
    """Ratios of values measured in the same turn: median, minimum, maximum."""
    return spread([top / bottom for top, bottom in zip(tops, bottoms, strict=True)])


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def over_bound(seconds: Sequence[float], size_bytes: int, bytes_per_s: Sequence[float]) -> Spread:
    """Times of a pass over those of reading ``size_bytes``, at the bandwidth of the same turn."""
    return ratios(seconds, [size_bytes / speed for speed in bytes_per_s])


def attention_over_kv(
    long_s: Sequence[float], short_s: Sequence[float], kv_bytes: int, bytes_per_s: Sequence[float]
) -> Spread:
    """Extra time of a pass behind more KV, over reading that much more KV."""
    return over_bound([long - short for long, short in zip(long_s, short_s, strict=True)], kv_bytes, bytes_per_s)
