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

from outrider.contracts.drafting import Draft, NeedsRow
from outrider.contracts.errors import (
    ContextTooLongError,
    GenerationFailedError,
    GrammarError,
    NonFiniteError,
    RequestFailedError,
)
from outrider.contracts.verifying import BlockRefused, Failed, Resolution, Undecided, Verified
from outrider.protocols.registry import CORRECTION_ALONE
from outrider.rounds.autonomous import AutonomousRounds
from outrider.rounds.blocks import row_request
from outrider.rounds.committing import commit_round
from outrider.rounds.corrections.pending_correction import PendingCorrection
from outrider.rounds.events import (
    AskAgain,
    AwaitDrafter,
    AwaitVerifier,
    DrafterAnswered,
    Effect,
    Event,
    Fail,
    Incident,
    Report,
    Resolve,
    RoundInput,
    VerifierAnswered,
)
from outrider.rounds.generation import Generation
from outrider.rounds.open_round import OpenRound
from outrider.rounds.orders import drafted_round
from outrider.rounds.parts import round_parts
from outrider.rounds.rules import RoundRules
from outrider.rounds.states import CorrectionEvent, CorrectionState, GenerationState, RoundEvent
from outrider.text.shown import IncrementalText


class RoundMachine:
    """The rounds of one response: one in progress, and at most one whose draft is ordered ahead."""

    def __init__(self, generation: Generation, text: IncrementalText, rules: RoundRules, now_s: float) -> None:
        """Take over a NEW generation and its text. The ledger of a resumed one goes on from ``now_s``."""
        self._parts = parts = round_parts(generation, text, rules, now_s)
        self._generation, self._rules, self._current = generation, rules, parts.current
        self._chooser, self._tracker, self._emitter = parts.chooser, parts.tracker, parts.emitter
        self._verifier, self._lookup = parts.verifier, parts.lookup
        self._pending_correction = PendingCorrection(generation, self._chooser, self._tracker, self._emitter)
        self._autonomous = AutonomousRounds(parts)

    @property
    def generation(self) -> Generation:
        return self._generation

    @property
    def follows_tuner(self) -> bool:
        """Whether the speculation tuner decides what is drafted: only then do the rounds count for its modes."""
        return self._chooser.follows_tuner

    @property
    def drafting_follows_tuner(self) -> bool:
        return self._chooser.drafting_follows_tuner

    @property
    def needs_drafter(self) -> bool:
        """Whether the response can use a drafter: for drafts, or for a pending correction."""
        return self._chooser.may_draft or self._generation.correction_by is not None

    def step(self, event: Event, now_s: float) -> list[Effect]:
        """Return an event's effects, to be carried out in order; ``IllegalTransitionError`` if it is impossible."""
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
        began_at_s = self._current.begin(now_s)
        self._lookup.observe(round_input)
        if (ahead := self._autonomous.ahead) is not None:  # its run is over: no new choice before that draft is used
            return [self._autonomous.over(ahead, began_at_s)]
        correction = self._generation.correction
        if correction.state is CorrectionState.SETTLED:
            return self._begin(round_input, began_at_s, now_s)
        due_at_s = correction.wait_until_s(now_s, self._rules.correction_deadline_s)
        ready = round_input.drafter is not None and round_input.drafter.view is not None
        # A leased drafter of another model, or an untrusted one, cannot draw the token: do not wait for the deadline.
        if now_s >= due_at_s or (ready and not self._pending_correction.may_draw(round_input.drafter)):
            self._current.over()
            return [self._pending_correction.give_up_correction()]
        if not ready:
            return [AwaitDrafter(due_at_s)]
        if correction.state is CorrectionState.ROW_MISSING:
            return self._order_row(began_at_s)
        return self._begin(round_input, began_at_s, now_s)

    def _order_row(self, began_at_s: float) -> list[Effect]:
        """Ask the verifier for the target's row, from whose residual a device is to draw the correction."""
        generation = self._generation
        generation.correction.happened(CorrectionEvent.ROW_ORDERED)
        self._current.round = round_ = OpenRound(generation.begin_round(drafting=False), began_at_s)
        opening = self._verifier.opening()
        block = row_request(generation, round_.number, self._rules.speculation.wire)
        return [self._verifier.request(round_, block, opening)]

    def _begin(self, round_input: RoundInput, began_at_s: float, now_s: float) -> list[Effect]:
        generation, autonomous = self._generation, self._autonomous
        choice = self._chooser.choose(round_input, self._tracker.promise(now_s))
        self._emitter.explain(choice)
        plan, pending = choice.chosen.plan, generation.correction_by is not None
        if plan is None and pending:
            plan = CORRECTION_ALONE
        beside = plan is not None and not pending and autonomous.may_draft_beside(choice.chosen)
        # An n-gram draft competes with a device's draft that would be waited for, not with one beside a run.
        found = None if pending else self._lookup.found(None if plan is None or beside else choice.chosen)
        ordered = list[Effect]()
        if beside and found is None:
            ordered, plan = [autonomous.order_ahead(choice.chosen, began_at_s)], None
        number = generation.begin_round(drafting=plan is not None and found is None)
        if plan is None or found is not None:
            self._current.round = OpenRound(number, began_at_s)
            # An n-gram draft in place of a device's has no run behind it: the device is considered again after it.
            asks = plan is not None and not beside
            return [*ordered, autonomous.verify_alone(self._current.round, found, asks=asks)]
        round_, order = drafted_round(number, began_at_s, plan, choice.chosen, self._chooser, self._tracker)
        self._current.round = round_
        if pending:
            order = replace(order, correction=generation.correction.source, must_use=True)
            generation.correction.happened(CorrectionEvent.ORDERED)
        return [order]

    def _answered(self, event: DrafterAnswered, now_s: float) -> list[Effect]:
        if (ahead := self._autonomous.ahead) is not None and event.round == ahead.number:
            return self._autonomous.draft_came(ahead, event, now_s)
        generation, round_ = self._generation, self._current.answered(event.round)
        if round_.undecided:
            return self._resolved(round_, event)
        correction = generation.correction
        if event.exchange is None:
            generation.round_happened(round_.number, RoundEvent.DRAFTER_LOST)
            effects = self._pending_correction.give_up_draft(round_) if event.censored else []
            if correction.by is not None:  # no block can go out without the token: find another drafter first
                correction.happened(CorrectionEvent.DRAFTER_LOST)
                self._current.over()
                return effects
            # Go on without a device, from the same start: the time lost with the drafter counts in this round.
            self._current.round = alone = OpenRound(generation.begin_round(drafting=False), round_.began_at_s)
            return [*effects, self._autonomous.verify_alone(alone, self._lookup.found())]
        round_.exchanges.append(event.exchange)
        answer = event.exchange.answer
        if isinstance(answer, NeedsRow):  # no candidate passed the device's test: it needs the whole row
            generation.round_happened(round_.number, RoundEvent.OVERTAKEN)
            correction.happened(CorrectionEvent.NOT_AMONG_CANDIDATES)
            self._current.over()
            return [Report(Incident.CANDIDATES_REFUSED)]
        assert isinstance(answer, Draft), "only an undecided round is resolved"
        generation.round_happened(round_.number, RoundEvent.BLOCK_ARRIVED)
        round_.came(answer)
        sent = [] if answer.correction is None else self._pending_correction.drawn(round_, answer.correction, now_s)
        # The correction may have ended the response; what was drafted behind it is then not verified.
        return [*sent, self._verifier.block(round_)] if generation.state is GenerationState.ACTIVE else sent

    def _decided(self, event: VerifierAnswered, now_s: float) -> list[Effect]:
        self._autonomous.take_place(event.round)
        round_, outcome = self._current.answered(event.round), None
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

    def _row_came(self, outcome: Verified, now_s: float) -> list[Effect]:
        """Take the row for a pending correction. If only one token is possible, it is committed and none is pending."""
        sent = self._pending_correction.row_came(outcome, now_s)
        if self._generation.correction_by is None:
            self._current.over()
        return sent

    def _commit(self, round_: OpenRound, outcome: Verified, event: VerifierAnswered, now_s: float) -> list[Effect]:
        ahead = self._autonomous.ahead
        measured, send = commit_round(self._parts, round_, outcome, now_s, beside_draft=ahead is not None)
        if ahead is not None and ahead.draft is not None:
            ahead.overtaken(send.chunk.token_ids)
        self._current.over()
        behind = self._autonomous.follow(round_, outcome, event, now_s)
        return [measured, *behind[:-1], send, *behind[-1:]]  # the one to wait for stays the last

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
        self._autonomous.lost()
        times, lost = self._verifier.lost(), Report(Incident.ROUND_LOST, {"round": round_.number})
        if times is not None:
            reason = f"the verifier was lost {times} times in a row before a round was committed; see its log"
            return [lost, Fail(GenerationFailedError(reason))]
        self._current.over()
        return [lost, AwaitVerifier()]
