"""Prompt lookup by the verifier in rounds of an autonomous run, at the row price that its grant names.

Nobody is asked for it: it is looked up between two steps.
"""

from collections.abc import Sequence

from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import OpenGeneration, OwnDraft, PromptLookupGrant
from outrider.lookup.text import LookupHistory, LookupText, tokens_to_draft


class OwnDrafts:
    """Of all generations of an engine. Mutable."""

    def __init__(self, experience: LookupHistory) -> None:
        """Begin with what others have shown and said."""
        self._experience = experience
        self._texts: dict[GenerationId, LookupText] = {}  # of those that ever had leave
        self._opened: dict[GenerationId, tuple[str, int]] = {}  # whose they are, and where their output begins

    def opened(self, request: OpenGeneration) -> None:
        """A generation is held from now on, maybe in place of an older one of its name."""
        self._texts.pop(request.generation, None)
        self._opened[request.generation] = request.tenant, len(request.prompt_ids)

    def closed(self, generation: GenerationId, committed: Sequence[int] | None = None) -> None:
        """It is held no more; ``committed`` if its response is complete: that may be looked through from now on."""
        self._texts.pop(generation, None)
        tenant, begins = self._opened.pop(generation, ("", 0))
        if committed is not None:
            self._experience.earlier.add(tenant, committed[begins:])

    def draft(self, generation: GenerationId, committed: Sequence[int], grant: PromptLookupGrant) -> OwnDraft | None:
        """What is worth drafting behind all that is committed; None if nothing is."""
        if not tokens_to_draft((1.0,) * grant.tokens, grant.blocks, grant.row_price):  # nothing would be
            return None
        text = self._texts.get(generation)
        if text is None:
            text = self._texts[generation] = LookupText(self._experience, self._opened[generation][0])
        text.extend(committed[text.length :])
        room = grant.until_position - len(committed) - 1  # the step's own token is one
        found = text.find(min(grant.tokens, room))
        tokens = tokens_to_draft(found.survivals, grant.blocks, grant.row_price)
        return OwnDraft(found.token_ids[:tokens], sum(found.survivals[:tokens])) if tokens else None
