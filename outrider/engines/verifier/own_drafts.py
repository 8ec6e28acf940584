"""Own drafts of the verifier between two steps of an autonomous run, at the row price of its grant.

They come from prompt lookup, or from a grammar that leaves no choice about what is next.
"""

from collections.abc import Callable, Sequence

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
        room: int,
        forced: Callable[[int], Sequence[int]],
    ) -> OwnDraft | None:
        """Return what pays to draft after the committed tokens, at most ``room`` of them; None if nothing does.

        ``forced``: returns at most so many tokens that have to come next. They are drafted, unless lookup finds them
        and more.
        """
        # The step's own token takes one position.
        most = min(grant.tokens, room, grant.until_position - len(committed) - 1)
        # Not even a draft of certain acceptance would pay, so neither text nor grammar need be searched.
        if not tokens_to_draft((1.0,) * most, grant.blocks, grant.row_price):
            return None
        sure = tuple(forced(most))
        tokens = tokens_to_draft((1.0,) * len(sure), grant.blocks, grant.row_price)
        found = self._found(generation, committed, grant, most)
        if found is not None and len(found.token_ids) > tokens and found.token_ids[:tokens] == sure[:tokens]:
            return found
        return OwnDraft(sure[:tokens], float(tokens)) if tokens else found

    def _found(
        self, generation: GenerationId, committed: Sequence[int], grant: PromptLookupGrant, most: int
    ) -> OwnDraft | None:
        text = self._texts.get(generation)
        if text is None:
            text = self._texts[generation] = LookupText(self._experience, self._opened[generation][0])
        text.extend(committed[text.length :])
        found = text.find(most)
        tokens = tokens_to_draft(found.survivals, grant.blocks, grant.row_price)
        return OwnDraft(found.token_ids[:tokens], sum(found.survivals[:tokens])) if tokens else None
