"""The verifier as one response sees it: whether it holds the response, and blocks for it."""

from dataclasses import replace

from outrider.contracts.cost import VerifyCost
from outrider.contracts.tracing import trace_id_of
from outrider.contracts.verifying import AutonomousRun, Block, OpenGeneration
from outrider.rounds.blocks import block_tokens, empty_block, with_device_draft
from outrider.rounds.choice import RoundChooser
from outrider.rounds.events import Verify
from outrider.rounds.generation import Generation
from outrider.rounds.lookup.ngram_drafts import lookup_tokens
from outrider.rounds.open_round import OpenRound
from outrider.rounds.promise_tracker import PromiseTracker
from outrider.rounds.rules import MAX_VERIFIER_LOSSES, RoundRules
from outrider.rounds.states import RoundEvent


class VerifierSide:
    """The verifier of one response. Mutable."""

    def __init__(
        self, generation: Generation, rules: RoundRules, tracker: PromiseTracker, chooser: RoundChooser
    ) -> None:
        self._generation, self._tracker, self._chooser = generation, tracker, chooser
        self._lookup_window = rules.speculation.lookup_window
        self._is_open = False
        self._losses = 0

    @property
    def knows_all(self) -> bool:
        """Whether it has every committed token, so that its next block needs no opening and no forced tokens."""
        return self._is_open and not self._generation.unverified

    def answered(self) -> None:
        """Note that the verifier answered: it holds the response."""
        self._is_open = True

    def decided(self) -> None:
        """Note that a round was verified: losses in a row are counted from here."""
        self._losses = 0

    def lost(self) -> int | None:
        """Note that the verifier was lost. Return the number of losses in a row if they are too many, else None."""
        self._is_open = False
        self._losses += 1
        return self._losses if self._losses > MAX_VERIFIER_LOSSES else None

    def opening(self) -> OpenGeneration | None:
        """Return what the verifier needs to hold the response, with all committed tokens; None if it holds it."""
        if self._is_open:
            return None
        self._generation.verifier_lost()
        trace_id = trace_id_of(self._generation.request.trace)
        account = self._generation.request.account.name
        opening = replace(self._generation.opening(), trace_id=trace_id, account=account)
        # The verifier needs the tenant only to search its earlier responses.
        uses_lookup = lookup_tokens(self._generation.request, self._lookup_window) > 0
        return opening if uses_lookup else replace(opening, tenant="")

    def block(self, round_: OpenRound, autonomous_run: AutonomousRun | None = None) -> Verify:
        """Return the request to verify a round's draft, or none, with the autonomous run that may follow."""
        generation, chooser, plan, draft = self._generation, self._chooser, round_.plan, round_.draft
        opening = self.opening()
        block = empty_block(generation, round_.number, (*generation.unverified, *round_.uncommitted))
        if draft is not None and draft.token_ids:
            if plan is None:  # an n-gram draft: by the target's own rule, as it has no distribution
                block = replace(block, draft=draft.token_ids)
            else:
                rule, deferral = chooser.rule(plan), chooser.deferral(plan)
                block = with_device_draft(block, draft, rule, deferral, chooser.judging)
        return self.request(round_, replace(block, autonomous_run=autonomous_run), opening)

    def request(self, round_: OpenRound, block: Block, opening: OpenGeneration | None) -> Verify:
        """Return the request to verify a given block, with its cost and its terms for the queue."""
        round_.block = block
        self._generation.round_happened(round_.number, RoundEvent.ENQUEUED)
        # With an opening the whole prefix is computed; else the draft and one row more, for the target's own token.
        new = block_tokens(block) if opening is not None else len(block.draft) + 1
        cost = VerifyCost(new, block_tokens(block) - new)
        terms = self._tracker.terms(round_.began_at_s, round_.expected_tokens)
        survivals = () if round_.stays_whole else round_.survivals[: len(block.draft)]
        return Verify(block, opening, cost, replace(terms, survivals=survivals, began_at_s=round_.began_at_s))
