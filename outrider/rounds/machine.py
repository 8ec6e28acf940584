"""The state machine of one response's rounds: draft, verify, commit. It maps events to effects, without clock or I/O.

The coordinator carries the effects out. Only the last effect of a step may be one to wait for; an event answers it. If
a step has no such effect and no round is with the verifier, the next event of an active generation is ``RoundInput``.

- *A round* begins with ``RoundInput``. A pending correction (DSSD) comes first: the machine waits for a drafter of the
  right model, asks the verifier for the target's row if that is unknown, and sends it with the order for the next
  block. The block then goes to the verifier. Its outcome is committed, or is undecided: then the verifier needs hidden
  states of the device before it can decide (WISV).
- *Autonomous runs*: without a draft the verifier may decode several rounds by itself. The machine follows each of them
  and renews the grant before it ends, until a device is to draft and its draft has to be waited for.
- *Ordering ahead*: where the output does not depend on when a draft arrives, the device drafts while the run goes on.
  The draft's round has a number above all rounds of the run. The draft joins the verifier's next step when it arrives.
  Machine and verifier both remove from its front what was committed meanwhile. At most one draft is ordered ahead;
  until it arrives or its device is lost, no other draft and no correction is ordered.
- *Prompt lookup* needs no device and no wait. An n-gram draft replaces a device's draft if it costs less per token. In
  an autonomous run the verifier drafts so by itself and reports its draft with the outcome. A draft that arrives while
  an n-gram draft of this machine is with the verifier is *held* until that one is decided.
"""

from dataclasses import replace
from math import inf

from outrider.contracts.autonomous_runs import goes_on, without_draft
from outrider.contracts.drafting import Draft, DraftPlan, NeedsRow
from outrider.contracts.errors import (
    ContextTooLongError,
    GenerationFailedError,
    GrammarError,
    NonFiniteError,
    RequestFailedError,
)
from outrider.contracts.verifying import AutonomousRun, BlockRefused, Failed, Resolution, Undecided, Verified
from outrider.protocols.registry import CORRECTION_ALONE
from outrider.rounds.blocks import row_request
from outrider.rounds.choice import RoundChooser
from outrider.rounds.events import (
    AskAgain,
    AskDrafter,
    AwaitDraft,
    AwaitDrafter,
    AwaitVerifier,
    DrafterAnswered,
    Effect,
    Event,
    Extend,
    Fail,
    Follow,
    Incident,
    Join,
    Measured,
    OrderAhead,
    Report,
    Resolve,
    RoundInput,
    Send,
    VerifierAnswered,
)
from outrider.rounds.generation import Generation
from outrider.rounds.lookup.ngram_drafts import NgramDraft
from outrider.rounds.lookup.prompt_lookup import PromptLookup, with_draft
from outrider.rounds.open_round import OpenRound
from outrider.rounds.pending_correction import PendingCorrection
from outrider.rounds.promise_tracker import PromiseTracker
from outrider.rounds.response_emitter import ResponseEmitter
from outrider.rounds.rules import LINK_PATIENCE, RoundRules
from outrider.rounds.states import CorrectionEvent, CorrectionState, GenerationState, RoundEvent
from outrider.rounds.verifier_side import VerifierSide
from outrider.scheduling.ledger import resumed_ledger
from outrider.selection.modes import DRAFT
from outrider.selection.situation import Estimate, RoundChoice
from outrider.text.shown import IncrementalText

_MOST_BESIDE = (
    1024  # most rounds of a run while a draft is under way; a multiple of 256, as the wire has round numbers modulo 256
)
_LEAST_BESIDE = 64  # round numbers that must be left before a late draft's for another n-gram draft to go first


class RoundMachine:
    """The rounds of one response: one in progress, and at most one whose draft is ordered ahead."""

    def __init__(self, generation: Generation, text: IncrementalText, rules: RoundRules, now_s: float) -> None:
        """Take over a NEW generation and its text. The ledger of a resumed one goes on from ``now_s``."""
        request = generation.request
        self._generation, self._rules = generation, rules
        self._chooser = RoundChooser(generation, rules.speculation, rules.policy)
        first_due_at_s = now_s + (request.first_token_s or rules.first_token_s) if request.slo.tokens_per_s else inf
        ledger = resumed_ledger(request.slo.tokens_per_s, request.ledger, now_s, first_due_at_s)
        self._tracker = PromiseTracker(ledger, rules.deadline_rule, rules.spikes)
        self._emitter = ResponseEmitter(generation, text, self._tracker, now_s)
        self._pending_correction = PendingCorrection(generation, self._tracker, self._emitter, rules.speculation.wire)
        self._began_at_s: float | None = None  # of the current round
        self._round: OpenRound | None = None
        self._ahead: OpenRound | None = None  # ordered ahead: draft at the device, held here, or block at the verifier
        self._verifier = VerifierSide(generation, rules, self._tracker, self._chooser)
        self._lookup = PromptLookup(generation, rules)
        self._choice: RoundChoice | None = None
        self._mode = DRAFT  # in use when the choice was made

    @property
    def generation(self) -> Generation:
        return self._generation

    @property
    def follows_tuner(self) -> bool:
        """Whether the speculation tuner decides what is drafted: only then do the rounds count for its modes."""
        return self._chooser.follows_tuner

    @property
    def drafting_follows_tuner(self) -> bool:
        """Whether the speculation tuner decides if devices draft for this response."""
        return self._chooser.drafting_follows_tuner

    @property
    def needs_drafter(self) -> bool:
        """Whether the response can use a drafter: for drafts, or for a pending correction."""
        return self._chooser.may_draft or self._generation.correction_by is not None

    def step(self, event: Event, now_s: float) -> list[Effect]:
        """Return the effects of an event, in the order in which they are to be carried out.

        Raises:
            IllegalTransitionError: the event is impossible in the present state.
        """
        match event:
            case RoundInput():
                effects = self._on_round_input(event, now_s)
            case DrafterAnswered():
                effects = self._answered(event, now_s)
            case VerifierAnswered():
                effects = self._decided(event, now_s)
        if self._generation.state is GenerationState.FINISHED:
            self._lookup.over()
        return effects

    def moved(self, number: int, event: RoundEvent) -> None:
        """Record that a block was dispatched. Does nothing if the round ended between planning and dispatch."""
        if number in self._generation.open_rounds:
            self._generation.round_happened(number, event)

    def paused(self, seconds: float) -> None:
        """Take time out of the SLO ledger in which no round began because the client did not read."""
        self._tracker.paused(seconds)

    def _on_round_input(self, round_input: RoundInput, now_s: float) -> list[Effect]:
        if self._began_at_s is None:
            self._began_at_s = now_s
        self._lookup.observe(round_input)
        if self._ahead is not None:  # its autonomous run is over: no new choice before that draft is used
            return self._go_on_without(self._ahead)
        correction = self._generation.correction
        if correction.state is CorrectionState.SETTLED:
            return self._begin(round_input, self._began_at_s, now_s)
        due_at_s = correction.wait_until_s(now_s, self._rules.correction_deadline_s)
        ready = round_input.drafter is not None and round_input.drafter.view is not None
        # A leased drafter of another model, or an untrusted one, cannot draw the token: do not wait for the deadline.
        if now_s >= due_at_s or (ready and not self._pending_correction.may_draw(round_input.drafter)):
            self._began_at_s = None
            return [self._pending_correction.give_up_correction()]
        if not ready:
            return [AwaitDrafter(due_at_s)]
        if correction.state is CorrectionState.ROW_MISSING:
            return self._order_row(self._began_at_s)
        return self._begin(round_input, self._began_at_s, now_s)

    def _order_row(self, began_at_s: float) -> list[Effect]:
        """Ask the verifier for the target's row, from whose residual a device is to draw the correction."""
        generation = self._generation
        generation.correction.happened(CorrectionEvent.ROW_ORDERED)
        self._round = OpenRound(generation.begin_round(drafting=False), began_at_s)
        opening = self._verifier.opening()
        block = row_request(generation, self._round.number, self._rules.speculation.wire)
        return [self._verifier.request(self._round, block, opening)]

    def _choose(self, round_input: RoundInput, now_s: float) -> RoundChoice:
        self._choice, self._mode = self._chooser.choose(round_input, self._tracker.promise(now_s)), round_input.mode
        return self._choice

    def _begin(self, round_input: RoundInput, began_at_s: float, now_s: float) -> list[Effect]:
        generation, choice = self._generation, self._choose(round_input, now_s)
        self._emitter.explain(self._choice)
        plan, pending = choice.chosen.plan, generation.correction_by is not None
        if plan is None and pending:
            plan = CORRECTION_ALONE
        beside = plan is not None and not pending and self._goes_on_beside(choice.chosen)
        # An n-gram draft competes with a device's draft that would be waited for, not with one beside a run.
        found = None if pending else self._lookup.found(None if plan is None or beside else choice.chosen)
        ordered: list[Effect] = []
        if beside and found is None:
            ordered, plan = self._order_ahead(choice.chosen, began_at_s), None
        number = generation.begin_round(drafting=plan is not None and found is None)
        if plan is None or found is not None:
            self._round = OpenRound(number, began_at_s)
            # An n-gram draft in place of a device's has no run behind it: the device is considered again after it.
            return [*ordered, *self._verify_alone(self._round, found, asks=plan is not None and not beside)]
        self._round, order = self._drafted(number, began_at_s, plan, choice.chosen)
        if pending:
            order = replace(order, correction=generation.correction.source, must_use=True)
            generation.correction.happened(CorrectionEvent.ORDERED)
        return [order]

    def _drafted(
        self, number: int, began_at_s: float, plan: DraftPlan, estimate: Estimate
    ) -> tuple[OpenRound, AskDrafter]:
        """Make a round with a device's draft, and the order for it."""
        allowed_s, survivals = LINK_PATIENCE * estimate.round_s, self._chooser.survivals(plan)
        whole = self._chooser.must_stay_whole(plan)
        round_ = OpenRound(number, began_at_s, plan, estimate.expected_tokens, allowed_s, survivals, whole)
        must_use, price = self._pending_correction.must_use(plan), self._chooser.price(estimate)
        due_at_s = self._tracker.terms(began_at_s, estimate.expected_tokens).deadline_at_s
        return round_, AskDrafter(number, plan, None, allowed_s, must_use, estimate.exchange_s, price, due_at_s)

    def _goes_on_beside(self, estimate: Estimate) -> bool:
        """Whether a draft is ordered ahead, beside an autonomous run."""
        # An opening or a correction reaches the verifier only with a block: until then nothing is ordered ahead.
        return self._verifier.knows_all and self._chooser.goes_on_beside(estimate)

    def _order_ahead(self, estimate: Estimate, now_s: float) -> list[Effect]:
        assert estimate.plan is not None
        assert self._ahead is None, "at most one draft is ordered ahead"
        number = self._generation.begin_round(drafting=True, ahead=_MOST_BESIDE)
        self._ahead, order = self._drafted(number, now_s, estimate.plan, estimate)
        assert not order.must_use, "what has to be used is waited for"
        return [OrderAhead(order)]

    def _answered(self, event: DrafterAnswered, now_s: float) -> list[Effect]:
        if self._ahead is not None and event.round == self._ahead.number:
            return self._came(self._ahead, event, now_s)
        generation, round_ = self._generation, self._open(event.round)
        if round_.undecided:
            return self._resolved(round_, event)
        correction = generation.correction
        if event.exchange is None:
            generation.round_happened(round_.number, RoundEvent.DRAFTER_LOST)
            effects = self._pending_correction.give_up_draft(round_) if event.censored else []
            if correction.by is not None:  # no block can go out without the token: find another drafter first
                correction.happened(CorrectionEvent.DRAFTER_LOST)
                return [*self._over(), *effects]
            # Go on without a device, from the same start: the time lost with the drafter counts in this round.
            self._round = OpenRound(generation.begin_round(drafting=False), round_.began_at_s)
            return [*effects, *self._verify_alone(self._round, self._lookup.found())]
        round_.exchanges.append(event.exchange)
        answer = event.exchange.answer
        if isinstance(answer, NeedsRow):  # no candidate passed the device's test: it needs the whole row
            generation.round_happened(round_.number, RoundEvent.OVERTAKEN)
            correction.happened(CorrectionEvent.NOT_AMONG_CANDIDATES)
            return [*self._over(), Report(Incident.CANDIDATES_REFUSED)]
        assert isinstance(answer, Draft), "only an undecided round is resolved"
        generation.round_happened(round_.number, RoundEvent.BLOCK_ARRIVED)
        round_.came(answer)
        sent = [] if answer.correction is None else self._pending_correction.drawn(round_, answer.correction, now_s)
        # The correction may have ended the response; what was drafted behind it is then not verified.
        return [*sent, self._verifier.block(round_)] if generation.state is GenerationState.ACTIVE else sent

    def _came(self, ahead: OpenRound, event: DrafterAnswered, now_s: float) -> list[Effect]:
        """Take a draft that was ordered ahead. If its device is lost, the autonomous run simply goes on."""
        generation, exchange = self._generation, event.exchange
        if exchange is None:
            generation.round_happened(ahead.number, RoundEvent.DRAFTER_LOST)
            self._ahead = None
            return []
        assert isinstance(exchange.answer, Draft), "no correction is owed"
        generation.round_happened(ahead.number, RoundEvent.BLOCK_ARRIVED)
        ahead.exchanges.append(exchange)
        ahead.came(exchange.answer)
        ahead.beside_s = exchange.draft_s + exchange.link_s
        # Remove what was committed between the draft's position and now.
        ahead.overtaken(tuple(generation.output_ids[exchange.answer.position - len(generation.request.prompt_ids) :]))
        if self._round is not None and self._round.from_lookup is not None:
            return []  # held until the n-gram draft is decided: ``_join_held``
        if self._round is not None:
            return self._join(ahead)
        assert self._began_at_s is not None, "it was waited for"
        return self._go(ahead, self._began_at_s, waited_s=now_s - self._began_at_s)

    def _go_on_without(self, ahead: OpenRound) -> list[Effect]:
        """After the autonomous run's end: verify an n-gram draft, else the draft ordered ahead, else wait for that."""
        assert self._began_at_s is not None
        found = self._lookup.found()
        if found is not None and self._room_before(ahead):
            self._emitter.explain(self._choice)
            self._round = OpenRound(self._generation.begin_round(drafting=False), self._began_at_s)
            return self._verify_alone(self._round, found)
        return [AwaitDraft(ahead.number)] if ahead.draft is None else self._go(ahead, self._began_at_s)

    def _go(self, ahead: OpenRound, began_at_s: float, waited_s: float = 0.0) -> list[Effect]:
        """Verify a draft that was ordered ahead in a round of its own, after its run has ended.

        ``waited_s``: part of the exchange in which no run was under way; it is this round's own time.
        """
        ahead.began_at_s, ahead.beside_s = began_at_s, max(0.0, ahead.beside_s - waited_s)
        verify = self._verifier.block(ahead, self._run_behind(ahead))
        self._make_current(ahead)
        self._emitter.explain(self._choice)
        return [verify]

    def _make_current(self, ahead: OpenRound) -> None:
        """Make the round ordered ahead the current one, and the run behind its block the present run."""
        assert ahead.block is not None, "what takes a round's place is with the verifier"
        assert ahead.block.autonomous_run is not None
        self._round, self._verifier.until_round = ahead, ahead.block.autonomous_run.until_round
        self._ahead = None

    def _verify_alone(self, round_: OpenRound, found: NgramDraft | None, *, asks: bool = False) -> list[Effect]:
        """Have a block without a device's draft verified: with an n-gram draft, or none.

        An autonomous run may follow it, unless the next round is to ask a device (``asks``).
        """
        if found is not None:
            with_draft(round_, found, self._generation)
            self._emitter.explain_lookup(self._choice, found)
        autonomous_run = self._run_behind(round_, asks=asks)
        self._verifier.until_round = autonomous_run.until_round
        return [self._verifier.block(round_, autonomous_run)]

    def _room_before(self, ahead: OpenRound) -> bool:
        """Whether enough round numbers are left below that of the late draft."""
        return self._verifier.until_round + _LEAST_BESIDE < ahead.number

    @property
    def _ahead_at_verifier(self) -> OpenRound | None:
        """The round ordered ahead, once its block is at the verifier to replace the autonomous run."""
        ahead = self._ahead
        return ahead if ahead is not None and ahead.block is not None else None

    def _join(self, ahead: OpenRound) -> list[Effect]:
        assert self._round is not None
        ahead.began_at_s = self._round.began_at_s
        verify = self._verifier.block(ahead, self._run_behind(ahead))
        assert verify.opening is None, "the verifier makes an autonomous run behind it"
        return [Join(verify.block, verify.cost, verify.terms)]

    def _run_behind(self, round_: OpenRound, *, asks: bool = False) -> AutonomousRun:
        """The autonomous run granted behind a round; an empty one if the next round asks a device (``asks``)."""
        until_round, drafted = round_.number, 0 if round_.draft is None else len(round_.draft.token_ids)
        if not asks:
            until_round = self._verifier.grant(until_round, self._choice, self._drafting, drafted)
        return AutonomousRun(until_round, self._generation.end_ids, self._lookup.grant)

    @property
    def _drafting(self) -> int | None:
        """Number of the round that a device drafts for beside the run; None if there is none."""
        return None if self._ahead is None else self._ahead.number

    def _decided(self, event: VerifierAnswered, now_s: float) -> list[Effect]:
        if (ahead := self._ahead_at_verifier) is not None and event.round == ahead.number:
            self._joined(ahead)
        round_, outcome = self._open(event.round), None
        if event.result is not None:
            self._verifier.answered()
            round_.queue_s += event.result.queue_s
            round_.verify_s += event.result.verify_s
            outcome = event.result.outcome
            if event.result.draft_tokens is not None:
                round_.only(event.result.draft_tokens)
        match outcome:
            case Verified():
                self._verifier.decided()
                row = self._generation.correction.state is CorrectionState.ROW_ORDERED
                return self._row_came(outcome, now_s) if row else self._commit(round_, outcome, event, now_s)
            case Undecided():
                return self._undecided(round_, outcome)
            case BlockRefused() if round_.resolved_by_device:  # the device's hidden states do not fit: do without
                return self._resolve(round_, None)
            case BlockRefused() if outcome.too_long or outcome.by_grammar:
                return [Fail((GrammarError if outcome.by_grammar else ContextTooLongError)(outcome.reason))]
            case BlockRefused() | Failed():
                kind = NonFiniteError if isinstance(outcome, Failed) and outcome.non_finite else RequestFailedError
                return [Fail(kind(f"round {round_.number} cannot be verified: {outcome.reason}"))]
            case _:  # the verifier died; or it has no such generation (Unknown), or another prefix of it (Stale)
                return self._verifier_lost(round_)

    def _joined(self, ahead: OpenRound) -> None:
        """Let a block that joined take the place of the autonomous run's next round."""
        assert self._round is not None
        self._generation.round_happened(self._round.number, RoundEvent.OVERTAKEN)
        ahead.began_at_s = self._round.began_at_s
        self._make_current(ahead)

    def _row_came(self, outcome: Verified, now_s: float) -> list[Effect]:
        """Take the row for a pending correction. If only one token is possible, it is committed and none is pending."""
        sent = self._pending_correction.row_came(outcome, now_s)
        if self._generation.correction_by is None:
            self._over()
        return sent

    def _commit(self, round_: OpenRound, outcome: Verified, event: VerifierAnswered, now_s: float) -> list[Effect]:
        round_.drafted_itself(outcome.own_draft)
        generation, plan, block = self._generation, round_.plan, round_.verified
        self._emitter.explain_own_draft(self._choice, outcome.own_draft, block.autonomous_run)
        # Rounds beside a draft do not count as rounds without one; an n-gram draft says nothing about devices.
        if not round_.by_lookup and self._ahead is None:
            self._chooser.learn(
                plan,
                block,
                outcome,
                round_.equal_tokens,
                round_.wrong_tokens,
                judged=not round_.unanswered,
                device_tokens=round_.device_tokens,
            )
        committed = generation.commit(
            outcome,
            block.draft,
            round_.uncommitted,
            block.parents,
            protocol=round_.protocol,
            draft_model=round_.draft_model,
            exact=round_.is_exact(outcome, self._rules.speculation.wire),
            judged_tokens=round_.judged_tokens(outcome),
            trimmed_tokens=round_.trimmed_tokens,
            wrong_tokens=round_.wrong_tokens,
            from_lookup=round_.by_lookup,
        )
        if self._ahead is not None and self._ahead.draft is not None:
            self._ahead.overtaken(committed.token_ids)
        self._tracker.committed(len(committed.token_ids), now_s)
        timing = round_.timing(outcome, round_.sent_tokens + len(committed.token_ids), now_s, self._mode)
        # A device's correction counts for the round that rejected a token, not for the one that it arrives with.
        yielded = len(committed.token_ids) - len(round_.uncommitted) + (generation.correction_by is not None)
        first = generation.stats.rounds <= 1
        judgement = self._tracker.judged(yielded, timing.total_s, timing.verify_s, first=first)
        if judgement is not None:
            generation.late(judgement.late)
            slo_class = generation.request.slo.name
            timing = replace(timing, slo_class=slo_class, late=judgement.late, behind=judgement.behind)
        self._emitter.measured(timing, now_s)
        chunk = self._emitter.chunk(committed)
        self._over()
        behind = self._went_on(round_, outcome, event, now_s)
        return [Measured(timing), *behind[:-1], Send(chunk), *behind[-1:]]  # the one to wait for stays the last

    def _went_on(self, round_: OpenRound, outcome: Verified, event: VerifierAnswered, now_s: float) -> list[Effect]:
        """Follow the autonomous run to its next round, if there is one; renew its grant where that is due."""
        generation, block = self._generation, round_.verified
        if generation.state is not GenerationState.ACTIVE or not goes_on(block, outcome):
            return []
        if outcome.round >= self._verifier.until_round:
            return self._await_joined(now_s)
        number, drafted = outcome.round + 1, not round_.follows and round_.protocol is not None
        generation.begin_following_round(number)
        self._round, self._began_at_s = OpenRound(number, now_s, block=without_draft(block), follows=True), now_s
        if event.round_input is not None:
            self._lookup.observe(event.round_input)
            self._mode = event.round_input.mode
        effects = list[Effect]()
        # Not while a block is at the verifier: that replaces the run, and has a grant of its own.
        if event.goes_on and self._ahead_at_verifier is None:
            effects = self._join_held() or self._renewed(number, event.round_input, now_s, drafted=drafted)
        self._emitter.explain(self._choice)
        open_ = self._chooser.may_draft or self._lookup.may
        asks = self._ahead is None and open_ and self._half_used(number + 1)
        return [*effects, Follow(number, self._tracker.terms(now_s, 1.0), asks)]

    def _join_held(self) -> list[Effect]:
        """Join a draft that was held while an n-gram draft was verified."""
        ahead = self._ahead
        return [] if ahead is None or ahead.draft is None else self._join(ahead)

    def _await_joined(self, now_s: float) -> list[Effect]:
        """At the end of a run's grant: follow the block that was to join, if the verifier has one."""
        ahead = self._ahead_at_verifier
        if ahead is None:
            return []
        ahead.began_at_s = self._began_at_s = now_s
        self._make_current(ahead)
        self._emitter.explain(self._choice)
        return [Follow(ahead.number, self._tracker.terms(now_s, ahead.expected_tokens), asks=True)]

    def _renewed(self, number: int, round_input: RoundInput | None, now_s: float, *, drafted: bool) -> list[Effect]:
        """Order a draft beside an autonomous run where that pays, and renew the run's grant where due.

        ``drafted``: a draft was just decided, so a new choice is made at once.
        """
        due, ordered = self._half_used(number), list[Effect]()
        if self._ahead is None and round_input is not None and (due or drafted):
            chosen = self._choose(round_input, now_s).chosen
            if chosen.plan is not None and not self._goes_on_beside(chosen):
                return []  # this draft has to be waited for: let the run end, the next round orders it
            if chosen.plan is not None:
                ordered = self._order_ahead(chosen, now_s)
        if not (due or ordered):
            return ordered
        grant = self._verifier.grant(number, self._choice, self._drafting)
        self._verifier.until_round = max(self._verifier.until_round, grant)
        return [*ordered, Extend(self._verifier.until_round, self._lookup.grant)]

    def _half_used(self, number: int) -> bool:
        """Whether less than half of a full grant is left: it is then due to be renewed."""
        grant = self._verifier.grant(number, self._choice, self._drafting)
        return 2 * (self._verifier.until_round - number) < grant - number

    def _undecided(self, round_: OpenRound, outcome: Undecided) -> list[Effect]:
        assert round_.exchanges, "what no device drafted is decided at once"
        self._generation.round_happened(round_.number, RoundEvent.UNDECIDED)
        round_.undecided = True
        return [AskAgain(outcome, round_.allowed_s)]

    def _resolved(self, round_: OpenRound, event: DrafterAnswered) -> list[Effect]:
        """Take the second half of a two-step round: the device's resolution, or its loss."""
        self._generation.round_happened(round_.number, RoundEvent.RESOLVED)
        round_.undecided = False
        if event.exchange is None:
            return self._resolve(round_, None)
        round_.exchanges.append(event.exchange)
        assert isinstance(event.exchange.answer, Resolution), "an undecided round is resolved"
        return self._resolve(round_, event.exchange.answer)

    def _resolve(self, round_: OpenRound, sent: Resolution | None) -> list[Effect]:
        """Send the resolution to the verifier; without one (None) it rejects all tokens that it asked about."""
        round_.resolved_by_device, round_.unanswered = sent is not None, sent is None
        return [Resolve(Resolution(self._generation.name, round_.number, None) if sent is None else sent)]

    def _verifier_lost(self, round_: OpenRound) -> list[Effect]:
        """Close the rounds that a verifier lost; the next block opens the generation there again."""
        generation, correction = self._generation, self._generation.correction
        generation.round_happened(round_.number, RoundEvent.VERIFIER_LOST)
        if correction.by is not None:
            correction.happened(CorrectionEvent.VERIFIER_LOST)
        if (ahead := self._ahead_at_verifier) is not None:
            generation.round_happened(ahead.number, RoundEvent.VERIFIER_LOST)
            self._ahead = None
        times, lost = self._verifier.lost(), Report(Incident.ROUND_LOST, {"round": round_.number})
        if times is not None:
            reason = f"the verifier was lost {times} times in a row before a round was committed; see its log"
            return [lost, Fail(GenerationFailedError(reason))]
        return [*self._over(), lost, AwaitVerifier()]

    def _open(self, number: int) -> OpenRound:
        assert self._round is not None, "only what was asked is answered"
        assert self._round.number == number, "one round is in progress"
        return self._round

    def _over(self) -> list[Effect]:
        """End the current round; return no effects, for callers to return."""
        self._round = self._began_at_s = None
        return []
