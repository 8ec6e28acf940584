"""What stands between a coordinator and its verifier in ``outrider bench capacity``: notes every batch, keeps no cache.

No response finds KV of another one: a generation that is closed leaves nothing behind. Where no KV is to be kept at
all (the papers' SLED baseline) every block's generation is forgotten and opened again with it, so that each
verification computes the whole prefix.
"""

from collections.abc import Callable
from dataclasses import replace

from actors.messages import Closing, VerifyCall, VerifyReply
from bench.capacity.log import BatchEntry
from outrider.contracts.cost import VerifyCost
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Block, OpenGeneration, Outcome, Unfinished, Verified
from outrider.rounds.blocks import block_tokens
from serve_app.coordination.generations import VerifierAccess


class NotedVerifier:
    """A verifier, as ``Generations`` sees it.

    Attributes:
        batches: that had blocks, in the order of their replies.
    """

    def __init__(self, verifier: VerifierAccess, *, keeps_kv: bool, clock: Callable[[], float]) -> None:
        """Hold no generation yet. ``clock`` gives the times of ``batches``."""
        self._verifier = verifier
        self._keeps_kv = keeps_kv
        self._clock = clock
        self._open: dict[GenerationId, OpenGeneration] = {}  # as committed now
        self._lacking: dict[GenerationId, int] = {}  # positions still to compute of a block that is under way
        self.batches: list[BatchEntry] = []

    async def verify(self, call: VerifyCall) -> VerifyReply:
        """Pass the call on, and note what it held and how long it took."""
        sent, sent_at_s = self._forgetful(call), self._clock()
        reply = await self._verifier.verify(sent)
        replied_at_s = self._clock()
        for closing in call.closings:
            self._open.pop(closing.generation, None)
            self._lacking.pop(closing.generation, None)
        self._open |= {opening.generation: opening for opening in call.openings}
        opened = {opening.generation for opening in sent.openings}
        members = tuple(
            (block.generation, block.round, self._settled(block, outcome, opened=block.generation in opened))
            for block, outcome in zip(call.blocks, reply.outcomes, strict=True)
        )
        if members:
            self.batches.append(BatchEntry(sent_at_s, replied_at_s, members, reply.engine_s, reply.waited_s))
        return reply

    async def answers(self) -> None:
        """See ``VerifierAccess.answers``."""
        await self._verifier.answers()

    async def forget_all(self) -> None:
        """Close what is still open."""
        closings = tuple(Closing(generation, keep_cache=False) for generation in self._open)
        self._open.clear()
        await self._verifier.verify(VerifyCall(closings=closings))

    def _forgetful(self, call: VerifyCall) -> VerifyCall:
        """The call without caches, and without kept KV if so wanted."""
        closings = tuple(replace(closing, keep_cache=False) for closing in call.closings)
        if self._keeps_kv:
            return replace(call, closings=closings)
        opened = {opening.generation for opening in call.openings}
        anew = [
            self._open[block.generation]
            for block in call.blocks
            if block.generation in self._open and block.generation not in opened | self._lacking.keys()
        ]
        return replace(
            call,
            closings=(*closings, *(Closing(opening.generation, keep_cache=False) for opening in anew)),
            openings=(*call.openings, *anew),
        )

    def _settled(self, block: Block, outcome: Outcome, *, opened: bool) -> VerifyCost:
        """Take in a block's outcome; returns what was computed and what was read for it."""
        name, whole = block.generation, block_tokens(block)
        lacking = self._lacking.pop(name, whole if opened else len(block.draft) + 1)
        if isinstance(outcome, Unfinished):
            self._lacking[name] = outcome.remaining_tokens
            return VerifyCost(lacking - outcome.remaining_tokens, whole - lacking)
        if isinstance(outcome, Verified) and name in self._open:
            accepted = [block.draft[node] for node in outcome.accepted_path]
            following = () if outcome.next_token is None else (outcome.next_token,)
            held = self._open[name]
            self._open[name] = replace(held, output_ids=(*held.output_ids, *block.forced, *accepted, *following))
        return VerifyCost(lacking, whole - lacking)
