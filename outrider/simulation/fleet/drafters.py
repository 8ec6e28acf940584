"""Drafters: made when they are first leased, leased as the fleet actor does, busy with one draft after another."""

from math import exp, inf, log
from statistics import NormalDist
from typing import TYPE_CHECKING

from outrider.contracts.link import Direction
from outrider.link.emulator import LinkEmulator
from outrider.routing.lazy_heap import LazyHeap
from outrider.simulation.chance import hashed, link_seed
from outrider.simulation.drafted_rounds import GroupDrafts
from outrider.simulation.fleet.scenario import DrafterGroup
from outrider.simulation.lengths import Lengths
from outrider.simulation.scenario import DeviceGroup

if TYPE_CHECKING:
    from outrider.simulation.fleet.conversation import Conversation

_SPEED, _ACCEPTANCE = 16, 17  # purposes of chance
_LEVELS = 15  # of acceptance, as likely each
_NORMAL = NormalDist()


class DrafterGroupTables:
    """What is the same for all drafters of a group."""

    def __init__(self, group: DrafterGroup) -> None:
        """Write them, once for each level of acceptance."""
        self.group, self.drafts = group, GroupDrafts(_devices(group))
        self.window = len(self.drafts.shape.passes)
        deviations = [_NORMAL.inv_cdf((level + 0.5) / _LEVELS) for level in range(_LEVELS)]
        self.passes = [
            tuple(_shifted(p, group.acceptance_spread * by) for p in self.drafts.shape.passes) for by in deviations
        ]
        self.prefill_s = 0.0 if group.prefill_tokens_per_s is None else 1.0 / group.prefill_tokens_per_s


class SimDrafter:
    """One device. Its computing is done in the order in which it is asked for."""

    __slots__ = ("free_at_s", "leases", "link", "number", "passes", "present", "step_s", "tables")

    def __init__(self, number: int, tables: DrafterGroupTables, seed: int) -> None:
        """Draw what it is like."""
        group = tables.group
        self.number, self.tables = number, tables
        self.leases: set[Conversation] = set()
        self.free_at_s, self.present = 0.0, True
        by = group.speed_spread * _normal(hashed(seed, _SPEED, number)) if group.speed_spread else 0.0
        self.step_s = group.step_s * exp(by)
        level = int(_LEVELS * hashed(seed, _ACCEPTANCE, number)) if group.acceptance_spread else _LEVELS // 2
        self.passes = tables.passes[level]
        self.link = None if group.link is None else LinkEmulator(group.link, link_seed(seed, number))

    def back_at_s(self, bits: tuple[int, int], draft_s: float, now_s: float) -> float:
        """When a block is here that is ordered now, behind whatever the device has to compute before."""
        link, at_s = self.link, now_s
        if link is not None:
            at_s = link.deliver(Direction.DOWN, bits[0], now_s)
        at_s = max(at_s, self.free_at_s)
        self.free_at_s = at_s + draft_s
        at_s += draft_s + self.tables.group.exchange_s
        return at_s if link is None else link.deliver(Direction.UP, bits[1], at_s)

    def prefill(self, tokens: int, now_s: float) -> float:
        """When it has computed a prompt of a response that it is leased to now."""
        if not self.tables.prefill_s:
            return now_s
        self.free_at_s = max(now_s, self.free_at_s) + tokens * self.tables.prefill_s
        return self.free_at_s


class DrafterPool:
    """All of them. Leases go to the one with the least share of its room in use, then by number."""

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
        """How many there are, ready or not."""
        return len(self._table_of)

    @property
    def used(self) -> int:
        """How many were ever leased, or left."""
        return len(self._drafters)

    def any_of(self, group: int, share: float) -> int:
        """One of a group, by a number in [0, 1)."""
        before = sum(table.group.count for table in self.tables[:group])
        return before + int(share * self.tables[group].group.count)

    def lease(self, conversation: "Conversation") -> SimDrafter | None:
        """One with room; None if there is none."""
        number = self._ready.first()
        if number is None:
            return None
        drafter = self.drafter(number)
        drafter.leases.add(conversation)
        self._rank(drafter)
        return drafter

    def release(self, drafter: SimDrafter, conversation: "Conversation") -> None:
        drafter.leases.discard(conversation)
        if drafter.present:
            self._rank(drafter)

    def depart(self, number: int) -> "list[Conversation]":
        """A device is gone; those it was leased to, in their order."""
        drafter = self.drafter(number)
        drafter.present, self.losses = False, self.losses + 1
        self._ready.drop(number)
        orphans = sorted(drafter.leases, key=lambda one: one.number)
        drafter.leases.clear()
        return orphans

    def returns(self, number: int, now_s: float) -> None:
        """It is back, idle."""
        drafter = self.drafter(number)
        drafter.present, drafter.free_at_s = True, now_s
        self._rank(drafter)

    def drafter(self, number: int) -> SimDrafter:
        """By number, over all groups."""
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
    """As far as drafts depend on them; what they ask for is up to conversations."""
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
    """A probability with its log-odds changed; one that is certain stays so."""
    if by == 0.0 or not 0.0 < probability < 1.0:
        return probability
    odds = log(probability / (1.0 - probability)) + by
    return 1.0 / (1.0 + exp(-odds))


def _normal(uniform: float) -> float:
    return _NORMAL.inv_cdf(max(uniform, 1e-12))


def exponential(uniform: float, mean_s: float) -> float:
    """A time with this mean, by a number in [0, 1)."""
    return -mean_s * log(1.0 - uniform) if mean_s < inf else inf
