"""The rounds of one response as a state machine: events in, effects out. It has no clock and does no I/O.

The caller carries the effects out. Only the last effect of a step may be waited for; its answer is an event. If a step
has no such effect and no round is with the verifier, the caller sends the next ``Turn`` while the generation is active.

A round starts with its ``Turn``. A pending correction comes first: the machine waits for a drafter of the right model,
asks the verifier for the target row if it is not known, and sends it with the order for the next block. The block then
goes to the verifier. Its outcome is committed, or is undecided and needs more from the device (WISV).

While nothing is drafted the verifier may decode autonomously. Each of its rounds is followed, and its grant is renewed
before it ends as long as nothing is to be drafted.

A verifier may also decode autonomously while a device drafts, if the output does not depend on when the draft arrives.
That draft is ordered *ahead*: its number is behind all rounds of the run, and it joins the verifier's next step when it
arrives. Tokens committed meanwhile are cut off its front, here and at the verifier. At most one draft is ordered ahead;
until it arrives or its device is lost, no other draft and no correction is asked of a device.

Prompt lookup needs no device. Its draft is used if its expected gain is larger than that of a device's draft, and no
device is asked then. In an autonomous run the verifier does the lookup and returns its draft with the round. A draft
that was ordered ahead is *held* while a draft from prompt lookup is with the verifier; what is left of it counts then.
"""

from dataclasses import replace
from math import inf

from outrider.contracts.autonomous_runs import alone, goes_on
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
from outrider.rounds.account import RoundAccount
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
    Send,
    Turn,
    VerifierAnswered,
)
from outrider.rounds.generation import Generation
from outrider.rounds.ngram_drafts import NgramDraft
from outrider.rounds.open_round import OpenRound
from outrider.rounds.pending_correction import PendingCorrection
from outrider.rounds.prompt_lookup import PromptLookup, with_draft
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
_LEAST_BESIDE = 64  # with fewer numbers left no n-gram draft is verified: the device's is waited for


class RoundMachine:
    """The rounds of one response: one in progress, and at most one whose draft is ordered ahead."""

    def __init__(self, generation: Generation, text: IncrementalText, rules: RoundRules, now_s: float) -> None:
        """Take over a NEW generation and its text; a resumed one's promise counts from now on."""
        request = generation.request
        self._generation, self._rules = generation, rules
        self._chooser = RoundChooser(generation, rules.speculation, rules.policy)
        first_due_at_s = now_s + (request.first_token_s or rules.first_token_s) if request.slo.tokens_per_s else inf
        ledger = resumed_ledger(request.slo.tokens_per_s, request.ledger, now_s, first_due_at_s)
        self._account = RoundAccount(ledger, rules.deadline_rule, rules.spikes)
        self._emitter = ResponseEmitter(generation, text, self._account, now_s)
        self._pending_correction = PendingCorrection(generation, self._account, self._emitter, rules.speculation.wire)
        self._began_at_s: float | None = None  # of the round that is being made
        self._round: OpenRound | None = None
        self._ahead: OpenRound | None = None  # ordered ahead: with its device, held, or with the verifier with a block
        self._verifier = VerifierSide(generation, rules, self._account, self._chooser)
        self._lookup = PromptLookup(generation, rules)
        self._choice: RoundChoice | None = None
        self._mode = DRAFT  # under which that was made

    @property
    def generation(self) -> Generation:
        return self._generation

    @property
    def follows_tuner(self) -> bool:
        """Whether the verifier's speculation tuner decides what is drafted: then rounds count for the mode in use."""
        return self._chooser.follows_tuner

    @property
    def drafting_follows_tuner(self) -> bool:
        """Whether the tuner decides if devices draft."""
        return self._chooser.drafting_follows_tuner

    @property
    def needs_drafter(self) -> bool:
        """Whether a drafter is of any use."""
        return self._chooser.may_draft or self._generation.correction_by is not None

    def step(self, event: Event, now_s: float) -> list[Effect]:
        """What to do now that this has happened.

        Raises:
            IllegalTransitionError: it cannot happen now.
        """
        match event:
            case Turn():
                effects = self._turn(event, now_s)
            case DrafterAnswered():
                effects = self._answered(event, now_s)
            case VerifierAnswered():
                effects = self._decided(event, now_s)
        if self._generation.state is GenerationState.FINISHED:
            self._lookup.over()
        return effects

    def moved(self, number: int, event: RoundEvent) -> None:
        """A block was given to the verifier (DISPATCHED), unless its round is over or lost since it was planned."""
        if number in self._generation.open_rounds:
            self._generation.round_happened(number, event)

    def paused(self, seconds: float) -> None:
        """So long nothing was begun because nobody read: it is nobody's promise that was broken."""
        self._account.paused(seconds)

    def _turn(self, turn: Turn, now_s: float) -> list[Effect]:
        if self._began_at_s is None:
            self._began_at_s = now_s
        self._lookup.sees(turn)
        if self._ahead is not None:
            return self._go_on_without(self._ahead)
        correction = self._generation.correction
        if correction.state is CorrectionState.SETTLED:
            return self._begin(turn, self._began_at_s, now_s)
        due_at_s = correction.wait_until_s(now_s, self._rules.correction_deadline_s)
        ready = turn.drafter is not None and turn.drafter.view is not None
        if now_s >= due_at_s or (ready and not self._pending_correction.may_draw(turn.drafter)):
            self._began_at_s = None
            return [self._pending_correction.give_up_correction()]
        if not ready:
            return [AwaitDrafter(due_at_s)]
        if correction.state is CorrectionState.ROW_MISSING:
            return self._order_row(self._began_at_s)
        return self._begin(turn, self._began_at_s, now_s)

    def _order_row(self, began_at_s: float) -> list[Effect]:
        """Ask the verifier for what a device is to draw from."""
        generation = self._generation
        generation.correction.happened(CorrectionEvent.ROW_ORDERED)
        self._round = OpenRound(generation.begin_round(drafting=False), began_at_s)
        opening = self._verifier.opening()
        block = row_request(generation, self._round.number, self._rules.speculation.wire)
        return [self._verifier.ask(self._round, block, opening)]

    def _choose(self, turn: Turn, now_s: float) -> RoundChoice:
        self._choice, self._mode = self._chooser.choose(turn, self._account.promise(now_s)), turn.mode
        return self._choice

    def _begin(self, turn: Turn, began_at_s: float, now_s: float) -> list[Effect]:
        generation, choice = self._generation, self._choose(turn, now_s)
        self._emitter.explain(self._choice)
        plan, pending = choice.chosen.plan, generation.correction_by is not None
        if plan is None and pending:
            plan = CORRECTION_ALONE
        beside = plan is not None and not pending and self._goes_on_beside(choice.chosen)
        found = None if pending else self._lookup.found(None if plan is None or beside else choice.chosen)
        ordered: list[Effect] = []
        if beside and found is None:
            ordered, plan = self._order_ahead(choice.chosen, began_at_s), None
        number = generation.begin_round(drafting=plan is not None and found is None)
        if plan is None or found is not None:
            self._round = OpenRound(number, began_at_s)
            return [*ordered, *self._verify_alone(self._round, found, asks=plan is not None and not beside)]
        self._round, order = self._drafted(number, began_at_s, plan, choice.chosen)
        if pending:
            order = replace(order, correction=generation.correction.source, binding=True)
            generation.correction.happened(CorrectionEvent.ORDERED)
        return [order]

    def _drafted(
        self, number: int, began_at_s: float, plan: DraftPlan, estimate: Estimate
    ) -> tuple[OpenRound, AskDrafter]:
        """A round with a draft, and what is asked of the device."""
        allowed_s, survivals = LINK_PATIENCE * estimate.round_s, self._chooser.survivals(plan)
        whole = self._chooser.must_stay_whole(plan)
        round_ = OpenRound(number, began_at_s, plan, estimate.expected_tokens, allowed_s, survivals, whole)
        binding, price = self._pending_correction.is_binding(plan), self._chooser.price(estimate)
        due_at_s = self._account.terms(began_at_s, estimate.expected_tokens).deadline_at_s
        return round_, AskDrafter(number, plan, None, allowed_s, binding, estimate.exchange_s, price, due_at_s)

    def _goes_on_beside(self, estimate: Estimate) -> bool:
        """Whether this is ordered ahead."""
        # A verifier that has to be told of something first needs its block for that.
        return self._verifier.knows_all and self._chooser.goes_on_beside(estimate)

    def _order_ahead(self, estimate: Estimate, now_s: float) -> list[Effect]:
        assert estimate.plan is not None
        assert self._ahead is None, "at most one draft is ordered ahead"
        number = self._generation.begin_round(drafting=True, ahead=_MOST_BESIDE)
        self._ahead, order = self._drafted(number, now_s, estimate.plan, estimate)
        assert not order.binding, "what has to be used is waited for"
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
            if correction.by is not None:  # another drafter draws it
                correction.happened(CorrectionEvent.DRAFTER_LOST)
                return [*self._over(), *effects]
            self._round = OpenRound(generation.begin_round(drafting=False), round_.began_at_s)
            return [*effects, *self._verify_alone(self._round, self._lookup.found())]
        round_.exchanges.append(event.exchange)
        answer = event.exchange.answer
        if isinstance(answer, NeedsRow):
            generation.round_happened(round_.number, RoundEvent.OVERTAKEN)
            correction.happened(CorrectionEvent.NOT_AMONG_CANDIDATES)
            return [*self._over(), Report(Incident.CANDIDATES_REFUSED)]
        assert isinstance(answer, Draft), "only an undecided round is resolved"
        generation.round_happened(round_.number, RoundEvent.BLOCK_ARRIVED)
        round_.came(answer)
        sent = [] if answer.correction is None else self._pending_correction.drawn(round_, answer.correction, now_s)
        return [*sent, self._verifier.block(round_)] if generation.state is GenerationState.ACTIVE else sent

    def _came(self, ahead: OpenRound, event: DrafterAnswered, now_s: float) -> list[Effect]:
        """What was ordered ahead is here, or its device is lost: then there was an autonomous run and nothing more."""
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
        ahead.overtaken(tuple(generation.output_ids[exchange.answer.position - len(generation.request.prompt_ids) :]))
        if self._round is not None and self._round.from_lookup is not None:
            return []  # held until that is decided
        if self._round is not None:
            return self._joins(ahead)
        assert self._began_at_s is not None, "it was waited for"
        return self._go(ahead, self._began_at_s, waited_s=now_s - self._began_at_s)

    def _go_on_without(self, ahead: OpenRound) -> list[Effect]:
        """The autonomous run has ended: verify an n-gram draft, or wait for the draft that was ordered ahead."""
        assert self._began_at_s is not None
        found = self._lookup.found()
        if found is not None and self._room_before(ahead):
            self._emitter.explain(self._choice)
            self._round = OpenRound(self._generation.begin_round(drafting=False), self._began_at_s)
            return self._verify_alone(self._round, found)
        return [AwaitDraft(ahead.number)] if ahead.draft is None else self._go(ahead, self._began_at_s)

    def _go(self, ahead: OpenRound, began_at_s: float, waited_s: float = 0.0) -> list[Effect]:
        """A draft that was ordered ahead is verified in a round of its own, for which it was waited so long."""
        ahead.began_at_s, ahead.beside_s = began_at_s, max(0.0, ahead.beside_s - waited_s)
        verify = self._verifier.block(ahead, self._run_behind(ahead))
        self._takes_place(ahead)
        self._emitter.explain(self._choice)
        return [verify]

    def _takes_place(self, ahead: OpenRound) -> None:
        """What was ordered ahead is the round that is made now, and its autonomous run the one that follows."""
        assert ahead.block is not None, "what takes a round's place is with the verifier"
        assert ahead.block.autonomous_run is not None
        self._round, self._verifier.until_round = ahead, ahead.block.autonomous_run.until_round
        self._ahead = None

    def _verify_alone(self, round_: OpenRound, found: NgramDraft | None, *, asks: bool = False) -> list[Effect]:
        """No device drafts: the verifier may go on by itself, behind what was looked up, unless a device ``asks``."""
        if found is not None:
            with_draft(round_, found, self._generation)
            self._emitter.explain_lookup(self._choice, found)
        autonomous_run = self._run_behind(round_, asks=asks)
        self._verifier.until_round = autonomous_run.until_round
        return [self._verifier.block(round_, autonomous_run)]

    def _room_before(self, ahead: OpenRound) -> bool:
        """Whether there are numbers left for rounds before that one."""
        return self._verifier.until_round + _LEAST_BESIDE < ahead.number

    @property
    def _given(self) -> OpenRound | None:
        """The block that joins the verifier's steps in place of its autonomous run, until it is decided."""
        ahead = self._ahead
        return ahead if ahead is not None and ahead.block is not None else None

    def _joins(self, ahead: OpenRound) -> list[Effect]:
        assert self._round is not None
        ahead.began_at_s = self._round.began_at_s
        verify = self._verifier.block(ahead, self._run_behind(ahead))
        assert verify.opening is None, "the verifier makes an autonomous run behind it"
        return [Join(verify.block, verify.cost, verify.terms)]

    def _run_behind(self, round_: OpenRound, *, asks: bool = False) -> AutonomousRun:
        """What may follow a round by itself; nothing where the next one ``asks`` a device."""
        until_round, drafted = round_.number, 0 if round_.draft is None else len(round_.draft.token_ids)
        if not asks:
            until_round = self._verifier.grant(until_round, self._choice, self._drafting, drafted)
        return AutonomousRun(until_round, self._generation.end_ids, self._lookup.grant)

    @property
    def _drafting(self) -> int | None:
        """The round that is ordered ahead, if any."""
        return None if self._ahead is None else self._ahead.number

    def _decided(self, event: VerifierAnswered, now_s: float) -> list[Effect]:
        if (given := self._given) is not None and event.round == given.number:
            self._joined(given)
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
            case BlockRefused() if round_.resolved_by_device:  # what it sent does not fit
                return self._resolve(round_, None)
            case BlockRefused() if outcome.too_long or outcome.by_grammar:
                return [Fail((GrammarError if outcome.by_grammar else ContextTooLongError)(outcome.reason))]
            case BlockRefused() | Failed():
                kind = NonFiniteError if isinstance(outcome, Failed) and outcome.non_finite else RequestFailedError
                return [Fail(kind(f"round {round_.number} cannot be verified: {outcome.reason}"))]
            case _:  # it died; or it has not (Unknown) this generation's committed sequence (Stale)
                return self._verifier_lost(round_)

    def _joined(self, ahead: OpenRound) -> None:
        """What was ordered ahead is decided, in place of the round that would have followed by itself."""
        assert self._round is not None
        self._generation.round_happened(self._round.number, RoundEvent.OVERTAKEN)
        ahead.began_at_s = self._round.began_at_s
        self._takes_place(ahead)

    def _row_came(self, outcome: Verified, now_s: float) -> list[Effect]:
        """The source of a pending correction is known; if it allows one token only, no draw is needed."""
        sent = self._pending_correction.row_came(outcome, now_s)
        if self._generation.correction_by is None:
            self._over()
        return sent

    def _commit(self, round_: OpenRound, outcome: Verified, event: VerifierAnswered, now_s: float) -> list[Effect]:
        round_.drafted_itself(outcome.own_draft)
        generation, plan, block = self._generation, round_.plan, round_.verified
        self._emitter.explain_own(self._choice, outcome.own_draft, block.autonomous_run)
        # Rounds that overlap a draft are not undrafted rounds, and n-gram drafts say nothing about devices.
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
        self._account.committed(len(committed.token_ids), now_s)
        timing = round_.timing(outcome, round_.sent_tokens + len(committed.token_ids), now_s, self._mode)
        # A device's correction is of the round that rejected a token, not of the one it arrives with.
        yielded = len(committed.token_ids) - len(round_.uncommitted) + (generation.correction_by is not None)
        first = generation.stats.rounds <= 1
        judgement = self._account.judged(yielded, timing.total_s, timing.verify_s, first=first)
        if judgement is not None:
            generation.late(judgement.late)
            slo_class = generation.request.slo.name
            timing = replace(timing, slo_class=slo_class, late=judgement.late, behind=judgement.behind)
        self._emitter.measured(timing, now_s)
        chunk = self._emitter.chunk(committed)
        self._over()
        behind = self._went_on(round_, outcome, event, now_s)
        return [Measured(timing), *behind[:-1], Send(chunk), *behind[-1:]]

    def _went_on(self, round_: OpenRound, outcome: Verified, event: VerifierAnswered, now_s: float) -> list[Effect]:
        """The verifier makes the next round by itself, if it may."""
        generation, block = self._generation, round_.verified
        if generation.state is not GenerationState.ACTIVE or not goes_on(block, outcome):
            return []
        if outcome.round >= self._verifier.until_round:
            return self._await_joined(now_s)
        number, drafted = outcome.round + 1, not round_.follows and round_.protocol is not None
        generation.begin_following_round(number)
        self._round, self._began_at_s = OpenRound(number, now_s, block=alone(block), follows=True), now_s
        if event.turn is not None:
            self._lookup.sees(event.turn)
            self._mode = event.turn.mode
        effects = list[Effect]()
        if event.goes_on and self._given is None:
            effects = self._join_held() or self._renewed(number, event.turn, now_s, drafted=drafted)
        self._emitter.explain(self._choice)
        open_ = self._chooser.may_draft or self._lookup.may
        asks = self._ahead is None and open_ and self._half_used(number + 1)
        return [*effects, Follow(number, self._account.terms(now_s, 1.0), asks)]

    def _join_held(self) -> list[Effect]:
        """A draft that came while something looked up was being decided joins what follows that by itself."""
        ahead = self._ahead
        return [] if ahead is None or ahead.draft is None else self._joins(ahead)

    def _await_joined(self, now_s: float) -> list[Effect]:
        """An autonomous run has used up its grant: what was ordered ahead is next, if the verifier has it."""
        ahead = self._given
        if ahead is None:
            return []
        ahead.began_at_s = self._began_at_s = now_s
        self._takes_place(ahead)
        self._emitter.explain(self._choice)
        return [Follow(ahead.number, self._account.terms(now_s, ahead.expected_tokens), asks=True)]

    def _renewed(self, number: int, turn: Turn | None, now_s: float, *, drafted: bool) -> list[Effect]:
        """Order a draft beside an autonomous run where that pays; else let the run go on."""
        due, ordered = self._half_used(number), list[Effect]()
        if self._ahead is None and turn is not None and (due or drafted):
            chosen = self._choose(turn, now_s).chosen
            if chosen.plan is not None and not self._goes_on_beside(chosen):
                return []
            if chosen.plan is not None:
                ordered = self._order_ahead(chosen, now_s)
        if not (due or ordered):
            return ordered
        grant = self._verifier.grant(number, self._choice, self._drafting)
        self._verifier.until_round = max(self._verifier.until_round, grant)
        return [*ordered, Extend(self._verifier.until_round, self._lookup.grant)]

    def _half_used(self, number: int) -> bool:
        """Whether the verifier's grant is due to be renewed with this round."""
        grant = self._verifier.grant(number, self._choice, self._drafting)
        return 2 * (self._verifier.until_round - number) < grant - number

    def _undecided(self, round_: OpenRound, outcome: Undecided) -> list[Effect]:
        assert round_.exchanges, "what no device drafted is decided at once"
        self._generation.round_happened(round_.number, RoundEvent.UNDECIDED)
        round_.undecided = True
        return [AskAgain(outcome, round_.allowed_s)]

    def _resolved(self, round_: OpenRound, event: DrafterAnswered) -> list[Effect]:
        """The rest of the block's round is here, or the drafter is lost."""
        self._generation.round_happened(round_.number, RoundEvent.RESOLVED)
        round_.undecided = False
        if event.exchange is None:
            return self._resolve(round_, None)
        round_.exchanges.append(event.exchange)
        assert isinstance(event.exchange.answer, Resolution), "an undecided round is resolved"
        return self._resolve(round_, event.exchange.answer)

    def _resolve(self, round_: OpenRound, sent: Resolution | None) -> list[Effect]:
        """Without what was asked for, all that it was asked about is rejected."""
        round_.resolved_by_device, round_.unanswered = sent is not None, sent is None
        return [Resolve(Resolution(self._generation.name, round_.number, None) if sent is None else sent)]

    def _verifier_lost(self, round_: OpenRound) -> list[Effect]:
        """The verifier lost this generation: once it answers, the generation is opened again."""
        generation, correction = self._generation, self._generation.correction
        generation.round_happened(round_.number, RoundEvent.VERIFIER_LOST)
        if correction.by is not None:
            correction.happened(CorrectionEvent.VERIFIER_LOST)
        if (given := self._given) is not None:
            generation.round_happened(given.number, RoundEvent.VERIFIER_LOST)
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
        """The round is over; nothing more is to be done for it."""
        self._round = self._began_at_s = None
        return []
