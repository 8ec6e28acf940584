"""Who may have cost a verifier its process, and is to be in its steps alone until that is known. Pure.

A verifier that says with which pass it is lost names its suspects; one that dies or hangs in silence has none the first
time, as machines fail too. Whoever is lost with it again, without a commit between, is one. A suspect that is decided
is none any more; one that is lost with the verifier alone, twice, is guilty, if the verifier has named it or that goes
on for long. One of them: if nobody commits anything behind that and it goes on, it is the verifier that fails.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from outrider.contracts.requests import GenerationId

_LOSSES_IN_SILENCE = 2  # in a row, until whoever was there is suspected
_LOSSES_ALONE = 2  # of a suspect, until it is guilty; where the verifier dies in silence, so many in a row besides:
_LOSSES_IN_A_ROW = 6


@dataclass(frozen=True, slots=True)
class CrashSuspects:
    """What is held against whom.

    Attributes:
        losses: of the verifier in a row, by who was in its steps.
        alone: of these, how often a suspect was alone there; its names are the suspects.
        convicted: whether somebody was found guilty since anything was committed.
    """

    losses: Mapping[GenerationId, int] = field(default_factory=dict)
    alone: Mapping[GenerationId, int] = field(default_factory=dict)
    convicted: bool = False

    @property
    def names(self) -> Collection[GenerationId]:
        """Who is to be alone."""
        return self.alone.keys()

    def lost(
        self, within: Collection[GenerationId], named: Collection[GenerationId] = ()
    ) -> tuple["CrashSuspects", GenerationId | None]:
        """The verifier is lost with these in its steps, and has ``named`` some of them, if it could.

        Returns:
            Who is guilty, too, if anybody is.
        """
        losses, alone = dict(self.losses), dict(self.alone)
        for name in within:
            losses[name] = losses.get(name, 0) + 1
        only = next(iter(within)) if len(within) == 1 else None
        if only is not None and only in alone:
            alone[only] += 1
        for name in within:
            if name in named or (not named and losses[name] >= _LOSSES_IN_SILENCE):
                alone.setdefault(name, 0)
        enough = only in named or losses.get(only or "", 0) >= _LOSSES_IN_A_ROW
        if only is not None and alone.get(only, 0) >= _LOSSES_ALONE and enough and not self.convicted:
            return replace(CrashSuspects(losses, alone, convicted=True).over(only), convicted=True), only
        return CrashSuspects(losses, alone, self.convicted), None

    def decided(self, generation: GenerationId) -> "CrashSuspects":
        """A block of it was: the verifier lives with it."""
        if not self.losses and not self.convicted:  # as most often
            return self
        return replace(self.over(generation), convicted=False)

    def over(self, generation: GenerationId) -> "CrashSuspects":
        if generation not in self.losses and generation not in self.alone:
            return self
        losses = {name: count for name, count in self.losses.items() if name != generation}
        alone = {name: count for name, count in self.alone.items() if name != generation}
        return CrashSuspects(losses, alone, self.convicted)
