"""N-gram drafts by prompt lookup in one response's text or its tenant's earlier responses, as long as their rows pay.

A match's continuation is cut where one more row would cost more than it gains (``selection.lookup_value``), given how
often continuations of matches of that length were right (``lookup.matches``).

In an autonomous run the verifier makes such drafts itself (``engines.verifier.own_drafts``), with the row price from
the grant.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.contracts.requests import ChoiceReport, GenerationRequest, PlanEstimate
from outrider.contracts.verifying import OwnDraft, PromptLookupGrant
from outrider.lookup.text import LookupHistory, LookupText
from outrider.rounds.choice import report
from outrider.selection.lookup_value import LookupValue, row_price, value_of
from outrider.selection.situation import ChoiceReason, RoundChoice, VerifierView

LOOKUP = "lookup"  # stands for a protocol's name in statistics and metrics


@dataclass(frozen=True, slots=True)
class NgramDraft:
    """A draft by prompt lookup."""

    token_ids: tuple[int, ...]  # the draft, a chain
    survivals: tuple[float, ...]  # as ``VerifyTerms.survivals``.
    value: LookupValue  # expected gain and cost of these tokens


class ResponseLookup:
    """Finds n-gram drafts for one response, prompt included. Mutable."""

    def __init__(self, request: GenerationRequest, experience: LookupHistory, most_tokens: int) -> None:
        """Begin with the prompt. Drafts have at most ``most_tokens`` tokens."""
        self._text, self._experience, self._most_tokens = (
            LookupText(experience, request.tenant),
            experience,
            most_tokens,
        )
        self._prompt_ids: Sequence[int] = request.prompt_ids  # indexed on the first call of ``draft``; () afterwards
        self._prompt_tokens, self._tenant = len(request.prompt_ids), request.tenant

    def draft(self, output_ids: Sequence[int], room: int, verifier: VerifierView) -> NgramDraft | None:
        """Return the draft behind the committed tokens that pays at the present load; None if there is none.

        ``output_ids`` are all committed tokens; the draft may have at most ``room`` tokens.
        """
        self._text.extend(self._prompt_ids)
        self._prompt_ids = ()
        self._text.extend(output_ids[self._text.length - self._prompt_tokens :])
        found = self._text.find(min(room, self._most_tokens))
        value = value_of(found.survivals, verifier, self._text.length)
        count = value.tokens
        return NgramDraft(found.token_ids[:count], found.survivals[:count], value) if count else None

    def grant(self, position: int, until_position: int, verifier: VerifierView) -> PromptLookupGrant:
        """Return the permission for own drafts of the verifier.

        ``position``: committed tokens; ``until_position``: first position that the response cannot have.
        """
        price = row_price(self._most_tokens, verifier, position)
        return PromptLookupGrant(self._most_tokens, until_position, max(1.0, verifier.batch_blocks), price)

    def over(self, output_ids: Sequence[int]) -> None:
        """Add the complete response to the tenant's store."""
        self._experience.earlier.add(self._tenant, output_ids)


def report_lookup(choice: RoundChoice, found: NgramDraft) -> ChoiceReport:
    """Return the choice of an n-gram draft in the form that clients see, with the plan that it replaced."""
    expected_tokens, round_s = 1.0 + found.value.gain_tokens, choice.chosen.without_draft_s + found.value.longer_s
    return _reported(choice, len(found.token_ids), expected_tokens, round_s)


def report_own_draft(choice: RoundChoice, own: OwnDraft, grant: PromptLookupGrant | None) -> ChoiceReport:
    """Return the same for a verifier's own draft, at the row price of its grant."""
    expected_tokens, tokens = 1.0 + own.expected_tokens, len(own.token_ids)
    longer = 0.0 if grant is None else grant.row_price * tokens
    return _reported(choice, tokens, expected_tokens, choice.chosen.without_draft_s * (1.0 + longer))


def _reported(choice: RoundChoice, tokens: int, expected_tokens: float, round_s: float) -> ChoiceReport:
    estimate = PlanEstimate(LOOKUP, tokens, (), round_s / expected_tokens, expected_tokens)
    return ChoiceReport(estimate, report(choice).chosen, ChoiceReason.FROM_LOOKUP)


def lookup_tokens(request: GenerationRequest, most_tokens: int) -> int:
    """Return the length of a response's longest n-gram draft; 0: it wants none, or fixes its drafts otherwise.

    ``most_tokens``: as configured; 0: none, unless the request itself asks for one.
    """
    if request.lookup is not None:
        return request.lookup
    return 0 if request.window == 0 or request.protocol is not None else most_tokens
