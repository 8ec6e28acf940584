"""A verifier with a model that computes nothing: the cost of a block, at short and long contexts."""

import pickle
import time
from collections.abc import Sequence

import torch

from actors.messages import VerifyCall
from actors.verifier.actor import SteppedEngine
from lab.bench.bookkeeping.figures import BlockCost
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AutonomousRun, Block, OpenGeneration, Verified
from outrider.engines.forward_model import PassResult
from outrider.engines.limits import MemoryBesideKv
from outrider.engines.segments import Move, Segment
from outrider.engines.verifier.engine import PagedVerifier

_VOCAB, _NEXT, _OTHER, _BLOCK_TOKENS = 32, 5, 6, 16
_DRAFT = (_NEXT, _NEXT, _OTHER, _NEXT)  # half of it is accepted
_GREEDY = SamplingParams(temperature=0.0)
_STEP_ROUNDS = 1 << 20


class SilentModel:
    """A ``MaskedModel`` with the same output everywhere."""

    block_tokens, no_logits = _BLOCK_TOKENS, torch.zeros(0, _VOCAB)

    def __init__(self, total_blocks: int, most_rows: int) -> None:
        """``most_rows``: limit of the rows of a pass."""
        self.total_blocks = total_blocks
        self._logits = torch.zeros(most_rows, _VOCAB)
        self._logits[:, _NEXT] = 1.0

    def forward(self, segments: Sequence[Segment], *, want_hidden: bool = False) -> PassResult:  # noqa: ARG002
        return PassResult(self._logits[: sum(segment.logit_rows for segment in segments)], None)

    def move(self, moves: Sequence[Move]) -> None:
        """Do nothing: there are no trees."""
        raise AssertionError(moves)


def measured(context_tokens: int, generations: int, steps: int, repeats: int) -> list[list[BlockCost]]:
    """Time autonomous runs, then drafts; each step has one block of every generation."""
    torch.set_num_threads(1)
    positions = context_tokens + (1 + steps * repeats) * (len(_DRAFT) + 1)
    kv_blocks = generations * (positions // _BLOCK_TOKENS + 1)
    engine = PagedVerifier(
        SilentModel(kv_blocks, generations * (len(_DRAFT) + 1)),
        vocab_size=_VOCAB,
        max_context_tokens=positions,
        prefill_chunk_tokens=generations * positions,
        memory=MemoryBesideKv(0),
    )
    return [
        _runs(SteppedEngine(engine), _opened(context_tokens, generations), steps, repeats, drafting=drafting)
        for drafting in (False, True)
    ]


def _opened(context_tokens: int, generations: int) -> list[OpenGeneration]:
    """Open generations whose prompts have no common prefix."""
    shared = [_OTHER] * (context_tokens - 2)
    return [OpenGeneration(f"g{n}", (n // _VOCAB, n % _VOCAB, *shared), _GREEDY) for n in range(generations)]


def _runs(
    engine: SteppedEngine, opened: Sequence[OpenGeneration], steps: int, repeats: int, *, drafting: bool
) -> list[BlockCost]:
    autonomous_run = None if drafting else AutonomousRun(_STEP_ROUNDS)
    blocks = [
        Block(one.generation, 0, len(one.prompt_ids), _hash_of(one.prompt_ids), autonomous_run=autonomous_run)
        for one in opened
    ]
    engine.step([VerifyCall(openings=tuple(opened), blocks=tuple(blocks))])
    blocks = [_behind(block, (_NEXT,)) for block in blocks]
    kind, context_tokens = f"drafts of {len(_DRAFT)}" if drafting else "stretches", len(opened[0].prompt_ids)
    found, number = list[BlockCost](), 0
    for _ in range(repeats):
        step_s = messages_s = 0.0
        for _ in range(steps):
            number += 1
            sent = pickle.dumps([VerifyCall(blocks=tuple(blocks), number=number)] if drafting else [])
            began_s = time.process_time()
            calls = pickle.loads(sent)  # noqa: S301 (its own)
            read_s = time.process_time()
            reply = engine.step(calls)
            stepped_s = time.process_time()
            pickle.dumps(reply)
            step_s, messages_s = step_s + stepped_s - read_s, messages_s + time.process_time() - stepped_s
            messages_s += read_s - began_s
            assert len(reply.outcomes) == len(opened), "one of each"
            assert all(isinstance(outcome, Verified) for outcome in reply.outcomes), "all are decided"
            blocks = [_behind(block, (_NEXT, _NEXT, _NEXT)) for block in blocks] if drafting else blocks
        count = steps * len(opened)
        found.append(BlockCost(kind, context_tokens, step_s / count, messages_s / count))
    return found


def _behind(block: Block, committed: Sequence[int]) -> Block:
    """The next round's block, with a draft."""
    return Block(
        block.generation,
        block.round + 1,
        block.position + len(committed),
        extend_prefix_hash(block.prefix_hash, committed),
        draft=_DRAFT,
    )


def _hash_of(token_ids: Sequence[int]) -> int:
    return extend_prefix_hash(EMPTY_PREFIX_HASH, token_ids)
