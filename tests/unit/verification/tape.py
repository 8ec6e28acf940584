"""Every way the noise can fall, with its probability: a program is run again along each branch.

The random numbers of a run are known by their key (position, purpose, index) and are not fixed: of each only the
interval is known in which it lies so far. A comparison or a draw asks where it falls within that, the tape answers one
way in this run and the others in later ones, and the interval shrinks to the answer. A number used twice is therefore
one number, as it is with the real noise: reuse across rounds, siblings or purposes shows in the law.

Gumbel noise of three tokens is a point of a triangle. With E = exp(-g), the token with the smallest E / p comes first,
E is exponential, and E / sum(E) is uniform on the simplex: a token's coming first under one row of logits cuts a convex
piece out of it, whose area is its probability.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from sys import modules
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from outrider.sampling import distributions, noise

Result = TypeVar("Result")
Point = tuple[float, float, float]  # of the simplex
Array = npt.NDArray[np.float64]

NOTHING = 1e-14  # a way less likely than that is not taken
TRIANGLE: list[Point] = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]


class Number(float):
    """A uniform number that is not fixed yet. Its value only names it: two of a run never have the same."""

    tape: "Tape"

    def __lt__(self, limit: float) -> bool:
        """Falls to one side of the limit, for good."""
        return self.tape.falls(self, [float(limit)]) == 0


class Gumbel(npt.NDArray[np.float64]):
    """The noise of a position; what it is added to decides which token comes first."""

    tape: "Tape"
    position: int

    def __add__(self, rows: npt.NDArray[np.floating]) -> Array:  # type: ignore[override]  # of rows only
        """The scores of each row, one after the other."""
        return np.apply_along_axis(lambda row: self.tape.scores(self.position, row), -1, np.asarray(rows, np.float64))

    __radd__ = __add__  # type: ignore[assignment]


class Tape:
    """Runs programs along all branches of the noise they use."""

    def __init__(self) -> None:
        self._script: list[int] = []
        self._start()

    def _start(self) -> None:
        self._made: list[tuple[int, Array]] = []  # at each branch the way taken, and the probabilities of all
        self._prob = 1.0
        self._numbers: dict[tuple[int, int, int], Number] = {}
        self._ends: dict[float, tuple[float, float]] = {}  # of a number, by its value
        self._pieces: dict[int, list[Point]] = {}  # of the simplex, by position

    def runs(self, program: Callable[[], Result]) -> Iterator[tuple[float, Result]]:
        """What the program returns in each case, and the probability of that."""
        waiting: list[list[int]] = [[]]
        with self._in_place_of_noise():
            while waiting:
                self._script = waiting.pop()
                self._start()
                result = program()
                yield self._prob, result
                ways = [way for way, _ in self._made]
                for at in range(len(self._script), len(self._made)):
                    others = np.flatnonzero(self._made[at][1] > NOTHING)
                    waiting += [[*ways[:at], other] for other in others.tolist() if other > ways[at]]

    def _branch(self, lengths: Sequence[float]) -> int:
        probs = np.maximum(np.array(lengths), 0.0)
        probs /= probs.sum()
        at = len(self._made)
        way = self._script[at] if at < len(self._script) else int(np.flatnonzero(probs > NOTHING)[0])
        self._made.append((way, probs))
        self._prob *= float(probs[way])
        return way

    def falls(self, number: float, limits: Sequence[float]) -> int:
        """Between which of ascending limits a number lies: 0 is below the first."""
        low, high = self._ends[float(number)]
        ends = [low, *np.clip(limits, low, high).tolist(), high]
        way = self._branch([after - before for before, after in pairwise(ends)])
        self._ends[float(number)] = ends[way], ends[way + 1]
        return way

    def scores(self, position: int, row: Array) -> Array:
        """A row with noise in it, as it is somewhere in a piece where the same token comes first."""
        assert row.size == len(TRIANGLE), "the noise of three tokens can be integrated"
        piece, finite = self._pieces.get(position, TRIANGLE), np.flatnonzero(np.isfinite(row)).tolist()
        sides = []
        for one in finite:
            side = piece
            for other in finite:
                # E is apart by its logarithm: ``one`` is ahead of another where E[one] / exp(row[one]) is the smaller.
                if other != one:
                    side = _cut(side, one, other, float(np.exp(row[one] - row[other])))
            sides.append(side)
        piece = sides[self._branch([_area(side) for side in sides])]
        self._pieces[position] = piece
        inside = np.mean(piece, axis=0)
        scores: Array = row - np.log(inside)
        return scores

    @contextmanager
    def _in_place_of_noise(self) -> Iterator[None]:
        real_draws = distributions.draws

        def uniforms(seed: int, position: int, purpose: int, count: int) -> npt.NDArray[np.object_]:  # noqa: ARG001
            numbers = np.empty(count, dtype=object)
            for index in range(count):
                key = position, int(purpose), index
                if key not in self._numbers:
                    number = self._numbers[key] = Number((len(self._numbers) + 1) * 2.0**-20)
                    number.tape = self
                    self._ends[float(number)] = 0.0, 1.0
                numbers[index] = self._numbers[key]
            return numbers

        def gumbel_noise(
            seed: int,  # noqa: ARG001
            position: int,
            purpose: int,
            vocab_size: int,
            *,
            token_ids: object = None,
        ) -> Gumbel:
            assert purpose == noise.Purpose.TARGET_TOKEN
            assert token_ids is None, "the noise of whole rows can be integrated"
            values = np.zeros(vocab_size).view(Gumbel)
            values.tape, values.position = self, position
            return values

        def draws(probs: Array, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
            """The real one, with a number from inside of the interval."""
            ends = np.cumsum(probs) / np.sum(probs)
            drawn = [self.falls(number, ends[:-1].tolist()) for number in numbers.tolist()]
            inside = [np.mean(self._ends[number]) for number in numbers.tolist()]
            found = real_draws(probs, np.array(inside))
            assert found.tolist() == drawn
            return found

        with pytest.MonkeyPatch.context() as patch:
            for real, ours in ((noise.uniforms, uniforms), (noise.gumbel_noise, gumbel_noise), (real_draws, draws)):
                for module in [module for name, module in modules.items() if name.startswith("outrider.")]:
                    for attribute in [key for key, value in vars(module).items() if value is real]:
                        patch.setattr(module, attribute, ours)
            yield


def _cut(piece: list[Point], one: int, other: int, odds: float) -> list[Point]:
    """The part of a convex piece where E[one] is at most ``odds`` times E[other] (Sutherland and Hodgman 1974)."""
    inside = [point[other] - point[one] / odds if odds > 1 else point[other] * odds - point[one] for point in piece]
    part: list[Point] = []
    for index, point in enumerate(piece):
        before, there, here = piece[index - 1], inside[index - 1], inside[index]
        if (there < 0) != (here < 0):
            share = there / (there - here)
            x, y, z = (b + (p - b) * share for b, p in zip(before, point, strict=True))
            part.append((x, y, z))
        if here >= 0:
            part.append(point)
    return part


def _area(piece: list[Point]) -> float:
    """Of its projection; the whole simplex has 1/2."""
    corners = [*piece, *piece[:1]]
    return abs(sum(a[0] * b[1] - a[1] * b[0] for a, b in pairwise(corners))) / 2
