"""Debts of a device to one response: a correction that it is to draw, and a draft that must be used once drawn."""

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.verifying import Verified
from outrider.rounds.account import RoundAccount
from outrider.rounds.blocks import is_binding
from outrider.rounds.events import Effect, Incident, LeasedDrafter, Report, Send
from outrider.rounds.generation import Generation
from outrider.rounds.open_round import OpenRound
from outrider.rounds.response_emitter import ResponseEmitter
from outrider.rounds.states import CorrectionEvent


class PendingCorrection:
    """Of one response: what is sent and reported as it is paid or given up."""

    def __init__(
        self, generation: Generation, account: RoundAccount, emitter: ResponseEmitter, wire: WireFormat
    ) -> None:
        """All of it is the generation's to remember."""
        self._generation, self._account, self._emitter, self._wire = generation, account, emitter, wire

    def may_draw(self, drafter: LeasedDrafter | None) -> bool:
        """Whether its model is the one of whose residual the correction is, and its word is taken for what it draws."""
        return drafter is not None and drafter.trusted and drafter.model == self._generation.correction.by

    def is_binding(self, plan: DraftPlan) -> bool:
        """Whether what is drawn for a plan has to be used."""
        return is_binding(plan, self._generation.request.params, self._wire)

    def give_up_correction(self) -> Report:
        """Its residual is known to no other model. The target draws the token: near, and said to be inexact."""
        model = self._generation.correction_by
        self._generation.forgo_correction()
        return Report(Incident.CORRECTION_GIVEN_UP, {"model": model})

    def give_up_draft(self, round_: OpenRound) -> list[Effect]:
        """The target draws what was drafted, and perhaps because of what was: said to be inexact where that matters."""
        plan = round_.plan
        if plan is None or not self.is_binding(plan):
            return []
        self._generation.forgo_draft()
        return [Report(Incident.DRAFT_GIVEN_UP, {"round": round_.number, "protocol": plan.protocol})]

    def drawn(self, round_: OpenRound, token_id: int, now_s: float) -> list[Effect]:
        """A device's correction is here: sent at once, unless the verifier is to tell its log-probability."""
        generation = self._generation
        generation.correction.happened(CorrectionEvent.DRAWN)
        if generation.request.logprobs is not None:
            round_.uncommitted = (token_id,)
            return []
        committed = generation.commit_correction(token_id)
        self._account.committed(1, now_s)
        round_.sent_tokens = 1
        return [Send(self._emitter.chunk(committed))]

    def row_came(self, outcome: Verified, now_s: float) -> list[Effect]:
        """What a device is to draw from is known; if it leaves one token only, that is committed."""
        committed = self._generation.commit(outcome, ())
        self._account.committed(len(committed.token_ids), now_s)
        return [Send(self._emitter.chunk(committed))] if committed.token_ids else []
