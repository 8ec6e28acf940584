"""What a pass costs outside the model does not grow with the context."""

import tracemalloc
from collections.abc import Sequence

import torch

from outrider.contracts.prefix import extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import Block, OpenGeneration, Verified
from outrider.engines.forward_model import PassResult
from outrider.engines.limits import MemoryBesideKv
from outrider.engines.segments import Move, Segment
from outrider.engines.verifier.engine import PagedVerifier

VOCAB, NEXT = 8, 5
SHORT, LONG = 1_000, 100_000  # tokens
ROUNDS = 5
POINTER_BYTES, KV_BLOCK_TOKENS = 8, 16


class ConstantModel:
    """A ``MaskedModel`` that always says the same."""

    total_blocks, block_tokens, no_logits = 10_000, KV_BLOCK_TOKENS, torch.zeros(0, VOCAB)

    def forward(self, segments: Sequence[Segment], *, want_hidden: bool = False) -> PassResult:
        assert not want_hidden
        logits = torch.zeros(sum(segment.logit_rows for segment in segments), VOCAB)
        logits[:, NEXT] = 1.0
        return PassResult(logits, None)

    def move(self, moves: Sequence[Move]) -> None:
        raise AssertionError(moves)


def bytes_of_a_round(context_tokens: int) -> int:
    """The most memory a round asks for at a time, but for those in which a list has to grow."""
    engine = PagedVerifier(
        ConstantModel(),
        vocab_size=VOCAB,
        max_context_tokens=2 * LONG,
        prefill_chunk_tokens=LONG,
        memory=MemoryBesideKv(0),
    )
    tokens = [1] * context_tokens
    engine.open(OpenGeneration("g", tuple(tokens), SamplingParams(temperature=0.0)))
    engine.verify([Block("g", 0, context_tokens, extend_prefix_hash(0, tokens))])
    tokens.append(NEXT)
    found = []
    for number in range(1, ROUNDS + 1):
        block = Block("g", number, len(tokens), extend_prefix_hash(0, tokens), draft=(NEXT, NEXT, 1))
        tracemalloc.start()
        try:
            (outcome,) = engine.verify([block])
            found.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert isinstance(outcome, Verified)
        assert (outcome.accepted_path, outcome.next_token) == ((0, 1), NEXT)
        tokens += [NEXT] * 3
    return min(found)


def test_a_round_copies_nothing_that_grows_with_the_context() -> None:
    table = POINTER_BYTES * LONG // KV_BLOCK_TOKENS
    assert bytes_of_a_round(LONG) - bytes_of_a_round(SHORT) < table / 2
