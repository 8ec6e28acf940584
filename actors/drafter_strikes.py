"""What is held against a drafter: who says that it is broken, and how often it had to be taken out. Pure.

One generation's word is not enough to judge a drafter by: it may be the generation that breaks whatever it meets.
"""

from dataclasses import dataclass, replace

from outrider.contracts.requests import GenerationId

ENOUGH_ACCUSERS = 2
_FORGIVEN_S = 300.0  # without a strike: then they are counted anew
_SPREAD = 0.25  # of a pause: who was taken out together does not come back together


@dataclass(frozen=True, slots=True)
class DrafterStrikes:
    accusers: frozenset[GenerationId] = frozenset()  # since it was taken out last
    strikes: int = 0
    struck_at_s: float = float("-inf")

    def doubted(self, generation: GenerationId) -> "DrafterStrikes":
        """A generation says that it is broken."""
        return replace(self, accusers=self.accusers | {generation})

    @property
    def broken(self) -> bool:
        """Whether enough of them say so."""
        return len(self.accusers) >= ENOUGH_ACCUSERS

    def struck(self, now_s: float) -> "DrafterStrikes":
        """It is taken out."""
        strikes = 1 if now_s - self.struck_at_s > _FORGIVEN_S else self.strikes + 1
        return DrafterStrikes(strikes=strikes, struck_at_s=now_s)

    def pause_s(self, first_s: float, most_s: float, chance: float) -> float:
        """Until it is tried again: twice as long with each strike, more or less by ``chance``, which is in 0..1."""
        doublings = min(max(0, self.strikes - 1), 30)
        return min(first_s * 2.0**doublings, most_s) * (1.0 + _SPREAD * (2.0 * chance - 1.0))
