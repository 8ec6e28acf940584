"""Whether anything is looked up in one response's text now, and whether that is worth a round trip."""

from outrider.contracts.drafting import Draft
from outrider.rounds.events import Turn
from outrider.rounds.generation import Generation
from outrider.rounds.looked_up import LookedUp, lookup_of
from outrider.rounds.open_round import OpenRound
from outrider.rounds.rules import RoundRules
from outrider.selection.arms import Arm
from outrider.selection.situation import Estimate, VerifierView
from outrider.selection.worth import beats


class Looking:
    """Of one response, under the arm in use. Mutable."""

    def __init__(self, generation: Generation, rules: RoundRules) -> None:
        """Nothing is looked up before a first turn is seen."""
        self._generation, request = generation, generation.request
        self._lookup = lookup_of(request, rules.experience, rules.speculation.lookup_window)
        self._view: VerifierView | None = None  # as last seen
        self._arm: Arm | None = None

    @property
    def may(self) -> bool:
        """Whether it depends on the arm, or is always so."""
        return self._lookup is not None

    def sees(self, turn: Turn) -> None:
        """What there is now."""
        self._view, self._arm = turn.verifier, turn.arm

    def found(self, instead_of: Estimate | None = None, *, late_tokens: int = 0) -> LookedUp | None:
        """What is found and pays.

        Args:
            instead_of: what a device would be asked for: None is found if more is expected of that.
            late_tokens: that will be committed before it is verified.
        """
        generation, lookup, view = self._generation, self._lookup, self._view
        if lookup is None or view is None or not self._looks_up:
            return None
        room = generation.remaining_tokens - 1
        found = lookup.draft(generation.output_ids, room, view, late_tokens=late_tokens)
        if found is None or instead_of is None:
            return found
        return found if beats(found.worth, view, instead_of) else None

    def waits(self, found: LookedUp | None = None) -> bool:
        """Whether the next match is worth more than that the verifier goes on by itself, behind what was found."""
        lookup, view = self._lookup, self._view
        return lookup is not None and view is not None and self._looks_up and lookup.waits(view, found)

    def over(self) -> None:
        """The response is complete."""
        if self._lookup is not None:
            self._lookup.over(self._generation.output_ids)
            self._lookup = None

    @property
    def _looks_up(self) -> bool:
        """Who asks for it does under any arm."""
        asked = self._generation.request.lookup
        return (self._arm is not None and self._arm.looks_up) if asked is None else asked > 0


def taken(round_: OpenRound, found: LookedUp, generation: Generation) -> OpenRound:
    """What was looked up into a round without a device."""
    round_.looked_up, round_.survivals = found, found.survivals
    round_.expected_tokens = 1.0 + sum(found.survivals)
    round_.draft = Draft(generation.name, round_.number, generation.position, found.token_ids)
    return round_
