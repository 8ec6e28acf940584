"""The verifier as one response sees it: whether it holds the response, blocks for it, grants of autonomous runs."""

from dataclasses import replace

from outrider.contracts.cost import VerifyCost
from outrider.contracts.tracing import trace_id_of
from outrider.contracts.verifying import AutonomousRun, Block, OpenGeneration
from outrider.rounds.blocks import block_tokens, make_block
from outrider.rounds.choice import RoundChooser
from outrider.rounds.events import Verify
from outrider.rounds.generation import Generation
from outrider.rounds.lookup.ngram_drafts import lookup_tokens
from outrider.rounds.open_round import OpenRound
from outrider.rounds.promise_tracker import PromiseTracker
from outrider.rounds.rules import MAX_VERIFIER_LOSSES, RoundRules
from outrider.rounds.states import RoundEvent
from outrider.selection.situation import RoundChoice


class VerifierSide:
    """The verifier of one response. Mutable.

    Attributes:
        until_round: last round that the present grant of an autonomous run allows.
    """

    def __init__(
        self, generation: Generation, rules: RoundRules, tracker: PromiseTracker, chooser: RoundChooser
    ) -> None:
        """Begin with a verifier that does not hold the response."""
        self._generation, self._rules, self._tracker, self._chooser = generation, rules, tracker, chooser
        self._is_open = False
        self._losses = 0
        self.until_round = -1

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
        uses_lookup = lookup_tokens(self._generation.request, self._rules.speculation.lookup_window) > 0
        return opening if uses_lookup else replace(opening, tenant="")

    def block(self, round_: OpenRound, autonomous_run: AutonomousRun | None = None) -> Verify:
        """Return the request to verify a round's draft, or none, with the autonomous run that may follow."""
        generation, plan = self._generation, round_.plan
        opening = self.opening()
        block = make_block(
            generation,
            round_.number,
            plan,
            round_.draft,
            self._rules.speculation.wire,
            forced=(*generation.unverified, *round_.uncommitted),
            deferral=self._chooser.deferral(plan),
            judging=self._chooser.judging,
        )
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

    def grant(self, number: int, choice: RoundChoice | None, before: int | None, drafted_tokens: int = 0) -> int:
        """Return the last round of an autonomous run behind round ``number``.

        Args:
            number: of the round before the run; it may commit ``drafted_tokens`` + 1 tokens.
            choice: the last one.
            before: round that a device drafts for meanwhile; the run ends before it. None: no device drafts.
            drafted_tokens: of the round before the run.
        """
        grant = self._rules.grant
        beside = before is not None and number < before
        if beside and choice is not None:
            rounds = grant.beside(choice.chosen)
        else:
            rounds = grant.rounds(choice, may_draft=self._chooser.may_draft)
        # Every round commits a token at least, so more rounds than tokens left could never be used.
        until_round = number + max(0, min(rounds, self._generation.remaining_tokens - drafted_tokens - 1))
        return until_round if before is None or not beside else min(until_round, before - 1)
