"""Own drafts of the verifier between two steps of an autonomous run, at the row price of its grant.

They come from prompt lookup, or from a grammar that leaves no choice about what is next.
"""

from collections.abc import Sequence

from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import OpenGeneration, OwnDraft, PromptLookupGrant
from outrider.lookup.text import LookupHistory, LookupText, tokens_to_draft


class OwnDrafts:
    """Prompt lookup for all generations of an engine. Mutable."""

    def __init__(self, experience: LookupHistory) -> None:
        self._experience = experience
        self._texts: dict[GenerationId, LookupText] = {}  # of those that ever had a grant
        self._opened: dict[GenerationId, tuple[str, int]] = {}  # tenant, and index of the first output token

    def opened(self, request: OpenGeneration) -> None:
        """Register a generation, possibly in place of an older one of its id."""
        self._texts.pop(request.generation, None)
        self._opened[request.generation] = request.tenant, len(request.prompt_ids)

    def closed(self, generation: GenerationId, committed: Sequence[int] | None = None) -> None:
        self._texts.pop(generation, None)
        tenant, begins = self._opened.pop(generation, ("", 0))
        if committed is not None:
            self._experience.earlier.add(tenant, committed[begins:])

    def draft(
        self,
        generation: GenerationId,
        committed: Sequence[int],
        grant: PromptLookupGrant,
        forced: Sequence[int] = (),
    ) -> OwnDraft | None:
        """Return what pays to draft after the committed tokens; None if nothing does.

        ``forced``: tokens that have to come next, which are then all that is drafted.
        """
        if forced:
            sure = (1.0,) * min(len(forced), grant.until_position - len(committed) - 1)
            tokens = tokens_to_draft(sure, grant.blocks, grant.row_price)
            return OwnDraft(tuple(forced[:tokens]), float(tokens)) if tokens else None
        # Not even a draft of certain acceptance would pay, so the text need not be searched.
        if not tokens_to_draft((1.0,) * grant.tokens, grant.blocks, grant.row_price):
            return None
        text = self._texts.get(generation)
        if text is None:
            text = self._texts[generation] = LookupText(self._experience, self._opened[generation][0])
        text.extend(committed[text.length :])
        room = grant.until_position - len(committed) - 1  # the step's own token takes one position
        found = text.find(min(grant.tokens, room))
        tokens = tokens_to_draft(found.survivals, grant.blocks, grant.row_price)
        return OwnDraft(found.token_ids[:tokens], sum(found.survivals[:tokens])) if tokens else None
