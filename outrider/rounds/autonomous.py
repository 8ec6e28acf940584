"""The rounds that a verifier makes by itself for one response, and the draft that is ordered ahead beside them.

``outrider.rounds.machine`` says what both are. The run's grant ends before the round of the draft.
"""

from outrider.contracts.autonomous_runs import goes_on, without_draft
from outrider.contracts.drafting import Draft
from outrider.contracts.verifying import AutonomousRun, Verified
from outrider.rounds.events import (
    AwaitDraft,
    DrafterAnswered,
    Effect,
    Extend,
    Follow,
    Join,
    OrderAhead,
    RoundInput,
    VerifierAnswered,
    Verify,
)
from outrider.rounds.lookup.ngram_drafts import NgramDraft
from outrider.rounds.lookup.prompt_lookup import with_draft
from outrider.rounds.open_round import OpenRound
from outrider.rounds.orders import drafted_round
from outrider.rounds.parts import RoundParts
from outrider.rounds.states import GenerationState, RoundEvent
from outrider.selection.situation import Estimate

# Most rounds of a run while a draft is under way; a multiple of 256, as the wire has round numbers modulo 256.
_MOST_BESIDE = 1024
_LEAST_BESIDE = 64  # round numbers that must be left before a late draft's for another n-gram draft to go first


class AutonomousRounds:
    """The run granted to the verifier of one response. Mutable.

    Attributes:
        ahead: the round ordered ahead: its draft is at the device or held here, or its block is at the verifier.
    """

    def __init__(self, parts: RoundParts) -> None:
        self._generation, self._current, self._grants = parts.generation, parts.current, parts.rules.grant
        self._chooser, self._tracker, self._emitter = parts.chooser, parts.tracker, parts.emitter
        self._verifier, self._lookup = parts.verifier, parts.lookup
        self._until_round = -1  # last round of the present grant
        self.ahead: OpenRound | None = None

    def verify_alone(self, round_: OpenRound, found: NgramDraft | None, *, asks: bool = False) -> Verify:
        """Return the request for a block without a device's draft: with an n-gram draft, or none.

        A run may follow it, unless the next round is to ask a device (``asks``).
        """
        if found is not None:
            with_draft(round_, found, self._generation)
            self._emitter.explain_lookup(self._chooser.choice, found)
        run = self._run_behind(round_, asks=asks)
        self._until_round = run.until_round
        return self._verifier.block(round_, run)

    def may_draft_beside(self, estimate: Estimate) -> bool:
        # An opening or a correction reaches the verifier only with a block: until then nothing is ordered ahead.
        return self._verifier.knows_all and self._chooser.goes_on_beside(estimate)

    def order_ahead(self, estimate: Estimate, now_s: float) -> OrderAhead:
        assert estimate.plan is not None
        assert self.ahead is None, "at most one draft is ordered ahead"
        number = self._generation.begin_round(drafting=True, ahead=_MOST_BESIDE)
        self.ahead, order = drafted_round(number, now_s, estimate.plan, estimate, self._chooser, self._tracker)
        assert not order.must_use, "what has to be used is waited for"
        return OrderAhead(order)

    def draft_came(self, ahead: OpenRound, event: DrafterAnswered, now_s: float) -> list[Effect]:
        """Take the draft that was ordered ahead. If its device is lost, the run simply goes on."""
        generation, exchange, current = self._generation, event.exchange, self._current.round
        if exchange is None:
            generation.round_happened(ahead.number, RoundEvent.DRAFTER_LOST)
            self.ahead = None
            return []
        assert isinstance(exchange.answer, Draft), "no correction is owed"
        generation.round_happened(ahead.number, RoundEvent.BLOCK_ARRIVED)
        ahead.exchanges.append(exchange)
        ahead.came(exchange.answer)
        ahead.beside_s = exchange.draft_s + exchange.link_s
        # Remove what was committed between the draft's position and now.
        ahead.overtaken(tuple(generation.output_ids[exchange.answer.position - len(generation.request.prompt_ids) :]))
        if current is not None:
            # It is held until an n-gram draft is decided that is with the verifier.
            return [] if current.from_lookup is not None else [self._join(ahead, current.began_at_s)]
        began_at_s = self._current.began_at_s
        assert began_at_s is not None, "it was waited for"
        return [self._verify_ahead(ahead, began_at_s, waited_s=now_s - began_at_s)]

    def over(self, ahead: OpenRound, began_at_s: float) -> Effect:
        """After the run's end: verify an n-gram draft, else the draft ordered ahead, else wait for that."""
        found = self._lookup.found()
        if found is not None and self._until_round + _LEAST_BESIDE < ahead.number:
            self._emitter.explain(self._chooser.choice)
            self._current.round = OpenRound(self._generation.begin_round(drafting=False), began_at_s)
            return self.verify_alone(self._current.round, found)
        return AwaitDraft(ahead.number) if ahead.draft is None else self._verify_ahead(ahead, began_at_s)

    def take_place(self, number: int) -> None:
        """Let the block that joined take the place of the run's next round, if it was that block that was decided."""
        ahead, current = self._at_verifier, self._current.round
        if ahead is None or number != ahead.number:
            return
        assert current is not None
        self._generation.round_happened(current.number, RoundEvent.OVERTAKEN)
        ahead.began_at_s = current.began_at_s
        self._make_current(ahead)

    def lost(self) -> None:
        """Close the round ordered ahead, if a verifier that was lost had its block."""
        if (ahead := self._at_verifier) is not None:
            self._generation.round_happened(ahead.number, RoundEvent.VERIFIER_LOST)
            self.ahead = None

    def follow(self, round_: OpenRound, outcome: Verified, event: VerifierAnswered, now_s: float) -> list[Effect]:
        """Follow the run behind a committed round, if there is one; renew its grant where that is due."""
        generation, block, current = self._generation, round_.verified, self._current
        if generation.state is not GenerationState.ACTIVE or not goes_on(block, outcome):
            return []
        if outcome.round >= self._until_round:
            return self._await_joined(now_s)
        number, drafted = outcome.round + 1, not round_.follows and round_.protocol is not None
        generation.begin_following_round(number)
        current.round = OpenRound(number, now_s, block=without_draft(block), follows=True)
        current.began_at_s = now_s
        if event.round_input is not None:
            self._lookup.observe(event.round_input)
            self._chooser.mode = event.round_input.mode
        effects = list[Effect]()
        # Not while a block is at the verifier: that replaces the run, and has a grant of its own.
        if event.goes_on and self._at_verifier is None:
            if self.ahead is not None and self.ahead.draft is not None:  # held while an n-gram draft was verified
                effects = [self._join(self.ahead, now_s)]
            else:
                effects = self._renewed(number, event.round_input, now_s, drafted=drafted)
        self._emitter.explain(self._chooser.choice)
        open_ = self._chooser.may_draft or self._lookup.may
        asks = self.ahead is None and open_ and self._half_used(number + 1)
        return [*effects, Follow(number, self._tracker.terms(now_s, 1.0), asks)]

    def _await_joined(self, now_s: float) -> list[Effect]:
        """At the end of a run's grant: follow the block that was to join, if the verifier has one."""
        ahead = self._at_verifier
        if ahead is None:
            return []
        ahead.began_at_s = self._current.began_at_s = now_s
        self._make_current(ahead)
        self._emitter.explain(self._chooser.choice)
        return [Follow(ahead.number, self._tracker.terms(now_s, ahead.expected_tokens), asks=True)]

    def _renewed(self, number: int, round_input: RoundInput | None, now_s: float, *, drafted: bool) -> list[Effect]:
        """Order a draft beside the run where that pays, and renew the run's grant where due.

        ``drafted``: a draft was just decided, so a new choice is made at once.
        """
        due, ordered = self._half_used(number), list[Effect]()
        if self.ahead is None and round_input is not None and (due or drafted):
            chosen = self._chooser.choose(round_input, self._tracker.promise(now_s)).chosen
            if chosen.plan is not None and not self.may_draft_beside(chosen):
                return []  # this draft has to be waited for: let the run end, the next round orders it
            if chosen.plan is not None:
                ordered = [self.order_ahead(chosen, now_s)]
        if not (due or ordered):
            return ordered
        self._until_round = max(self._until_round, self._grant(number))
        return [*ordered, Extend(self._until_round, self._lookup.grant)]

    def _half_used(self, number: int) -> bool:
        """Whether less than half of a full grant is left: it is then due to be renewed."""
        return 2 * (self._until_round - number) < self._grant(number) - number

    def _verify_ahead(self, ahead: OpenRound, began_at_s: float, waited_s: float = 0.0) -> Verify:
        """Return the request for a draft that was ordered ahead, in a round of its own after its run has ended.

        ``waited_s``: part of the exchange in which no run was under way; it is this round's own time.
        """
        ahead.began_at_s, ahead.beside_s = began_at_s, max(0.0, ahead.beside_s - waited_s)
        verify = self._verifier.block(ahead, self._run_behind(ahead))
        self._make_current(ahead)
        self._emitter.explain(self._chooser.choice)
        return verify

    def _join(self, ahead: OpenRound, began_at_s: float) -> Join:
        ahead.began_at_s = began_at_s
        verify = self._verifier.block(ahead, self._run_behind(ahead))
        assert verify.opening is None, "the verifier makes an autonomous run behind it"
        return Join(verify.block, verify.cost, verify.terms)

    @property
    def _at_verifier(self) -> OpenRound | None:
        """The round ordered ahead, once its block is at the verifier to replace the run."""
        return self.ahead if self.ahead is not None and self.ahead.block is not None else None

    def _make_current(self, ahead: OpenRound) -> None:
        """Make the round ordered ahead the current one, and the run behind its block the present run."""
        assert ahead.block is not None, "what takes a round's place is with the verifier"
        assert ahead.block.autonomous_run is not None
        self._current.round, self._until_round = ahead, ahead.block.autonomous_run.until_round
        self.ahead = None

    def _run_behind(self, round_: OpenRound, *, asks: bool = False) -> AutonomousRun:
        """Return the run granted behind a round; an empty one if the next round asks a device (``asks``)."""
        drafted_tokens = 0 if round_.draft is None else len(round_.draft.token_ids)
        until_round = round_.number if asks else self._grant(round_.number, drafted_tokens)
        return AutonomousRun(until_round, self._generation.end_ids, self._lookup.grant)

    def _grant(self, number: int, drafted_tokens: int = 0) -> int:
        """Return the last round of a run behind round ``number``, which may commit ``drafted_tokens`` + 1 tokens."""
        before = None if self.ahead is None or number >= self.ahead.number else self.ahead.number
        choice = self._chooser.choice
        if before is not None and choice is not None:
            rounds = self._grants.beside(choice.chosen)
        else:
            rounds = self._grants.rounds(choice, may_draft=self._chooser.may_draft)
        # Every round commits a token at least, so more rounds than tokens left could never be used.
        until_round = number + max(0, min(rounds, self._generation.remaining_tokens - drafted_tokens - 1))
        return until_round if before is None else min(until_round, before - 1)
