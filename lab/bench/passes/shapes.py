"""Passes to measure, the bytes they read, and the KV blocks of their sequences in a pool. Pure."""

import argparse
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
        """KV bytes of one sequence's resident positions."""
        return self.kv_token * tokens


def parse_shape(text: str) -> PassShape:
    rows, _, generations = text.partition("x")
    if not (rows.isdecimal() and generations.isdecimal() and int(rows) and int(generations)):
        raise argparse.ArgumentTypeError(f"needs ROWSxGENERATIONS such as 4x1, both at least 1, found {text!r}")
    return PassShape(int(rows), int(generations))


@dataclass(frozen=True, slots=True)
class Pool:
    """KV blocks for the sequences of every pass: a long one, then as many as the widest pass has.

    Attributes:
        long_tokens: positions of the long sequence, new ones included.
        tokens: of each other.
        generations: number of others.
    """

    block_tokens: int
    long_tokens: int
    tokens: int
    generations: int

    @property
    def blocks(self) -> int:
        return self._needed(self.long_tokens) + self.generations * self._needed(self.tokens)

    def of_long(self) -> range:
        """Blocks of the long sequence."""
        return range(self._needed(self.long_tokens))

    def of(self, generation: int) -> range:
        each, first = self._needed(self.tokens), self._needed(self.long_tokens)
        return range(first + generation * each, first + (generation + 1) * each)

    def segments(self, shape: PassShape, behind: int) -> list[Segment]:
        """A pass of new tokens behind ``behind`` resident ones of each sequence; of the long one if they do not fit."""
        needed = behind + shape.rows
        if needed <= self.tokens and shape.generations <= self.generations:
            blocks = [self.of(generation) for generation in range(shape.generations)]
        elif needed <= self.long_tokens and shape.generations == 1:
            blocks = [self.of_long()]
        else:
            raise ValueError(f"needs room for {shape} behind {behind} tokens, found {self}")
        new = [1 + row for row in range(shape.rows)]
        used = -(-needed // self.block_tokens)
        return [Segment(new, behind, one[:used], shape.rows) for one in blocks]

    def _needed(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)
