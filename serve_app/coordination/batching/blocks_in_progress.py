"""The blocks of a verifier's generations, from the queue to their outcomes, and who receives these."""

import logging

from actors.messages import StepReply
from outrider.contracts.accounts import NO_ACCOUNT, Account
from outrider.contracts.errors import RequestFailedError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import BlockRefused, Outcome, PromptLookupGrant, Resolution, Undecided, Unfinished
from outrider.rounds.states import RoundEvent
from outrider.scheduling.steps import StepPlan, StepPlanner
from serve_app.coordination.batching.next_call import NextCall
from serve_app.coordination.batching.queued_blocks import QueuedBlock, RoundOutcomes

log = logging.getLogger(__name__)


class BlocksInProgress:
    """Mutable.

    Attributes:
        queued: the newest block of each generation: it waits, or the verifier has it or the autonomous run behind it.
    """

    def __init__(self, planner: StepPlanner, call: NextCall) -> None:
        """``planner`` has those that wait for a step; ``call``, the next one, may have grants for them."""
        self._planner, self._call = planner, call
        self.queued: dict[GenerationId, QueuedBlock] = {}
        self.outcomes: dict[GenerationId, RoundOutcomes] = {}  # of each generation, for its one reader
        self.resolving: dict[GenerationId, QueuedBlock] = {}  # undecided, or resolved without an outcome so far
        self.resident: dict[GenerationId, int] = {}  # positions of generations that lost KV since their last step
        self.accounts: dict[GenerationId, Account] = {}  # charged for their prefill

    def add(self, queued: QueuedBlock) -> None:
        name = queued.block.generation
        self.queued[name] = queued
        self._plan(name, queued)

    def extend(self, name: GenerationId, until_round: int, lookup: PromptLookupGrant | None) -> bool:
        """Extend the grant of a run; queue a run whose grant was used up. Return whether there is such a run."""
        if (queued := self.queued.get(name)) is None or not queued.at_verifier:
            return False
        if queued.set_lookup(lookup):
            self._call.lookups[name] = lookup
        used_up, queued.until_round = not queued.has_grant, until_round
        if used_up:
            self._plan(name, queued)
        elif not self._planner.waits(name):
            self._call.grants[name] = until_round
        return True

    def _plan(self, name: GenerationId, queued: QueuedBlock) -> None:
        account = self.accounts.get(name, NO_ACCOUNT)
        self._planner.add(name, queued, account, overtakes=queued.overtakes is not None)

    def forget(self, generation: GenerationId) -> None:
        """Take a generation's block out of the queue; a block that is resolved, and its outcomes, stay."""
        self.queued.pop(generation, None)
        self._call.drop_grant(generation)
        self._planner.withdraw(generation)

    def close(self, generation: GenerationId) -> None:
        self.forget(generation)
        self._planner.over(generation)
        self.outcomes.pop(generation, None)
        self.resolving.pop(generation, None)
        self.resident.pop(generation, None)

    def let_in(self, plan: StepPlan) -> list[QueuedBlock]:
        """Grant or withhold rounds of autonomous runs as planned, and return the blocks to be sent."""
        call, sent = self._call, list[QueuedBlock]()
        if plan.prefill_order is not None:
            call.prefill_order = plan.prefill_order
        for name, draft_tokens in plan.cuts:
            self.queued[name].cut(draft_tokens)
        for name in plan.held_back:
            queued = self.queued[name]
            call.grants[name] = (queued.overtakes or queued).round - 1
            call.due_at_s[name] = queued.terms.deadline_at_s
        for name in plan.joining:
            queued = self.queued[name]
            if queued.at_verifier:
                call.grants[name] = queued.until_round
                continue
            queued.at_verifier = True
            call.due_at_s[name] = queued.terms.deadline_at_s
            call.drop_grant(name)  # of an autonomous run that it overtakes
            self.resident.pop(name, None)
            sent.append(queued)
            queued.observe(RoundEvent.DISPATCHED)
        return sent

    def resolve(self, resolution: Resolution, now_s: float) -> bool:
        """Send the resolution of an undecided block; return whether there is one: else the verifier was lost."""
        queued = self.resolving.get(resolution.generation)
        if queued is None:
            return False
        queued.since_s, queued.at_verifier = now_s, True
        self._call.resolutions[resolution.generation] = resolution
        return True

    @property
    def resolving_at_verifier(self) -> bool:
        return any(queued.at_verifier for queued in self.resolving.values())

    def fail_waiting(self, error: Exception) -> None:
        for name, queued in list(self.queued.items()):
            if self._planner.waits(name):
                self.forget(name)
                queued.outcomes.fail(error)

    def fail_lost(self, error: Exception, culprit: GenerationId | None, *, waiting_too: bool) -> None:
        """Fail all blocks that a lost verifier had, and ``waiting_too`` those that it had not.

        ``culprit``: generation that is named as the reason of the loss.
        """
        lost = [each for each in self.queued.values() if waiting_too or each.at_verifier or each.overtakes is not None]
        for queued in lost:
            self.forget(queued.block.generation)
        for queued in (*lost, *self.resolving.values()):
            queued.outcomes.fail(error if queued.block.generation != culprit else _poison_error(error))
        self.resolving, self.resident = {}, {}  # no KV is left; generations are opened again

    def evicted(self, generation: GenerationId, resident_tokens: int) -> None:
        """Correct the cost of a generation's next block after the verifier evicted its KV."""
        if generation not in self.outcomes:  # closed meanwhile
            return
        self._planner.note_evicted(generation)
        queued = self.queued.get(generation)
        if queued is not None:
            queued.note_evicted(resident_tokens)
        if queued is None or not queued.at_verifier:
            self.resident[generation] = resident_tokens

    def settle(self, outcome: Outcome, reply: StepReply, now_s: float) -> bool:
        """Deliver one outcome of a step; return whether it counts as a block of it (resolved and stale ones do not).

        An exception fails its generation alone.
        """
        name = outcome.generation
        try:
            return self._settle(outcome, reply, now_s)
        except Exception as error:
            log.exception("settling_failed")
            queued = self.queued.get(name) or self.resolving.pop(name, None)
            self.forget(name)
            if queued is not None:
                queued.outcomes.fail(RequestFailedError(f"a verifier's outcome cannot be settled: {error!r:.200}"))
            return False

    def _settle(self, outcome: Outcome, reply: StepReply, now_s: float) -> bool:
        name = outcome.generation
        queued = self.queued.get(name)
        if queued is not None and queued.overtakes is not None and outcome.round != queued.round:
            return self._settle_overtaken(queued, queued.overtakes, outcome, reply, now_s)
        if queued is None or not queued.at_verifier:
            self._settle_resolved(outcome, now_s)
            return False
        if outcome.round != queued.round:  # superseded: a newer block of the generation is queued
            return False
        queued.verify_s += reply.engine_s
        if name in reply.refused_openings:
            refusal = reply.refused_openings[name]
            outcome = BlockRefused(name, outcome.round, refusal.reason, refusal.too_long)
        if isinstance(outcome, Unfinished):
            queued.set_remaining(outcome.remaining_tokens)
            return True
        went_on, queued.overtakes = queued.went_on(outcome), None
        if not went_on:
            self.forget(name)
        elif not queued.has_grant:
            self._planner.withdraw(name)
        if isinstance(outcome, Undecided):
            queued.at_verifier = False  # it waits for the device's hidden states, so no step deadline applies
            self.resolving[name] = queued
        queued.deliver(outcome, now_s)
        if went_on and self.queued.get(name) is queued:  # the follower that ``deliver`` called may have replaced it
            queued.begin_run()
        return True

    def _settle_overtaken(
        self, queued: QueuedBlock, before: QueuedBlock, outcome: Outcome, reply: StepReply, now_s: float
    ) -> bool:
        """Settle a round of an autonomous run whose generation has a newer block, not verified yet."""
        if outcome.round != before.round:
            return False
        before.verify_s += reply.engine_s
        if isinstance(outcome, Unfinished):
            return True
        queued.rebase(outcome, now_s)
        if not before.went_on(outcome):
            self.forget(outcome.generation)  # the run has ended, so the newer block has nothing to join
        before.deliver(outcome, now_s)
        return True

    def _settle_resolved(self, outcome: Outcome, now_s: float) -> None:
        queued = self.resolving.get(outcome.generation)
        if queued is None or outcome.round != queued.round:
            return
        queued.at_verifier = False
        if not isinstance(outcome, BlockRefused):  # after a refusal another resolution may follow
            del self.resolving[outcome.generation]
        queued.deliver(outcome, now_s)


def _poison_error(error: Exception) -> RequestFailedError:
    return RequestFailedError(f"the verifier was lost with this request alone in its steps, again: {error}")
