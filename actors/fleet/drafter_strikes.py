"""Counts reports against a drafter, and how often it was taken out. Pure.

One generation's report is not enough to take a drafter out: the generation itself may break any drafter.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace

from actors.messages import DrafterId
from outrider.contracts.requests import GenerationId

ENOUGH_ACCUSERS = 2
_FORGIVEN_S = 300.0  # time without a strike after which the count restarts
_MOST_REPORTED = 8  # drafters with most strikes
_MOST_STANDINGS = 4096  # until those that are forgiven are dropped
_SPREAD = 0.25  # random share of a pause: drafters taken out together must not come back together


@dataclass(frozen=True, slots=True)
class DrafterStrikes:
    accusers: frozenset[GenerationId] = frozenset()  # generations that reported it since it was taken out last
    strikes: int = 0
    struck_at_s: float = float("-inf")

    def doubted(self, generation: GenerationId) -> "DrafterStrikes":
        return replace(self, accusers=self.accusers | {generation})

    @property
    def broken(self) -> bool:
        return len(self.accusers) >= ENOUGH_ACCUSERS

    def forgiven(self, now_s: float) -> bool:
        return now_s - self.struck_at_s > _FORGIVEN_S

    def struck(self, now_s: float) -> "DrafterStrikes":
        """Add a strike, as the drafter is taken out, and clear the reports."""
        strikes = 1 if self.forgiven(now_s) else self.strikes + 1
        return DrafterStrikes(strikes=strikes, struck_at_s=now_s)

    def pause_s(self, first_s: float, most_s: float, chance: float) -> float:
        """Return the pause before the next try: doubled by each strike, spread by ``chance``, which is in 0..1."""
        doublings = min(max(0, self.strikes - 1), 30)
        return min(first_s * 2.0**doublings, most_s) * (1.0 + _SPREAD * (2.0 * chance - 1.0))


class DrafterStandings:
    """Reports against drafters, and their strikes: those of devices that dial in are their identity's."""

    def __init__(self) -> None:
        self._standings: dict[DrafterId | str, DrafterStrikes] = {}

    def doubted(self, drafter: DrafterId, generation: GenerationId) -> DrafterStrikes:
        self._standings[drafter] = found = self._standings.get(drafter, DrafterStrikes()).doubted(generation)
        return found

    def struck(self, drafter: DrafterId, identity: str | None, now_s: float) -> DrafterStrikes:
        if len(self._standings) >= _MOST_STANDINGS:
            self._standings = {who: found for who, found in self._standings.items() if not found.forgiven(now_s)}
        who = drafter if identity is None else identity
        found = self._standings.get(who, DrafterStrikes()).struck(now_s)
        self._standings.pop(drafter, None)  # with the reports against it
        self._standings[who] = found
        return found

    def worst(self, devices: Iterable[tuple[DrafterId, str]], now_s: float) -> dict[str, int]:
        """Return strikes by actor name, of those with most; of an identity's devices one stands for all.

        Args:
            devices: identities of those that have dialled in, which may be many: read only if one has a strike.
            now_s: clock of the strikes.
        """
        struck = {who: one.strikes for who, one in self._standings.items() if one.strikes and not one.forgiven(now_s)}
        named = {who.actor_name: strikes for who, strikes in struck.items() if isinstance(who, DrafterId)}
        if len(named) < len(struck):
            one_of = {identity: drafter for drafter, identity in devices if identity in struck}
            named |= {drafter.actor_name: struck[identity] for identity, drafter in one_of.items()}
        return dict(heapq.nlargest(_MOST_REPORTED, named.items(), key=lambda one: one[1]))

    def forget(self, drafter: DrafterId) -> None:
        self._standings.pop(drafter, None)
