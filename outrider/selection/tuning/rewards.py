"""Rewards of speculation modes by load (committed tokens/s of an active generation), and comparisons of two modes.

A *load* is a mean number of active generations. Loads fall into cells: each number up to eight is a cell of its own,
above that each cell is a quarter wider than the one before. Within a cell a mode's reward is an average that forgets
over tens of seconds of the mode's own time in the cell.

Two modes are compared by the ratio of their rewards in cells where both are known, weighted towards the present load.
The ratio changes slowly with the load although rewards do not. Evidence from distant loads has a larger deviation.

What an earlier tuner measured on this machine stands in for cells where not both are measured now. Only its ratios do:
the machine may be faster or slower today, and other prompts shift the ratios too, so they have a larger deviation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log, sqrt
from types import MappingProxyType

from outrider.selection.tuning.epoch_samples import EpochThroughput

_MEMORY_S = 30.0  # an epoch's weight falls to 1/e after so much of its mode's time in the cell
_EXACT_LOADS = 8
_CELL_RATIO = 1.25
_FIRST_NOISE, _LEAST_NOISE, _MOST_NOISE = 0.08, 0.02, 0.4  # of an epoch's reward, relative
_FIRST_EPOCHS = 3.0  # weight of the first guess of the noise, in epochs
_CHANGED = log(1.2)  # a change: two epochs in a row off by more than this, and by more than so many deviations
_CHANGED_DEVIATIONS = 3.0
_DOUBTED_EPOCHS = 0.25  # most weight, in epochs, that a mode's rewards at other loads keep after a change
_RATIO_SLOPE = 0.3  # deviation of the logarithm of two modes' ratio where the load is e times another
_NEAR = log(1.6)  # loads within this ratio (log) count as measured near one another
_ELASTICITY = 0.5  # reward falls with about this power of the load: between 0 (idle server) and 1 (full server)
_SURE_DEVIATIONS = 1.5
_EARLIER_DEVIATION = 0.05  # of a ratio that was measured on other prompts, in log
_EARLIER_EPOCHS = 8.0  # most weight of a reward that is kept for the next start
_LATER = 0.1  # a higher share of late rounds by this much decides a comparison, whatever the speeds


def load_cell(load: float) -> int:
    if load < _EXACT_LOADS + 0.5:
        return max(1, round(load))
    return _EXACT_LOADS + max(1, round(log(load / _EXACT_LOADS) / log(_CELL_RATIO)))


@dataclass(frozen=True, slots=True)
class Reward:
    """Reward of a mode in one cell."""

    load: float  # mean of the epochs' loads
    tokens_per_s: float  # of one generation
    epochs: float  # weight of the epochs behind it, after forgetting
    variance: float  # of one epoch's reward, relative
    late: float | None = None  # share of rounds slower than promised; None if none had a promise
    surprise: float = 0.0  # log deviation of the last epoch, if too large to be believed yet; else 0

    def measured(self) -> tuple[float, float, float, float]:
        """Return what a later start can use: load, tokens/s, epochs, variance."""
        return self.load, self.tokens_per_s, self.epochs, self.variance


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of a mode with another one at one load."""

    log_ratio: float = 0.0  # of their rewards
    deviation: float = inf  # standard deviation of that
    distance: float = inf  # log ratio to the nearest load where both are known; infinite if there is none
    later: float = 0.0  # its share of late rounds, less the other's

    @property
    def known(self) -> bool:
        """Whether both modes were measured near this load."""
        return self.distance <= _NEAR

    @property
    def loss(self) -> float:
        """Share of the other's reward that the mode loses; negative: share of its own that the other would lose."""
        if abs(self.later) > _LATER:
            return 1.0 if self.later > 0.0 else -1.0
        return 1.0 - exp(self.log_ratio) if self.log_ratio < 0.0 else exp(-self.log_ratio) - 1.0

    def better(self, margin: float) -> bool:
        """Whether it is better by more than the margin, with confidence."""
        return self._exceeds(max(log(1.0 + margin), _SURE_DEVIATIONS * self.deviation))

    def no_better(self, margin: float) -> bool:
        """Whether it is not better by the margin, with confidence. Between the two lies an unclear result."""
        return not self._exceeds(log(1.0 + margin) - _SURE_DEVIATIONS * self.deviation)

    def _exceeds(self, least: float) -> bool:
        return self.later < 0.0 if abs(self.later) > _LATER else self.log_ratio > least


class Rewards:
    """Rewards of all modes in all cells. Mutable."""

    def __init__(self, earlier: Mapping[str, Sequence[Reward]] = MappingProxyType({})) -> None:
        """Begin with what an earlier tuner measured (``lasting``)."""
        self._cells: dict[str, dict[int, Reward]] = {}
        self._earlier = {mode: {load_cell(one.load): one for one in cells} for mode, cells in earlier.items()}

    def of(self, mode: str) -> tuple[Reward, ...]:
        """Return a mode's rewards, sorted by load."""
        return tuple(reward for _, reward in sorted(self._cells.get(mode, {}).items()))

    def observe(self, mode: str, found: EpochThroughput) -> bool:
        """Learn from an epoch. Return whether the mode's reward has changed at this load, for better or worse."""
        cells, cell = self._cells.setdefault(mode, {}), load_cell(found.load)
        known, fresh = cells.get(cell), _first(found)
        if known is None:
            cells[cell] = fresh
            return False
        off = _log(found.tokens_per_s) - _log(known.tokens_per_s) + _ELASTICITY * log(found.load / known.load)
        # ``off``: log deviation of the epoch's reward from the one known, both brought to one load.
        surprising = abs(off) > max(_CHANGED, _CHANGED_DEVIATIONS * sqrt(known.variance))
        if surprising and known.surprise * off > 0.0:  # the second in a row, in the same direction
            for other, reward in cells.items():
                cells[other] = replace(reward, epochs=min(reward.epochs, _DOUBTED_EPOCHS))
            cells[cell] = fresh
            return True
        kept = known.epochs * exp(-found.seconds / _MEMORY_S)
        share = 1.0 / (kept + 1.0)
        noise = min(abs(off), _MOST_NOISE) ** 2 - known.variance
        cells[cell] = Reward(
            load=known.load + share * (found.load - known.load),
            tokens_per_s=known.tokens_per_s + share * (found.tokens_per_s - known.tokens_per_s),
            epochs=kept + 1.0,
            variance=max(_LEAST_NOISE**2, known.variance + noise / (kept + 1.0 + _FIRST_EPOCHS)),
            late=_mixed(known.late, found.late, share),
            surprise=off if surprising else 0.0,
        )
        return False

    def surprise(self, mode: str, load: float) -> float:
        """Return the log deviation of the last epoch at this load, if not believed yet; positive: faster."""
        known = self._cells.get(mode, {}).get(load_cell(load))
        return 0.0 if known is None else known.surprise

    def tokens_per_s(self, mode: str, load: float) -> float | None:
        """Return a mode's reward, from the nearest load known; None if that is far from this one."""
        nearest = min(self._cells.get(mode, {}).values(), key=lambda one: abs(log(one.load / load)), default=None)
        if nearest is None or abs(log(nearest.load / load)) > _NEAR:
            return None
        return nearest.tokens_per_s * exp(_ELASTICITY * log(nearest.load / load))

    def compare(self, mode: str, other: str, load: float) -> Comparison:
        """Compare a mode with another one, from the cells where both are known."""
        weights = total = later = 0.0
        distance = inf
        for one, two, extra in self._pairs(mode, other):
            apart = abs(log(one.load / load))
            variance = one.variance / one.epochs + two.variance / two.epochs + extra
            # Inverse variance, to which distance adds; the last factor lets distant cells fade out altogether.
            weight = 1.0 / (variance + (_RATIO_SLOPE * apart) ** 2) / (1.0 + (apart / _NEAR) ** 4)
            ratio = _log(one.tokens_per_s) - _log(two.tokens_per_s) + _ELASTICITY * log(one.load / two.load)
            weights, total = weights + weight, total + weight * ratio
            later += weight * (0.0 if one.late is None or two.late is None else one.late - two.late)
            distance = min(distance, apart)
        if weights == 0.0:
            return Comparison()
        return Comparison(total / weights, 1.0 / sqrt(weights), distance, later / weights)

    def _pairs(self, mode: str, other: str) -> Iterator[tuple[Reward, Reward, float]]:
        """Yield the rewards of two modes by cell, and what is to be added to the variance of their ratio."""
        mine, theirs = self._cells.get(mode, {}), self._cells.get(other, {})
        for cell in mine.keys() & theirs.keys():
            yield mine[cell], theirs[cell], 0.0
        before, theirs_before = self._earlier.get(mode, {}), self._earlier.get(other, {})
        for cell in before.keys() & theirs_before.keys() - (mine.keys() & theirs.keys()):
            yield before[cell], theirs_before[cell], _EARLIER_DEVIATION**2

    def lasting(self) -> dict[str, tuple[Reward, ...]]:
        """Return what the next tuner may begin with: in each cell present rewards, and earlier ones in their scale."""
        kept: dict[str, list[Reward]] = {mode: [] for mode in {**self._earlier, **self._cells}}
        for cell in {cell for cells in (*self._cells.values(), *self._earlier.values()) for cell in cells}:
            now = {mode: cells[cell] for mode, cells in self._cells.items() if cell in cells}
            before = {mode: cells[cell] for mode, cells in self._earlier.items() if cell in cells}
            both = [now[mode].tokens_per_s / before[mode].tokens_per_s for mode in now if mode in before]
            if both or not now:
                faster = max(both, default=1.0)  # than when those were measured
                for mode in before.keys() - now.keys():
                    kept[mode].append(replace(before[mode], tokens_per_s=before[mode].tokens_per_s * faster))
            for mode, one in now.items():
                kept[mode].append(replace(one, epochs=min(one.epochs, _EARLIER_EPOCHS), late=None, surprise=0.0))
        return {mode: tuple(rewards) for mode, rewards in kept.items()}


def _first(found: EpochThroughput) -> Reward:
    return Reward(found.load, found.tokens_per_s, 1.0, max(_FIRST_NOISE**2, found.variance), found.late)


def _log(tokens_per_s: float) -> float:
    return log(max(tokens_per_s, 1e-6))


def _mixed(known: float | None, found: float | None, share: float) -> float | None:
    if known is None or found is None:
        return known if found is None else found
    return known + share * (found - known)
