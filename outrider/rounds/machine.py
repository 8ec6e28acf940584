"""All rounds of one response, decided: events in, effects out. No clock, no I/O: whoever drives it carries effects out.

Of the effects of one step at most one is to be waited for, the last; it is answered by an event. Where there is none,
nothing is under way and a ``Turn`` is next, as long as the generation is active.

Where nothing is drafted the verifier may make a stretch of rounds by itself: they are followed one by one, and its
leave is renewed before it ends as long as nothing is to be drafted.

A round begins with its ``Turn``. A correction that is owed comes first: a drafter of the right model is waited for, the
row it is drawn from asked for where it is not known, and the order for the next block carries it. Then the block goes
to the verifier, whose outcome is committed - or undecided: it then needs more of the device before it decides.
"""

from dataclasses import dataclass, field, replace

from outrider.contracts.committed import Committed
from outrider.contracts.cost import VerifyCost
from outrider.contracts.drafting import Draft, DraftPlan, NeedsRow
from outrider.contracts.errors import ContextTooLongError, GenerationFailedError
from outrider.contracts.requests import ChoiceReport, GenerationChunk
from outrider.contracts.stretches import goes_on
from outrider.contracts.verifying import Block, OpenGeneration, Refused, Resolution, Stretch, Undecided, Verified
from outrider.protocols.registry import CORRECTION_ALONE, PROTOCOLS
from outrider.rounds.account import RoundAccount
from outrider.rounds.blocks import block_tokens, is_binding, make_block, row_request
from outrider.rounds.choice import RoundChooser, Speculation, report
from outrider.rounds.events import (
    Answered,
    AskAgain,
    AskDrafter,
    AwaitDrafter,
    AwaitVerifier,
    Decided,
    Drafter,
    Effect,
    Event,
    Extend,
    Fail,
    Follow,
    Incident,
    Measured,
    Report,
    Resolve,
    Send,
    Turn,
    Verify,
)
from outrider.rounds.generation import Generation
from outrider.rounds.open_round import OpenRound
from outrider.rounds.states import CorrectionEvent, CorrectionState, GenerationEvent, GenerationState, RoundEvent
from outrider.scheduling.attribution import SpikeDetector
from outrider.scheduling.ledger import DeadlineRule, resumed_ledger
from outrider.selection.arms import DRAFT
from outrider.selection.situation import ChoiceReason, RoundChoice, SelectionPolicy
from outrider.text.shown import IncrementalText, shown

LINK_PATIENCE = 3.0  # times what a link is expected to take, added to a drafter's deadline
_MAX_VERIFIER_LOSSES = 5  # in a row, without a committed round between them


@dataclass(frozen=True, slots=True)
class Leave:
    """Rounds that a verifier may make by itself before it is asked anew."""

    with_drafter: int = 2  # while one may be of use
    without_drafter: int = 32  # likewise the most of any leave
    undrafted_s: float = 0.25  # worth of rounds where the verifier's regime has nothing drafted

    def rounds(self, choice: RoundChoice | None, *, may_draft: bool) -> int:
        """That may follow, where the last choice was to draft nothing."""
        if not may_draft:
            return self.without_drafter
        if choice is None or choice.reason is not ChoiceReason.REGIME:
            return self.with_drafter
        rounds = self.undrafted_s / max(choice.chosen.round_s, 1e-6)
        return max(self.with_drafter, min(int(rounds), self.without_drafter))


@dataclass(frozen=True, slots=True)
class RoundRules:
    """What the rounds of all responses of a verifier go by.

    Attributes:
        spikes: shared, and told of every round.
        correction_deadline_s: how long a token that is a device's to draw waits for a device.
    """

    speculation: Speculation
    policy: SelectionPolicy
    deadline_rule: DeadlineRule
    spikes: SpikeDetector
    correction_deadline_s: float
    leave: Leave = field(default_factory=Leave)


class RoundMachine:
    """One response's rounds, one at a time."""

    def __init__(self, generation: Generation, text: IncrementalText, rules: RoundRules, now_s: float) -> None:
        """Take over a NEW generation and its text; a resumed one's promise counts from now on."""
        request = generation.request
        self._generation, self._text, self._rules = generation, text, rules
        self._chooser = RoundChooser(generation, rules.speculation, rules.policy)
        ledger = resumed_ledger(request.slo.tokens_per_s, request.ledger, now_s)
        self._account = RoundAccount(ledger, rules.deadline_rule, rules.spikes)
        self._choices: list[ChoiceReport] = []  # not told yet
        self._began_at_s: float | None = None  # of the round that is being made
        self._round: OpenRound | None = None
        self._held_by_verifier = False
        self._losses = 0
        self._choice: RoundChoice | None = None
        self._arm = DRAFT  # under which that was made
        self._until_round = -1  # that the verifier may make by itself

    @property
    def generation(self) -> Generation:
        """What is made."""
        return self._generation

    @property
    def follows_regime(self) -> bool:
        """Whether what is drafted is up to the verifier's regime; then its rounds tell of the arm in use."""
        return self._chooser.follows_regime

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
                return self._turn(event, now_s)
            case Answered():
                return self._answered(event, now_s)
            case Decided():
                return self._decided(event, now_s)

    def moved(self, number: int, event: RoundEvent) -> None:
        """A block was given to the verifier (DISPATCHED)."""
        self._generation.round_happened(number, event)

    def paused(self, seconds: float) -> None:
        """So long nothing was begun because nobody read: it is nobody's promise that was broken."""
        self._account.paused(seconds)

    def _turn(self, turn: Turn, now_s: float) -> list[Effect]:
        if self._began_at_s is None:
            self._began_at_s = now_s
        correction = self._generation.correction
        if correction.state is CorrectionState.SETTLED:
            return self._begin(turn, self._began_at_s, now_s)
        due_at_s = correction.wait_until_s(now_s, self._rules.correction_deadline_s)
        ready = turn.drafter is not None and turn.drafter.view is not None
        if now_s >= due_at_s or (ready and not _may_draw(turn.drafter, correction.by)):
            return self._give_up_correction()
        if not ready:
            return [AwaitDrafter(due_at_s)]
        if correction.state is CorrectionState.ROW_MISSING:
            return self._order_row(self._began_at_s, now_s)
        return self._begin(turn, self._began_at_s, now_s)

    def _give_up_correction(self) -> list[Effect]:
        """Its residual is known to no other model. The target draws the token: near, and said to be inexact."""
        model = self._generation.correction_by
        self._generation.forgo_correction()
        self._began_at_s = None
        return [Report(Incident.CORRECTION_GIVEN_UP, {"model": model})]

    def _order_row(self, began_at_s: float, now_s: float) -> list[Effect]:
        """Ask the verifier for what a device is to draw from."""
        generation = self._generation
        generation.correction.happened(CorrectionEvent.ROW_ORDERED)
        self._round = OpenRound(generation.begin_round(drafting=False), began_at_s)
        opening = self._opening()
        block = row_request(generation, self._round.number, self._rules.speculation.wire)
        return self._verify(self._round, block, opening, now_s)

    def _choose(self, turn: Turn, now_s: float) -> RoundChoice:
        self._choice, self._arm = self._chooser.choose(turn, self._account.promise(now_s)), turn.arm
        return self._choice

    def _explain(self) -> None:
        """Of each round, what it goes by."""
        if self._generation.request.explain and self._choice is not None:
            self._choices.append(report(self._choice))

    def _begin(self, turn: Turn, began_at_s: float, now_s: float) -> list[Effect]:
        generation, choice = self._generation, self._choose(turn, now_s)
        self._explain()
        plan, owed = choice.chosen.plan, generation.correction_by is not None
        if plan is None and owed:
            plan = CORRECTION_ALONE
        number = generation.begin_round(drafting=plan is not None)
        if plan is None:
            self._round = OpenRound(number, began_at_s)
            return self._verify_alone(self._round)
        allowed_s = LINK_PATIENCE * choice.chosen.round_s
        survivals = self._chooser.survivals(plan)
        self._round = OpenRound(number, began_at_s, plan, choice.chosen.expected_tokens, allowed_s, survivals)
        source = generation.correction.source
        if owed:
            generation.correction.happened(CorrectionEvent.ORDERED)
        expected_s, binding = choice.chosen.exchange_s, owed or self._is_binding(plan)
        return [AskDrafter(number, plan, source, allowed_s, binding, expected_s)]

    def _is_binding(self, plan: DraftPlan) -> bool:
        return is_binding(plan, self._generation.request.params, self._rules.speculation.wire)

    def _answered(self, event: Answered, now_s: float) -> list[Effect]:
        generation, round_ = self._generation, self._open(event.round)
        if round_.undecided:
            return self._resolved(round_, event)
        correction = generation.correction
        if event.exchange is None:
            generation.round_happened(round_.number, RoundEvent.DRAFTER_LOST)
            told = self._give_up_draft(round_) if event.censored else []
            if correction.by is not None:  # another drafter draws it
                correction.happened(CorrectionEvent.DRAFTER_LOST)
                return [*self._over(), *told]
            self._round = OpenRound(generation.begin_round(drafting=False), round_.began_at_s)
            return [*told, *self._verify_alone(self._round)]
        round_.exchanges.append(event.exchange)
        answer = event.exchange.answer
        if isinstance(answer, NeedsRow):
            generation.round_happened(round_.number, RoundEvent.OVERTAKEN)
            correction.happened(CorrectionEvent.NOT_AMONG_CANDIDATES)
            return [*self._over(), Report(Incident.CANDIDATES_REFUSED)]
        assert isinstance(answer, Draft), "only an undecided round is resolved"
        generation.round_happened(round_.number, RoundEvent.BLOCK_ARRIVED)
        round_.draft = answer
        sent = [] if answer.correction is None else self._drawn(round_, answer.correction, now_s)
        return [*sent, *self._verify_block(round_)] if generation.state is GenerationState.ACTIVE else sent

    def _give_up_draft(self, round_: OpenRound) -> list[Effect]:
        """The target draws what was drafted, and perhaps because of what was: said to be inexact where that matters."""
        plan = round_.plan
        if plan is None or not self._is_binding(plan):
            return []
        self._generation.forgo_draft()
        return [Report(Incident.DRAFT_GIVEN_UP, {"round": round_.number, "protocol": plan.protocol})]

    def _drawn(self, round_: OpenRound, token_id: int, now_s: float) -> list[Effect]:
        """A device's correction is here: sent at once, unless the verifier is to tell its log-probability."""
        generation = self._generation
        generation.correction.happened(CorrectionEvent.DRAWN)
        if generation.request.logprobs is not None:
            round_.uncommitted = (token_id,)
            return []
        committed = generation.commit_correction(token_id)
        self._account.committed(1, now_s)
        round_.sent_tokens = 1
        return [Send(self._chunk(committed))]

    def _verify_alone(self, round_: OpenRound) -> list[Effect]:
        """Nothing was drafted: the verifier may go on by itself."""
        self._until_round = self._leave(round_.number)
        return self._verify_block(round_, Stretch(self._until_round, self._generation.end_ids))

    def _leave(self, number: int) -> int:
        """The last round of a leave given with this one."""
        rounds = self._rules.leave.rounds(self._choice, may_draft=self._chooser.may_draft)
        return number + max(0, min(rounds, self._generation.remaining_tokens - 1))

    def _verify_block(self, round_: OpenRound, stretch: Stretch | None = None) -> list[Effect]:
        generation = self._generation
        opening = self._opening()
        plan = round_.plan
        block = make_block(
            generation,
            round_.number,
            plan,
            round_.draft,
            self._rules.speculation.wire,
            forced=(*generation.unverified, *round_.uncommitted),
            deferral=self._chooser.deferral(plan),
        )
        return self._verify(round_, replace(block, stretch=stretch), opening, round_.began_at_s)

    def _opening(self) -> OpenGeneration | None:
        """What the verifier needs to hold the response; None if it does. Opened with all that is committed."""
        if self._held_by_verifier:
            return None
        self._generation.verifier_lost()
        return self._generation.opening()

    def _verify(
        self, round_: OpenRound, block: Block, opening: OpenGeneration | None, began_at_s: float
    ) -> list[Effect]:
        round_.block = block
        self._generation.round_happened(round_.number, RoundEvent.ENQUEUED)
        new = block_tokens(block) if opening is not None else len(block.draft) + 1
        cost = VerifyCost(new, block_tokens(block) - new)
        terms = self._account.terms(began_at_s, round_.expected_tokens)
        survivals = round_.survivals[: len(block.draft)]
        return [Verify(block, opening, cost, replace(terms, survivals=survivals, began_at_s=began_at_s))]

    def _decided(self, event: Decided, now_s: float) -> list[Effect]:
        round_, outcome = self._open(event.round), None
        if event.result is not None:
            self._held_by_verifier = True
            round_.queue_s += event.result.queue_s
            round_.verify_s += event.result.verify_s
            outcome = event.result.outcome
            if event.result.draft_tokens is not None:
                round_.only(event.result.draft_tokens)
        match outcome:
            case Verified():
                self._losses = 0
                row = self._generation.correction.state is CorrectionState.ROW_ORDERED
                return self._row_came(outcome, now_s) if row else self._commit(round_, outcome, event, now_s)
            case Undecided():
                return self._undecided(round_, outcome)
            case Refused() if round_.resolved_by_device:  # what it sent does not fit
                return self._resolve(round_, None)
            case Refused():
                return [Fail(ContextTooLongError(outcome.reason))]
            case _:  # it died; or it has not (Unknown) this generation's committed sequence (Stale)
                return self._verifier_lost(round_)

    def _row_came(self, outcome: Verified, now_s: float) -> list[Effect]:
        """What a device is to draw from is known; if it leaves one token only, that is committed."""
        committed = self._generation.commit(outcome, ())
        self._account.committed(len(committed.token_ids), now_s)
        if self._generation.correction_by is None:
            self._over()
        return [Send(self._chunk(committed))] if committed.token_ids else []

    def _commit(self, round_: OpenRound, outcome: Verified, event: Decided, now_s: float) -> list[Effect]:
        generation, plan, block = self._generation, round_.plan, round_.verified
        self._chooser.learn(plan, block, outcome)
        committed = generation.commit(
            outcome,
            block.draft,
            round_.uncommitted,
            block.parents,
            protocol=None if plan is None else plan.protocol,
            draft_model=round_.draft_model,
            exact=plan is None or PROTOCOLS[plan.protocol].lossless(self._rules.speculation.wire),
            trimmed_tokens=round_.trimmed_tokens,
        )
        self._account.committed(len(committed.token_ids), now_s)
        timing = round_.timing(outcome, round_.sent_tokens + len(committed.token_ids), now_s, self._arm)
        # A device's correction is of the round that rejected a token, not of the one it arrives with.
        yielded = len(committed.token_ids) - len(round_.uncommitted) + (generation.correction_by is not None)
        first = generation.stats.rounds <= 1
        judgement = self._account.judged(yielded, timing.total_s, timing.verify_s, first=first)
        if judgement is not None:
            generation.late(judgement.late)
            slo_class = generation.request.slo.name
            timing = replace(timing, slo_class=slo_class, late=judgement.late, behind=judgement.behind)
        chunk = self._chunk(committed)
        self._over()
        behind = self._went_on(block, outcome, event, now_s)
        return [Measured(timing), *behind[:-1], Send(chunk), *behind[-1:]]

    def _went_on(self, block: Block, outcome: Verified, event: Decided, now_s: float) -> list[Effect]:
        """The verifier makes the next round by itself, if it may."""
        generation = self._generation
        if generation.state is not GenerationState.ACTIVE or not goes_on(block, outcome):
            return []
        if outcome.round >= self._until_round:
            return []
        assert not block.draft, "stretches are where nothing is drafted"
        number, extended = generation.begin_following_round(), list[Effect]()
        self._round, self._began_at_s = OpenRound(number, now_s, block=block, follows=True), now_s
        if event.goes_on and self._half_used(number) and not self._would_draft(event.turn, now_s):
            self._until_round = self._leave(number)
            extended = [Extend(self._until_round)]
        self._explain()
        asks = self._chooser.may_draft and self._half_used(number + 1)
        return [*extended, Follow(number, self._account.terms(now_s, 1.0), asks)]

    def _would_draft(self, turn: Turn | None, now_s: float) -> bool:
        return turn is not None and self._choose(turn, now_s).chosen.plan is not None

    def _half_used(self, number: int) -> bool:
        """Whether the verifier's leave is due to be renewed with this round."""
        return 2 * (self._until_round - number) < self._leave(number) - number

    def _undecided(self, round_: OpenRound, outcome: Undecided) -> list[Effect]:
        assert round_.exchanges, "what no device drafted is decided at once"
        self._generation.round_happened(round_.number, RoundEvent.UNDECIDED)
        round_.undecided = True
        return [AskAgain(outcome, round_.allowed_s)]

    def _resolved(self, round_: OpenRound, event: Answered) -> list[Effect]:
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
        round_.resolved_by_device = sent is not None
        return [Resolve(Resolution(self._generation.name, round_.number, None) if sent is None else sent)]

    def _verifier_lost(self, round_: OpenRound) -> list[Effect]:
        """The verifier lost this generation: once it answers, the generation is opened again."""
        generation, correction = self._generation, self._generation.correction
        generation.round_happened(round_.number, RoundEvent.VERIFIER_LOST)
        if correction.by is not None:
            correction.happened(CorrectionEvent.VERIFIER_LOST)
        self._held_by_verifier = False
        self._losses += 1
        lost = Report(Incident.ROUND_LOST, {"round": round_.number})
        if self._losses > _MAX_VERIFIER_LOSSES:
            reason = f"the verifier was lost {self._losses} times in a row before a round was committed; see its log"
            return [lost, Fail(GenerationFailedError(reason))]
        return [*self._over(), lost, AwaitVerifier()]

    def _open(self, number: int) -> OpenRound:
        assert self._round is not None, "only what was asked is answered"
        assert self._round.number == number, "one round at a time"
        return self._round

    def _over(self) -> list[Effect]:
        """The round is over; nothing more is to be done for it."""
        self._round = self._began_at_s = None
        return []

    def _chunk(self, committed: Committed) -> GenerationChunk:
        """What the client is sent of it, up to a stop string; the last one ends the generation."""
        generation, piece = self._generation, shown(self._text, committed)
        if piece.consumed < len(committed.token_ids):
            generation.swallowed(committed.origins[piece.consumed :])
            self._account.swallowed(len(committed.token_ids) - piece.consumed)
        if piece.finish is not None:
            generation.happened(GenerationEvent.ENDED)
        choices, self._choices = tuple(self._choices), []
        return GenerationChunk(
            token_ids=committed.token_ids[: piece.consumed],
            spans=piece.spans,
            stats=generation.stats,
            shown_tokens=self._text.shown_tokens,
            logprobs=committed.logprobs[: piece.consumed],
            prompt_logprobs=committed.prompt_logprobs,
            finish_reason=piece.finish,
            correction_by=generation.correction_by,
            choices=choices,
            ledger=self._account.record,
        )


def _may_draw(drafter: Drafter | None, model: str | None) -> bool:
    return drafter is not None and drafter.model == model
