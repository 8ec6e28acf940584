"""Prompt lookup for one response: drafts taken from its own text, or from its tenant's earlier responses.

A match's continuation is cut where one more row would cost more than it brings (``selection.lookup_value``), given how
often matches of that length were right (``lookup.matches``).

A verifier that decodes autonomously drafts so by itself (``engines.verifier.own_drafts``), at the row price told here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.contracts.requests import ChoiceReport, GenerationRequest, PlanEstimate
from outrider.contracts.verifying import OwnDraft, PromptLookupGrant
from outrider.lookup.text import LookupHistory, LookupText
from outrider.rounds.choice import report
from outrider.selection.lookup_value import LookupValue, row_price, value_of
from outrider.selection.modes import SpeculationMode
from outrider.selection.situation import ChoiceReason, RoundChoice, VerifierView

LOOKUP = "lookup"  # in the place of a protocol's name, for those who count


@dataclass(frozen=True, slots=True)
class NgramDraft:
    """A draft.

    Attributes:
        survivals: as ``VerifyTerms.survivals``.
        value: of these tokens.
    """

    token_ids: tuple[int, ...]
    survivals: tuple[float, ...]
    value: LookupValue


class ResponseLookup:
    """The text of one response, prompt included. Mutable."""

    def __init__(self, request: GenerationRequest, experience: LookupHistory, most_tokens: int) -> None:
        """Begin with its prompt; drafts have ``most_tokens`` at most."""
        self._text, self._experience, self._most_tokens = (
            LookupText(experience, request.tenant),
            experience,
            most_tokens,
        )
        self._prompt_ids: Sequence[int] = request.prompt_ids  # until something is looked up for the first time
        self._prompt_tokens, self._tenant = len(request.prompt_ids), request.tenant

    def draft(self, output_ids: Sequence[int], room: int, verifier: VerifierView) -> NgramDraft | None:
        """What may come behind what is committed, and pays; None if there is nothing.

        Args:
            output_ids: all that is committed.
            room: tokens at most.
            verifier: as it is now.
        """
        self._text.extend(self._prompt_ids)
        self._prompt_ids = ()
        self._text.extend(output_ids[self._text.length - self._prompt_tokens :])
        found = self._text.find(min(room, self._most_tokens))
        value = value_of(found.survivals, verifier, self._text.length)
        count = value.tokens
        return NgramDraft(found.token_ids[:count], found.survivals[:count], value) if count else None

    def grant(self, position: int, until_position: int, verifier: VerifierView) -> PromptLookupGrant:
        """What the verifier may draft by itself, of a response with so many tokens."""
        price = row_price(self._most_tokens, verifier, position)
        return PromptLookupGrant(self._most_tokens, until_position, max(1.0, verifier.batch_blocks), price)

    def over(self, output_ids: Sequence[int]) -> None:
        """The response is complete: it may be looked through from now on."""
        self._experience.earlier.add(self._tenant, output_ids)


def report_lookup(choice: RoundChoice, found: NgramDraft) -> ChoiceReport:
    """As a client sees it, beside what would have been done without it."""
    expected_tokens, round_s = 1.0 + found.value.gain_tokens, choice.chosen.alone_s + found.value.longer_s
    return _reported(choice, len(found.token_ids), expected_tokens, round_s)


def report_own(choice: RoundChoice, own: OwnDraft, grant: PromptLookupGrant | None) -> ChoiceReport:
    """The same of what the verifier has drafted by itself, at the price it was told."""
    expected_tokens, tokens = 1.0 + own.expected_tokens, len(own.token_ids)
    longer = 0.0 if grant is None else grant.row_price * tokens
    return _reported(choice, tokens, expected_tokens, choice.chosen.alone_s * (1.0 + longer))


def _reported(choice: RoundChoice, tokens: int, expected_tokens: float, round_s: float) -> ChoiceReport:
    estimate = PlanEstimate(LOOKUP, tokens, (), round_s / expected_tokens, expected_tokens)
    return ChoiceReport(estimate, report(choice).chosen, ChoiceReason.FROM_LOOKUP)


def lookup_of(request: GenerationRequest, experience: LookupHistory, most_tokens: int) -> ResponseLookup | None:
    """Of a response in whose text something may be looked up; None if it wants none, or fixes what is drafted.

    Args:
        request: may say itself how many tokens.
        experience: of its verifier.
        most_tokens: by configuration; 0: none, unless the request asks for it.
    """
    most_tokens = lookup_tokens(request, most_tokens)
    return ResponseLookup(request, experience, most_tokens) if most_tokens else None


def lookup_tokens(request: GenerationRequest, most_tokens: int) -> int:
    """How many may be looked up at once in its text; as ``lookup_of``."""
    if request.lookup is not None:
        return request.lookup
    return 0 if request.window == 0 or request.protocol is not None else most_tokens


def uses_lookup(request: GenerationRequest, mode: SpeculationMode) -> bool:
    """Whether it does under a mode; who asks for it does under any."""
    return mode.uses_lookup if request.lookup is None else request.lookup > 0
