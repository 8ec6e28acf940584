"""Identify requests that may crash a verifier, and isolate each in steps of its own until that is known. Pure.

A verifier that reports with which pass it failed names its suspects. One that dies or hangs in silence names none the
first time, as machines fail too; a generation that was in two such losses without a commit between becomes a suspect.
A suspect whose block is decided is cleared. A suspect that was alone in two losses is convicted if the verifier named
it, or after six losses in a row. Only one is convicted until something is committed again: if losses go on behind a
conviction, the fault is the verifier's.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from outrider.contracts.requests import GenerationId

_LOSSES_IN_SILENCE = 2  # in a row, before the generations in the step become suspects
_LOSSES_ALONE = 2  # of a suspect, before it is convicted
_LOSSES_IN_A_ROW = 6  # needed as well if the verifier never named the suspect


@dataclass(frozen=True, slots=True)
class CrashSuspects:
    """Losses of the verifier, counted for each generation."""

    # of the verifier in a row, by generation that was in its steps
    losses: Mapping[GenerationId, int] = field(default_factory=dict)
    # losses in which a suspect was alone in the step; its keys are the suspects
    losses_alone: Mapping[GenerationId, int] = field(default_factory=dict)
    convicted: bool = False  # whether a generation was convicted since the last commit

    @property
    def names(self) -> Collection[GenerationId]:
        """Suspects, which the planner lets step only alone."""
        return self.losses_alone.keys()

    def lost(
        self, within: Collection[GenerationId], named: Collection[GenerationId] = ()
    ) -> tuple["CrashSuspects", GenerationId | None]:
        """Count a loss of the verifier with these generations ``within`` its steps.

        ``named``: those that the verifier named as suspects, if it could. Return the new state, and the convicted
        generation if there is one.
        """
        losses, losses_alone = dict(self.losses), dict(self.losses_alone)
        for name in within:
            losses[name] = losses.get(name, 0) + 1
        only = next(iter(within)) if len(within) == 1 else None
        if only is not None and only in losses_alone:
            losses_alone[only] += 1
        for name in within:
            if name in named or (not named and losses[name] >= _LOSSES_IN_SILENCE):
                losses_alone.setdefault(name, 0)
        enough = only in named or losses.get(only or "", 0) >= _LOSSES_IN_A_ROW
        if only is not None and losses_alone.get(only, 0) >= _LOSSES_ALONE and enough and not self.convicted:
            return replace(CrashSuspects(losses, losses_alone, convicted=True).over(only), convicted=True), only
        return CrashSuspects(losses, losses_alone, self.convicted), None

    def decided(self, generation: GenerationId) -> "CrashSuspects":
        """Clear a generation, as the verifier survived one of its blocks."""
        if not self.losses and not self.convicted:  # the common case
            return self
        return replace(self.over(generation), convicted=False)

    def over(self, generation: GenerationId) -> "CrashSuspects":
        if generation not in self.losses and generation not in self.losses_alone:
            return self
        losses = {name: count for name, count in self.losses.items() if name != generation}
        losses_alone = {name: count for name, count in self.losses_alone.items() if name != generation}
        return CrashSuspects(losses, losses_alone, self.convicted)
