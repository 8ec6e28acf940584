"""Corrections that a device is to draw (DSSD), and drafts that have to be used: committing them, or giving them up."""

from outrider.contracts.verifying import Verified
from outrider.rounds.choice import RoundChooser
from outrider.rounds.events import Effect, Incident, LeasedDrafter, Report, Send
from outrider.rounds.generation import Generation
from outrider.rounds.open_round import OpenRound
from outrider.rounds.promise_tracker import PromiseTracker
from outrider.rounds.response_emitter import ResponseEmitter
from outrider.rounds.states import CorrectionEvent


class PendingCorrection:
    """Turns what becomes of one response's corrections into effects."""

    def __init__(
        self, generation: Generation, chooser: RoundChooser, tracker: PromiseTracker, emitter: ResponseEmitter
    ) -> None:
        """Keep no state here: ``generation.correction`` has it."""
        self._generation, self._chooser, self._tracker, self._emitter = generation, chooser, tracker, emitter

    def may_draw(self, drafter: LeasedDrafter | None) -> bool:
        """Whether a drafter can draw the correction: it has the model of the residual, and is trusted."""
        return drafter is not None and drafter.trusted and drafter.model == self._generation.correction.by

    def give_up_correction(self) -> Report:
        """Let the target draw the token, since no device can compute the residual: counted as an inexact round."""
        model = self._generation.correction_by
        self._generation.forgo_correction()
        return Report(Incident.CORRECTION_GIVEN_UP, {"model": model})

    def give_up_draft(self, round_: OpenRound) -> list[Effect]:
        """Give up a lost draft. Under a ratio rule that is inexact: its content may be why it is lost."""
        plan = round_.plan
        if plan is None or not self._chooser.must_use(plan):
            return []
        self._generation.forgo_draft()
        return [Report(Incident.DRAFT_GIVEN_UP, {"round": round_.number, "protocol": plan.protocol})]

    def drawn(self, round_: OpenRound, token_id: int, now_s: float) -> list[Effect]:
        """Commit and send a device's correction at once; with log-probabilities, wait for the verifier's."""
        generation = self._generation
        generation.correction.happened(CorrectionEvent.DRAWN)
        if generation.request.logprobs is not None:
            round_.uncommitted = (token_id,)
            return []
        committed = generation.commit_correction(token_id)
        self._tracker.committed(1, now_s)
        round_.sent_tokens = 1
        return [Send(self._emitter.chunk(committed))]

    def row_came(self, outcome: Verified, now_s: float) -> list[Effect]:
        """Take the target's row for a correction. Where it allows only one token, commit that."""
        committed = self._generation.commit(outcome)
        self._tracker.committed(len(committed.token_ids), now_s)
        return [Send(self._emitter.chunk(committed))] if committed.token_ids else []
