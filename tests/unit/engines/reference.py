"""What the target alone would say: plain transformers, no cache, one sequence; and a round loop to drive engines."""

import functools
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from outrider.contracts.autonomous_runs import accepted_by
from outrider.contracts.exchanged import CorrectionSource, Deferral, DraftDistribution, FloatField, TargetRow
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams, TokenLogprobs
from outrider.contracts.verifying import AcceptanceRule, Block, OpenGeneration, Unfinished, Verified, VerifierEngine
from outrider.engines.verifier.engine import PagedVerifier
from outrider.verification.decision import BlockDecision
from outrider.verification.ratio_block import RatioBlock, rows_of
from tests.unit.engines.conftest import CONTEXT_TOKENS, VOCAB, MakeVerifier, tiny_llama
from tests.unit.engines.table_drafter import TableModel
from tests.unit.verification import oracle


@torch.inference_mode()
def target_alone(
    model: PreTrainedModel | TableModel,
    prompt: Sequence[int],
    params: SamplingParams,
    length: int,
    vocab_size: int = VOCAB,
) -> list[int]:
    """Tokens of the target without speculation, without KV, without a batch."""
    model.set_attn_implementation("eager")
    tokens = list(prompt)
    for _ in range(length):
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1, :vocab_size]
        row = oracle.adjusted(logits.double().numpy(), params, prompt, tokens[len(prompt) :])
        tokens.append(oracle.choice(row, params, len(tokens)))
    return tokens[len(prompt) :]


_TINY_SAID: dict[tuple[object, ...], list[int]] = {}


def tiny_alone(prompt: Sequence[int], params: SamplingParams, length: int, *, in_float64: bool = False) -> list[int]:
    """The same of ``tiny_llama``, computed once: every engine of a process is held to it."""
    said = _TINY_SAID.setdefault((tuple(prompt), params, in_float64), [])
    if len(said) < length:
        model = tiny_llama().double() if in_float64 else tiny_llama()
        said[:] = target_alone(model, prompt, params, length)
    return said[:length]


def kept_row_bytes(engine: PagedVerifier) -> int:
    """Bytes of logits rows that wait for a device's correction, and of hidden states of pending rounds."""
    pending = [held.open_round for held in engine._generations.values() if held.open_round is not None]  # noqa: SLF001
    return engine._rows.kept_bytes + sum(one.target_hidden.nbytes for one in pending)  # noqa: SLF001


def alone(make: MakeVerifier, prompt: Sequence[int], params: SamplingParams, length: int) -> list[int]:
    """What an engine's tiny target says alone: plain transformers', or the engine's own if it rounds otherwise."""
    if not make.narrow:
        return tiny_alone(prompt, params, length)
    client = Client("alone", prompt, params)
    generate(make(tiny_llama(), prefill_chunk_tokens=CONTEXT_TOKENS), [client], lambda _: (), length)
    return client.output


def expected_logprobs(logits: torch.Tensor, token_ids: Sequence[int], top: int) -> list[TokenLogprobs]:
    """What one plain forward pass says of tokens, by torch's own functions; row i of ``logits`` predicts token i."""
    entries = []
    for row, token_id in zip(logits.double().log_softmax(dim=-1), token_ids, strict=True):
        best = row.argsort(descending=True, stable=True)[:top]
        entries.append(TokenLogprobs(token_id, float(row[token_id]), tuple((int(i), float(row[i])) for i in best)))
    return entries


def assert_same_logprobs(found: Sequence[TokenLogprobs | None], expected: Sequence[TokenLogprobs]) -> None:
    """Same tokens in the same order, values to 1e-4."""
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine is not None
        assert (mine.token_id, [i for i, _ in mine.top]) == (theirs.token_id, [i for i, _ in theirs.top])
        values = [mine.logprob, *(value for _, value in mine.top)]
        assert values == pytest.approx([theirs.logprob, *(value for _, value in theirs.top)], abs=1e-4)


class Client:
    """One generation driven through a verifier: keeps the committed sequence and makes its blocks."""

    def __init__(
        self,
        name: str,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        logprobs: int | None = None,
        prompt_logprobs: bool = False,
        salt: bytes = b"",
    ) -> None:
        self.name, self.prompt, self.params = name, list(prompt), params
        self.logprobs, self.prompt_logprobs, self.salt = logprobs, prompt_logprobs, salt
        self.tokens = list(prompt)
        self.round = 0
        self.outcomes: list[Verified] = []

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.prompt) :]

    def opening(self) -> OpenGeneration:
        return OpenGeneration(
            self.name,
            tuple(self.prompt),
            self.params,
            tuple(self.output),
            logprobs=self.logprobs,
            prompt_logprobs=self.prompt_logprobs,
            cache_salt=self.salt,
        )

    def block(
        self,
        draft: Sequence[int] = (),
        *,
        bonus: bool = True,
        forced: Sequence[int] = (),
        parents: Sequence[int] | None = None,
        rule: AcceptanceRule | None = None,
        distribution: DraftDistribution = None,
        deferral: Deferral | None = None,
    ) -> Block:
        return Block(
            generation=self.name,
            round=self.round,
            position=len(self.tokens),
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, self.tokens),
            forced=tuple(forced),
            draft=tuple(draft),
            parents=None if parents is None else tuple(parents),
            distribution=distribution,
            rule=rule or (AcceptanceRule.GREEDY if self.params.greedy else AcceptanceRule.SHARED_NOISE),
            bonus=bonus,
            deferral=deferral,
        )

    def take(self, block: Block, outcome: Verified) -> None:
        after = [] if outcome.next_token is None else [outcome.next_token]
        self.tokens += [*block.forced, *accepted_by(block, outcome), *after]
        self.outcomes.append(outcome)
        self.round += 1


LogitsOf = Callable[[tuple[int, ...]], torch.Tensor]


def plain_logits_of(model: PreTrainedModel) -> LogitsOf:
    """``tokens -> [len(tokens), VOCAB]``: one plain forward pass each."""
    model.set_attn_implementation("eager")

    @torch.inference_mode()
    def logits_of(tokens: tuple[int, ...]) -> torch.Tensor:
        logits: torch.Tensor = model(input_ids=torch.tensor([tokens]), use_cache=False).logits
        return logits[0, :, :VOCAB]

    return logits_of


@functools.cache
def _tiny_logits_of() -> LogitsOf:
    return plain_logits_of(tiny_llama())


@functools.lru_cache(2048)
def tiny_logits(tokens: tuple[int, ...]) -> torch.Tensor:
    """``plain_logits_of`` of ``tiny_llama``, each pass made once: every engine of a process is held to it."""
    return _tiny_logits_of()(tokens)


def paths_of(block: Block) -> list[tuple[int, ...]]:
    """The tokens behind the prefix that each of a block's rows is conditioned on, in the order of its rows."""
    paths: list[tuple[int, ...]] = [()]
    for node, token_id in enumerate(block.draft):
        parent = node - 1 if block.parents is None else block.parents[node]
        paths.append((*paths[1 + parent], token_id))
    return paths[: rows_of(block)]


def plain_decision(logits_of: LogitsOf, client: Client, block: Block) -> BlockDecision:
    """What a block comes to by plain forward passes over its paths; ``client`` has not taken it yet."""
    context, params = (*client.tokens, *block.forced), client.params
    output = context[len(client.prompt) :]
    rows, choices = list[oracle.Row](), list[int]()
    for path, logits in _rows_behind(logits_of, context, paths_of(block)):
        adjusted = oracle.adjusted(logits.double().numpy(), params, client.prompt, (*output, *path))
        rows.append(oracle.probs(adjusted, params))
        choices.append(oracle.choice(adjusted, params, len(context) + len(path)))
    if block.rule in {AcceptanceRule.GREEDY, AcceptanceRule.SHARED_NOISE}:
        return oracle.matched(choices, block.draft, block.parents, bonus=block.bonus)
    ratio = RatioBlock(
        block.draft,
        block.parents,
        block.distribution,
        block.rule is AcceptanceRule.RATIO_DISTINCT,
        block.bonus,
        block.deferral,
        params.seed,
        len(context),
    )
    return oracle.ratio(ratio, rows, choices)


def _rows_behind(
    logits_of: LogitsOf, context: tuple[int, ...], paths: Sequence[tuple[int, ...]]
) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    """Each path and its last row ``[VOCAB]``: of one pass over the longest path that begins with it."""
    rows: dict[tuple[int, ...], torch.Tensor] = {}
    for path in sorted(paths, key=len, reverse=True):
        if path not in rows:
            for length, row in enumerate(logits_of((*context, *path))[len(context) - 1 :]):
                rows.setdefault(path[:length], row)
    return ((path, rows[path]) for path in paths)


def assert_decided(outcome: Verified, expected: BlockDecision, field: FloatField = FloatField.FP32) -> None:
    """Same decision; what a device draws from to 1e-5 or one step of ``field``."""
    assert (outcome.accepted_path, outcome.next_token) == (expected.path, expected.token_after)
    assert type(outcome.deferred) is type(expected.deferred)
    if outcome.deferred is not None and expected.deferred is not None:
        step = 2.0**-10 if field is FloatField.FP16 else 0.0
        mine, theirs = whole(outcome.deferred), whole(expected.deferred)
        assert np.array_equal(mine.token_ids, theirs.token_ids)  # type: ignore[arg-type]  # None for a whole row
        np.testing.assert_allclose(mine.probs, theirs.probs, rtol=step, atol=1e-5)


def whole(source: CorrectionSource) -> CorrectionSource:
    """The same with the whole row in place of a sparse one."""
    if not isinstance(source, TargetRow) or source.token_ids is None:
        return source
    probs = np.zeros(VOCAB, dtype=np.float32)
    probs[source.token_ids] = source.probs
    return TargetRow(None, probs)


def assert_plain_logprobs(
    found: Sequence[TokenLogprobs | None], logits_of: LogitsOf, tokens: Sequence[int], before: int, top: int
) -> None:
    """``found`` are those of ``tokens[before:]``."""
    logits = logits_of(tuple(tokens))[before - 1 : -1]
    assert_same_logprobs(found, expected_logprobs(logits, tokens[before:], top))


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
