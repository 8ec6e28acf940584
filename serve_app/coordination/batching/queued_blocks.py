"""Holds the batcher's state of each queued block: what is left to compute, its grant, and who receives its outcomes."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil

from outrider.contracts.autonomous_runs import accepted_by, goes_on, overtaken, survivals_after, without_draft
from outrider.contracts.cost import VerifyCost
from outrider.contracts.trimming import trimmed
from outrider.contracts.verifying import Block, OpenGeneration, Outcome, PromptLookupGrant, Verified
from outrider.rounds.blocks import block_tokens
from outrider.rounds.events import VerifyResult
from outrider.rounds.promise_tracker import VerifyTerms
from outrider.rounds.states import RoundEvent
from outrider.scheduling.policy import PendingVerification

Follower = Callable[[VerifyResult | Exception], bool]  # returns whether it also wants the next round


class RoundOutcomes:
    """Queue of one generation's outcomes with one reader: a task in ``next``, or a follower that is called back."""

    __slots__ = ("_error", "_follower", "_results", "_waiter")

    def __init__(self) -> None:
        self._results: deque[VerifyResult] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._follower: Follower | None = None
        self._error: Exception | None = None

    def deliver(self, result: VerifyResult) -> None:
        self._results.append(result)
        self._wake()

    def fail(self, error: Exception) -> None:
        """End the queue: after the results that are left, the reader receives ``error``."""
        self._error = error
        self._wake()

    @property
    def empty(self) -> bool:
        """Whether neither a result nor an error waits for the reader."""
        return not self._results and self._error is None

    @property
    def waiting(self) -> tuple[VerifyResult, ...]:
        """Results that were delivered and not read yet."""
        return tuple(self._results)

    def follow(self, follower: Follower) -> None:
        """Call ``follower`` with each result as it is delivered, until it returns False."""
        self._follower = follower
        self._wake()

    async def next(self) -> VerifyResult:
        """Return the next result, or raise the error given to ``fail``. At most one task may wait."""
        while not self._results:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._results.popleft()

    def _wake(self) -> None:
        while self._follower is not None and (self._results or self._error is not None):
            follower, self._follower = self._follower, None  # it may set another by ``follow`` while it is called
            if follower(self._results.popleft() if self._results else self._error):  # type: ignore[arg-type]  # one of both
                self._follower = self._follower or follower
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@dataclass(slots=True, eq=False)
class QueuedBlock:
    """A block that waits or is with the verifier, or the autonomous run behind it.

    Attributes:
        overtakes: the generation's autonomous run that the verifier still makes; its rounds are delivered before this
            block's.
    """

    block: Block
    opening: OpenGeneration | None
    observe: Callable[[RoundEvent], object]
    outcomes: RoundOutcomes
    cost: VerifyCost  # what is left to compute
    terms: VerifyTerms
    kv_block_tokens: int  # positions per KV block
    since_s: float  # when it was queued, or when its previous round was delivered
    round: int = field(init=False)  # number of the round that is decided next
    until_round: int = field(init=False)  # last round that its grant covers
    at_verifier: bool = False  # whether it was sent to the verifier, which has not decided it yet
    verify_s: float = 0.0
    min_survival: float | None = None  # as in ``PendingVerification``
    draft_tokens: int | None = None  # length of the draft after a cut; None: not cut
    overtakes: "QueuedBlock | None" = None

    def __post_init__(self) -> None:
        self.round, run = self.block.round, self.block.autonomous_run
        self.until_round = self.round if run is None else run.until_round

    def pending(self) -> PendingVerification:
        return PendingVerification(
            generation=self.block.generation,
            round=self.round,
            arrived_at_s=self.since_s,
            deadline_at_s=self.terms.deadline_at_s,
            expected_tokens=self.terms.expected_tokens,
            cost=self.cost,
            tokens_per_s=self.terms.tokens_per_s,
            memory_blocks=ceil((self.cost.new_tokens + self.cost.cached_tokens) / self.kv_block_tokens),
            elapsed_s=max(0.0, self.since_s - self.terms.began_at_s),
            survivals=() if self.at_verifier else self.terms.survivals,
            min_survival=self.min_survival,
            prefill_tokens=self.prefill_tokens,
            first=self.round == 0,
        )

    def cut(self, draft_tokens: int) -> None:
        dropped = len(self.block.draft) - draft_tokens
        self.block, self.draft_tokens = trimmed(self.block, draft_tokens), draft_tokens
        self.cost = replace(self.cost, new_tokens=self.cost.new_tokens - dropped)
        survivals = self.terms.survivals[:draft_tokens]
        self.terms = replace(self.terms, survivals=survivals, expected_tokens=1.0 + sum(survivals))

    def set_remaining(self, tokens: int) -> None:
        """Set the number of positions still to compute; some may be of the verifier's own draft."""
        cost = self.cost
        self.cost = VerifyCost(tokens, max(0, cost.new_tokens + cost.cached_tokens - tokens))

    def note_evicted(self, resident_tokens: int) -> None:
        """Move cached positions that were evicted to those that have to be computed; ``resident_tokens`` are left."""
        total, own = self.cost.new_tokens + self.cost.cached_tokens, len(self.block.draft) + 1
        resident = min(resident_tokens, self.cost.cached_tokens, total - own)
        self.cost = VerifyCost(total - resident, resident)

    @property
    def goes_on(self) -> bool:
        """Whether the grant covers another round, unless this round's outcome ends the response."""
        return self.round < self.until_round

    def went_on(self, outcome: Outcome) -> bool:
        """Move on to the next autonomous round if one follows this outcome, granted or not; return whether one does."""
        if not isinstance(outcome, Verified) or not goes_on(self.block, outcome):
            return False
        self.round += 1
        accepted = 0 if outcome.own_draft is None else outcome.accepted_len
        self.cost = VerifyCost(1, self.cost.new_tokens + self.cost.cached_tokens + accepted)
        return True

    def rebase(self, outcome: Outcome, now_s: float) -> None:
        """Drop from the block what a round of the run that it overtakes has committed; it waits anew from ``now_s``."""
        self.since_s = now_s
        if not isinstance(outcome, Verified) or outcome.next_token is None:
            return
        committed = (*(() if outcome.own_draft is None else accepted_by(self.block, outcome)), outcome.next_token)
        drafted, self.block = len(self.block.draft), overtaken(self.block, committed)
        left = len(self.block.draft)
        survivals = survivals_after(self.terms.survivals, drafted - left) if left else ()
        self.terms = replace(self.terms, survivals=survivals, expected_tokens=1.0 + sum(survivals))
        self.cost = VerifyCost(left + 1, block_tokens(self.block) - left - 1)
        if self.draft_tokens is not None:
            self.draft_tokens = min(self.draft_tokens, left)

    def begin_run(self) -> None:
        """Turn the block into its autonomous run, once its own round was delivered."""
        self.block, self.draft_tokens = without_draft(self.block), None

    def set_lookup(self, lookup: PromptLookupGrant | None) -> bool:
        """Set how the autonomous run may draft by prompt lookup; return whether that is a change."""
        autonomous_run = self.block.autonomous_run
        if autonomous_run is None or autonomous_run.lookup == lookup:
            return False
        self.block = replace(self.block, autonomous_run=replace(autonomous_run, lookup=lookup))
        return True

    @property
    def has_grant(self) -> bool:
        return self.round <= self.until_round

    @property
    def prefill_tokens(self) -> int:
        """Positions of the prefix still to compute, which may be computed in chunks."""
        return max(0, self.cost.new_tokens - len(self.block.draft) - 1)

    def deliver(self, outcome: Outcome, now_s: float) -> None:
        """Deliver the outcome with its times: what was not spent in steps counts as queueing."""
        queue_s = max(0.0, now_s - self.since_s - self.verify_s)
        self.outcomes.deliver(VerifyResult(outcome, queue_s, self.verify_s, self.draft_tokens))
        self.since_s, self.verify_s = now_s, 0.0
