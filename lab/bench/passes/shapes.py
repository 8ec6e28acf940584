"""Passes to measure, the bytes they read, and the KV blocks of their sequences in a pool. Pure."""

from dataclasses import dataclass

from outrider.engines.forward_model import Segment


@dataclass(frozen=True, slots=True)
class PassShape:
    """``rows`` new tokens of each of several generations, all of which need logits."""

    rows: int
    generations: int

    @property
    def total_rows(self) -> int:
        return self.rows * self.generations

    def __str__(self) -> str:
        """``4x1``: four rows of one generation."""
        return f"{self.rows}x{self.generations}"


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """Bytes read in a pass: ``weights`` once, ``kv_token`` for each resident position of each sequence."""

    weights: int
    kv_token: int

    def of_pass(self, shape: PassShape, behind: int) -> int:
        """Bytes of a pass, without the KV that the new tokens write."""
        return self.weights + self.of_kv(behind) * shape.generations

    def of_kv(self, tokens: int) -> int:
        return self.kv_token * tokens


@dataclass(frozen=True, slots=True)
class Pool:
    """KV blocks for ``generations`` sequences of at most ``tokens`` positions, new ones included."""

    block_tokens: int
    tokens: int
    generations: int

    @property
    def blocks(self) -> int:
        return self.generations * self._each

    def of(self, generation: int) -> range:
        return range(generation * self._each, (generation + 1) * self._each)

    def segments(self, shape: PassShape, behind: int) -> list[Segment]:
        """A pass of new tokens behind ``behind`` resident ones of each sequence."""
        needed = behind + shape.rows
        if needed > self.tokens or shape.generations > self.generations:
            raise ValueError(f"needs room for {shape} behind {behind} tokens, found {self}")
        new = [1 + row for row in range(shape.rows)]
        used = -(-needed // self.block_tokens)
        return [Segment(new, behind, self.of(one)[:used], shape.rows) for one in range(shape.generations)]

    @property
    def _each(self) -> int:
        return -(-self.tokens // self.block_tokens)
