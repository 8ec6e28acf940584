"""Prompt lookup of one response: whether an n-gram draft is used now, and the verifier's grant to make its own."""

from outrider.contracts.drafting import Draft
from outrider.contracts.verifying import PromptLookupGrant
from outrider.rounds.events import RoundInput
from outrider.rounds.generation import Generation
from outrider.rounds.lookup.ngram_drafts import NgramDraft, ResponseLookup, lookup_tokens
from outrider.rounds.open_round import OpenRound
from outrider.rounds.rules import RoundRules
from outrider.selection.lookup_value import beats
from outrider.selection.modes import SpeculationMode
from outrider.selection.situation import Estimate, VerifierView


class PromptLookup:
    """Prompt lookup of one response under the speculation mode in use. Mutable."""

    def __init__(self, generation: Generation, rules: RoundRules) -> None:
        """Begin without a mode: nothing is found before ``observe`` is called."""
        self._generation, request = generation, generation.request
        most_tokens = lookup_tokens(request, rules.speculation.lookup_window)
        self._lookup = ResponseLookup(request, rules.experience, most_tokens) if most_tokens else None
        self._view: VerifierView | None = None  # as last seen
        self._mode: SpeculationMode | None = None

    @property
    def may(self) -> bool:
        """Whether some mode allows prompt lookup for this response; false after its end."""
        return self._lookup is not None

    def observe(self, round_input: RoundInput) -> None:
        """Take the mode and the verifier's load from a round's input."""
        self._view, self._mode = round_input.verifier, round_input.mode

    def found(self, instead_of: Estimate | None = None) -> NgramDraft | None:
        """Return an n-gram draft that pays for its rows, else None.

        ``instead_of``: estimate of the device's draft that it would replace; then it also has to cost less per token.
        """
        generation, lookup, view = self._generation, self._lookup, self._view
        if lookup is None or view is None or not self._uses_lookup:
            return None
        found = lookup.draft(generation.output_ids, generation.remaining_tokens - 1, view)
        if found is None or instead_of is None:
            return found
        return found if beats(found.value, view, instead_of) else None

    @property
    def grant(self) -> PromptLookupGrant | None:
        """Permission for the verifier's own drafts, at the present price of a row; None: none."""
        generation, lookup, view = self._generation, self._lookup, self._view
        if lookup is None or view is None or not self._uses_lookup:
            return None
        return lookup.grant(generation.position, generation.last_position + 1, view)

    def over(self) -> None:
        """Give the complete response to the tenant's store; nothing is found any more."""
        if self._lookup is not None:
            self._lookup.over(self._generation.output_ids)
            self._lookup = None

    @property
    def _uses_lookup(self) -> bool:
        """Whether prompt lookup is turned on: by the request, else by the present mode."""
        wished = self._generation.request.lookup
        return self._mode is not None and (self._mode.uses_lookup if wished is None else wished > 0)


def with_draft(round_: OpenRound, found: NgramDraft, generation: Generation) -> OpenRound:
    """Put an n-gram draft into a round without a device; return that round."""
    round_.from_lookup, round_.survivals = found, found.survivals
    round_.expected_tokens = 1.0 + sum(found.survivals)
    round_.draft = Draft(generation.name, round_.number, generation.position, found.token_ids)
    return round_
