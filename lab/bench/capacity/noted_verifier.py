"""Wrapper of a verifier in ``outrider bench capacity``: records every batch, and prevents prefix caching.

No response finds KV of another one: a closed generation leaves nothing behind. If no KV is to be kept at all (the
papers' SLED baseline), every block's generation is closed and opened again with it, so that each verification computes
the whole prefix.
"""

from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import replace

from actors.messages import Closing, StepReply, VerifyCall
from lab.bench.capacity.log import BatchEntry
from outrider.contracts.autonomous_runs import accepted_by, following
from outrider.contracts.cost import VerifyCost
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Block, OpenGeneration, Outcome, Unfinished, Verified
from outrider.rounds.blocks import block_tokens
from serve_app.coordination.generations.generations import VerifierAccess


class NotedVerifier:
    """A verifier with the interface that ``Generations`` needs.

    Attributes:
        batches: those with blocks, in the order of their replies.
    """

    def __init__(
        self, verifier: VerifierAccess, *, keeps_kv: bool, clock: Callable[[], float], first_session: int = 0
    ) -> None:
        """Wrap a verifier; with ``keeps_kv`` it may keep KV from one round to the next.

        ``first_session`` replaces session 0, above all earlier ones: the verifier takes calls in order of their
        numbers, and has taken those of an earlier coordinator.
        """
        self._verifier = verifier
        self._keeps_kv = keeps_kv
        self._clock, self._first_session = clock, first_session
        self._open: dict[GenerationId, OpenGeneration] = {}  # as committed now
        self._blocks: dict[GenerationId, Block] = {}  # in progress
        self._lacking: dict[GenerationId, int] = {}  # positions of these still to compute
        self._sent_at_s, self._replied_at_s = 0.0, 0.0
        self._session = self._calls = 0
        self.batches: list[BatchEntry] = []

    def give(self, call: VerifyCall) -> None:
        """Pass the call on, without caches."""
        if not self._blocks:
            self._sent_at_s = self._clock()
        opened = {opening.generation for opening in call.openings}
        sent = self._forgetful(call, opened)
        for closing in call.closings:
            for held in (self._open, self._blocks, self._lacking):
                held.pop(closing.generation, None)
        self._open |= {opening.generation: opening for opening in call.openings}
        anew = {opening.generation for opening in sent.openings}
        for block in call.blocks:
            whole = block_tokens(block)
            self._blocks[block.generation] = block
            self._lacking[block.generation] = whole if block.generation in anew else len(block.draft) + 1
        if call.session > self._session:
            self._session, self._calls = call.session, 0
        session = self._first_session + self._session
        self._verifier.give(replace(sent, session=session, number=self._calls))  # numbers count the calls inserted here
        self._calls += 1

    async def steps(self) -> AsyncGenerator[StepReply]:
        async for told in self._verifier.steps():
            reply = replace(told, session=told.session - self._first_session)
            began_at_s, self._replied_at_s = max(self._sent_at_s, self._replied_at_s), self._clock()
            members = [self._settled(outcome) for outcome in reply.outcomes if outcome.generation in self._blocks]
            if members:
                self.batches.append(BatchEntry(began_at_s, tuple(members), reply.engine_s))
            yield reply

    def kill_hung(self) -> None:
        self._verifier.kill_hung()

    @property
    def is_up(self) -> bool:
        return self._verifier.is_up

    async def wait_until_up(self) -> None:
        await self._verifier.wait_until_up()

    def forget_all(self) -> None:
        self.give(VerifyCall(closings=tuple(Closing(generation, keep_cache=False) for generation in self._open)))

    def _forgetful(self, call: VerifyCall, opened: Collection[GenerationId]) -> VerifyCall:
        """The call without prefix caches, and without kept KV if configured."""
        closings = tuple(replace(closing, keep_cache=False) for closing in call.closings)
        if self._keeps_kv:
            return replace(call, closings=closings)
        names = [block.generation for block in call.blocks if block.generation not in opened]
        anew = [self._open[name] for name in names if name in self._open]
        return replace(
            call,
            closings=(*closings, *(Closing(opening.generation, keep_cache=False) for opening in anew)),
            openings=(*call.openings, *anew),
        )

    def _settled(self, outcome: Outcome) -> tuple[GenerationId, int, VerifyCost]:
        """Process a block's outcome; return which round it was of, and the tokens computed and read for it."""
        name = outcome.generation
        block = self._blocks[name]
        whole, lacking = block_tokens(block), self._lacking[name]
        if isinstance(outcome, Unfinished):
            self._lacking[name] = outcome.remaining_tokens
            return name, outcome.round, VerifyCost(lacking - outcome.remaining_tokens, whole - lacking)
        behind = None
        if isinstance(outcome, Verified) and name in self._open:
            accepted = accepted_by(block, outcome)
            after = () if outcome.next_token is None else (outcome.next_token,)
            held = self._open[name]
            self._open[name] = replace(held, output_ids=(*held.output_ids, *block.forced, *accepted, *after))
            behind = following(block, outcome, held.params)
        del self._blocks[name], self._lacking[name]
        if behind is not None:
            self._blocks[name], self._lacking[name] = behind, 1
        return name, outcome.round, VerifyCost(lacking, whole - lacking)
