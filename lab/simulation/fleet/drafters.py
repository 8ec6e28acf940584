"""Simulate a fleet's drafters: leased by the fleet actor's rule, each computing one thing at a time."""

from math import exp, inf, log
from statistics import NormalDist

from lab.simulation.chance import hashed, link_seed
from lab.simulation.drafted_rounds import GroupDrafts
from lab.simulation.fleet.scenario import DrafterGroup
from lab.simulation.lengths import Lengths
from lab.simulation.scenario import DeviceGroup
from outrider.contracts.link import Direction
from outrider.link.emulator import LinkEmulator
from outrider.routing.lazy_heap import LazyHeap

_SPEED, _ACCEPTANCE = 16, 17  # purposes of chance
_LEVELS = 15  # levels of acceptance in a group, all equally likely
_NORMAL = NormalDist()


class DrafterGroupTables:
    def __init__(self, group: DrafterGroup) -> None:
        """Compute probabilities of acceptance for ``_LEVELS`` quantiles of the spread; a drafter's is one of them."""
        self.group, self.drafts = group, GroupDrafts(_devices(group))
        self.window = len(self.drafts.shape.passes)
        deviations = [_NORMAL.inv_cdf((level + 0.5) / _LEVELS) for level in range(_LEVELS)]
        self.passes = [
            tuple(_shifted(p, group.acceptance_spread * by) for p in self.drafts.shape.passes) for by in deviations
        ]
        self.prefill_s = 0.0 if group.prefill_tokens_per_s is None else 1.0 / group.prefill_tokens_per_s


class SimDrafter:
    """One device. It computes prompts and drafts in the order of the requests, one after another."""

    __slots__ = ("free_at_s", "leases", "link", "number", "passes", "present", "step_s", "tables")

    def __init__(self, number: int, tables: DrafterGroupTables, seed: int) -> None:
        """Draw the device's speed and acceptance."""
        group = tables.group
        self.number, self.tables = number, tables
        self.leases = set[int]()  # numbers of the conversations that it drafts for
        self.free_at_s, self.present = 0.0, True
        by = group.speed_spread * _normal(hashed(seed, _SPEED, number)) if group.speed_spread else 0.0
        self.step_s = group.step_s * exp(by)
        level = int(_LEVELS * hashed(seed, _ACCEPTANCE, number)) if group.acceptance_spread else _LEVELS // 2
        self.passes = tables.passes[level]
        self.link = None if group.link is None else LinkEmulator(group.link, link_seed(seed, number))

    def back_at_s(self, bits: tuple[int, int], draft_s: float, now_s: float) -> float:
        """Return when a block ordered now arrives; the device first finishes what it was given before."""
        link, at_s = self.link, now_s
        if link is not None:
            at_s = link.deliver(Direction.DOWN, bits[0], now_s)
        at_s = max(at_s, self.free_at_s)
        self.free_at_s = at_s + draft_s
        at_s += draft_s + self.tables.group.exchange_s
        return at_s if link is None else link.deliver(Direction.UP, bits[1], at_s)

    def prefill(self, tokens: int, now_s: float) -> float:
        """Return when a prompt given now is computed."""
        if not self.tables.prefill_s:
            return now_s
        self.free_at_s = max(now_s, self.free_at_s) + tokens * self.tables.prefill_s
        return self.free_at_s


class DrafterPool:
    """All drafters. A lease goes to the one with the smallest share of its slots in use, then the lowest number.

    Conversations are numbers.
    """

    def __init__(self, groups: tuple[DrafterGroup, ...], seed: int) -> None:
        self._seed = seed
        self.tables = [DrafterGroupTables(group) for group in groups]
        self._table_of = [table for table in self.tables for _ in range(table.group.count)]
        self._drafters: dict[int, SimDrafter] = {}
        self._ready = LazyHeap[int]()
        self.losses = 0
        for number in range(len(self._table_of)):
            self._ready.set(number, 0.0)

    def __len__(self) -> int:
        return len(self._table_of)

    @property
    def used(self) -> int:
        """Number of drafters that were ever leased or lost."""
        return len(self._drafters)

    def any_of(self, group: int, share: float) -> int:
        """Choose a drafter of a group by a number in [0, 1)."""
        before = sum(table.group.count for table in self.tables[:group])
        return before + int(share * self.tables[group].group.count)

    def lease(self, conversation: int) -> SimDrafter | None:
        """Lease a drafter that has a slot; return None if there is none."""
        number = self._ready.first()
        if number is None:
            return None
        drafter = self.drafter(number)
        drafter.leases.add(conversation)
        self._rank(drafter)
        return drafter

    def release(self, drafter: SimDrafter, conversation: int) -> None:
        drafter.leases.discard(conversation)
        if drafter.present:
            self._rank(drafter)

    def depart(self, number: int) -> list[int]:
        """Take a lost device out; return the conversations that it was leased to, ascending."""
        drafter = self.drafter(number)
        drafter.present, self.losses = False, self.losses + 1
        self._ready.drop(number)
        orphans = sorted(drafter.leases)
        drafter.leases.clear()
        return orphans

    def restore(self, number: int, now_s: float) -> None:
        """Put a device back that was lost; it is idle."""
        drafter = self.drafter(number)
        drafter.present, drafter.free_at_s = True, now_s
        self._rank(drafter)

    def drafter(self, number: int) -> SimDrafter:
        """Return a drafter by its number over all groups; create it if it does not exist yet."""
        drafter = self._drafters.get(number)
        if drafter is None:
            drafter = self._drafters[number] = SimDrafter(number, self._table_of[number], self._seed)
        return drafter

    def _rank(self, drafter: SimDrafter) -> None:
        leases, most = len(drafter.leases), drafter.tables.group.max_generations
        if leases < most:
            self._ready.set(drafter.number, leases / most)
        else:
            self._ready.drop(drafter.number)


def _devices(group: DrafterGroup) -> DeviceGroup:
    """Return the group as ``GroupDrafts`` needs it; prompt and output lengths are placeholders."""
    return DeviceGroup(
        name=group.name,
        count=group.count,
        acceptance=group.acceptance,
        prompt=Lengths(tokens=1),
        output=Lengths(tokens=1),
        window=group.window,
        protocol=group.protocol,
        exchange_s=group.exchange_s,
        step_s=group.step_s,
        link=group.link,
    )


def _shifted(probability: float, by: float) -> float:
    """Add ``by`` to a probability's log-odds; 0 and 1 stay as they are."""
    if by == 0.0 or not 0.0 < probability < 1.0:
        return probability
    odds = log(probability / (1.0 - probability)) + by
    return 1.0 / (1.0 + exp(-odds))


def _normal(uniform: float) -> float:
    return _NORMAL.inv_cdf(max(uniform, 1e-12))


def exponential(uniform: float, mean_s: float) -> float:
    """Return the quantile of an exponentially distributed time at a number in [0, 1)."""
    return -mean_s * log(1.0 - uniform) if mean_s < inf else inf
