"""What the target alone would say: plain transformers, no cache, one sequence; and a round loop to drive engines."""

import random
from collections.abc import Callable, Sequence

import torch
from transformers import PreTrainedModel

from outrider.engines.base import AcceptanceRule, Block, OpenGeneration, Unfinished, Verified, VerifierEngine
from outrider.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.sampling import RowGroup, TokenCounts, choose_tokens
from outrider.types import SamplingParams
from tests.unit.engines.conftest import VOCAB


@torch.inference_mode()
def target_alone(model: PreTrainedModel, prompt: Sequence[int], params: SamplingParams, length: int) -> list[int]:
    """Tokens of the target without speculation, without KV, without a batch."""
    model.set_attn_implementation("eager")
    tokens = list(prompt)
    for _ in range(length):
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1:, :VOCAB]
        counts = TokenCounts(VOCAB, prompt, tokens[len(prompt) :])
        tokens.append(int(choose_tokens(logits, [RowGroup(params, len(tokens), counts, (), 1)])[0]))
    return tokens[len(prompt) :]


class Client:
    """One generation driven through a verifier: keeps the committed sequence and makes its blocks."""

    def __init__(self, name: str, prompt: Sequence[int], params: SamplingParams) -> None:
        self.name, self.prompt, self.params = name, list(prompt), params
        self.tokens = list(prompt)
        self.round = 0
        self.outcomes: list[Verified] = []

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.prompt) :]

    def opening(self) -> OpenGeneration:
        return OpenGeneration(self.name, tuple(self.prompt), self.params, tuple(self.output))

    def block(self, draft: Sequence[int] = (), *, bonus: bool = True, forced: Sequence[int] = ()) -> Block:
        return Block(
            generation=self.name,
            round=self.round,
            position=len(self.tokens),
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, self.tokens),
            forced=tuple(forced),
            draft=tuple(draft),
            rule=AcceptanceRule.GREEDY if self.params.greedy else AcceptanceRule.SHARED_NOISE,
            bonus=bonus,
        )

    def take(self, block: Block, outcome: Verified) -> None:
        accepted = [block.draft[i] for i in outcome.accepted_path]
        after = [] if outcome.next_token is None else [outcome.next_token]
        self.tokens += [*block.forced, *accepted, *after]
        self.outcomes.append(outcome)
        self.round += 1


def verify_until_done(engine: VerifierEngine, blocks: Sequence[Block], most_passes: int = 200) -> list[Verified]:
    """Submit blocks, again while they are unfinished; outcomes in the order of ``blocks``."""
    done: dict[str, Verified] = {}
    left = list(blocks)
    for _ in range(most_passes):
        unfinished = []
        for block, outcome in zip(left, engine.verify(left), strict=True):
            if isinstance(outcome, Unfinished):
                unfinished.append(block)
            else:
                assert isinstance(outcome, Verified), outcome
                done[block.generation] = outcome
        left = unfinished
        if not left:
            return [done[block.generation] for block in blocks]
    raise AssertionError(f"blocks {[b.generation for b in left]} not decided after {most_passes} passes")


def mixed_draft(truth: Sequence[int], window: int, rng: random.Random) -> list[int]:
    """A draft that is right for a random length and then wrong."""
    draft = list(truth[:window])
    at = rng.randint(0, window)
    if at < len(draft):
        draft[at] = (draft[at] + 1) % VOCAB
    return draft


def generate(
    engine: VerifierEngine,
    clients: Sequence[Client],
    draft: Callable[[Client], Sequence[int]],
    length: int,
) -> None:
    """Drive generations together until each has ``length`` output tokens (or a few more)."""
    for client in clients:
        engine.open(client.opening())
    while active := [c for c in clients if len(c.output) < length]:
        blocks = [c.block(draft(c)) for c in active]
        for client, block, outcome in zip(active, blocks, verify_until_done(engine, blocks), strict=True):
            client.take(block, outcome)
