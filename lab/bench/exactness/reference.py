"""The target under test, and its reference: the engine's tokens at window 0 without a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from lab.bench.exactness.requests import Request
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import TokenLogprobs
from outrider.contracts.verifying import Block, OpenGeneration, Unfinished, Verified, VerifierEngine, target_rule
from outrider.engines.forward_model import BranchModel, MaskedModel
from outrider.engines.limits import MemoryBesideKv
from outrider.engines.verifier.engine import PagedVerifier

_TOP = 3  # log-probabilities of every token
_KEPT_ROWS_BYTES = 2**20  # corrections are not deferred


@dataclass(frozen=True, slots=True)
class Target:
    """The model under test: its passes, its real tokens, its context."""

    model: MaskedModel | BranchModel
    vocab_size: int
    max_context_tokens: int

    def engine(self, prefill_chunk_tokens: int, blocks: int | None = None) -> PagedVerifier:
        """A new engine with this many of the model's KV blocks, or all; it ignores what was in them."""
        model = self.model if blocks is None else _part(self.model, blocks)
        return PagedVerifier(
            model,
            vocab_size=self.vocab_size,
            max_context_tokens=self.max_context_tokens,
            prefill_chunk_tokens=prefill_chunk_tokens,
            memory=MemoryBesideKv(_KEPT_ROWS_BYTES),
        )


class _MaskedPart:
    """The first blocks of a model's pool."""

    def __init__(self, model: MaskedModel, blocks: int) -> None:
        self.total_blocks = min(blocks, model.total_blocks)
        self.block_tokens, self.no_logits = model.block_tokens, model.no_logits
        self.forward, self.move = model.forward, model.move


class _BranchPart:
    """The same for a model that takes trees branch by branch."""

    def __init__(self, model: BranchModel, blocks: int) -> None:
        self.total_blocks = min(blocks, model.total_blocks)
        self.block_tokens, self.no_logits, self.forward = model.block_tokens, model.no_logits, model.forward


def _part(model: MaskedModel | BranchModel, blocks: int) -> MaskedModel | BranchModel:
    return _MaskedPart(model, blocks) if isinstance(model, MaskedModel) else _BranchPart(model, blocks)


@dataclass(frozen=True, slots=True)
class Said:
    """A response alone: its tokens, with log-probabilities of each and of the alternatives."""

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]

    @property
    def runners_up(self) -> tuple[int, ...]:
        """For each token, the most probable other."""
        return tuple(
            next((token for token, _ in one.top if token != one.token_id), one.token_id) for one in self.logprobs
        )


def block_of(request: Request, number: int, tokens: Sequence[int]) -> Block:
    """A round without a draft behind these tokens, prompt and output."""
    prefix = extend_prefix_hash(EMPTY_PREFIX_HASH, tokens)
    return Block(request.name, number, len(tokens), prefix, rule=target_rule(request.params))


def said_alone(engine: VerifierEngine, request: Request) -> Said:
    """Answer a request with no other generation in the engine, token by token."""
    engine.open(OpenGeneration(request.name, request.prompt_ids, request.params, logprobs=_TOP))
    tokens, logprobs = list(request.prompt_ids), list[TokenLogprobs]()
    block = block_of(request, 0, tokens)
    while len(logprobs) < request.tokens:
        [outcome] = engine.verify([block])
        if isinstance(outcome, Unfinished):
            continue
        assert isinstance(outcome, Verified), outcome
        assert outcome.next_token is not None, "a round without a draft has one"
        tokens.append(outcome.next_token)
        logprobs += outcome.logprobs
        block = block_of(request, block.round + 1, tokens)
    engine.close(request.name, keep_cache=False)
    return Said(tuple(tokens[len(request.prompt_ids) :]), tuple(logprobs))
