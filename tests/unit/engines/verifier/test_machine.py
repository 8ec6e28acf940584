"""Any interleaving of a verifier's calls, with little memory: each outcome is the target's own, and nothing is left."""

import functools
from collections.abc import Sequence
from itertools import accumulate
from operator import mul

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from transformers import PreTrainedModel

from outrider.contracts.exchanged import Deferral, DraftDistribution, TargetRow
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import (
    AcceptanceRule,
    Block,
    BlockRefused,
    Outcome,
    Stale,
    Unfinished,
    Unknown,
    Verified,
)
from outrider.engines.verifier.engine import PagedVerifier
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.row_groups import RowGroup, TokenCounts
from tests.unit.engines.conftest import (
    BLOCK_TOKENS,
    ON_VLLM,
    VOCAB,
    branched_verifier,
    tiny_llama,
    torch_verifier,
    vllm_verifier,
)
from tests.unit.engines.fake_device import FakeDevice
from tests.unit.engines.reference import (
    Client,
    assert_decided,
    assert_same_logprobs,
    expected_logprobs,
    kept_row_bytes,
    plain_decision,
    tiny_alone,
    verify_until_done,
    whole,
)
from tests.unit.engines.vllm_models import VLLM_BLOCK_TOKENS

BLOCKS = 20
CHUNK = 6
MOST_PASSES = 150
NAMES = ("a", "b", "c", "d")
PARAMS = (
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.8, top_p=0.9, seed=5),
    SamplingParams(temperature=1.0, seed=6, repetition_penalty=1.3, frequency_penalty=0.4),
)
EXPANSIONS = ((2, 2), (3,), (1, 2, 1))
DEFERRALS = (Deferral(), Deferral(candidates=3))
# Few different sequences, so that generations share cached blocks and forced tokens begin alike.
TEXTS = ([5, 17, 42, 8, 61, 30, 2] * 10, [5, 17, 42, 8, 61, 9, 9, 4] * 10, [77] * 70)


@functools.cache
def exact_model() -> PreTrainedModel:
    """The target in float64: a near-tie between two tokens is then no matter of the order of additions."""
    return tiny_llama().double()


@functools.cache
def reference_model() -> PreTrainedModel:
    """The same target, computed by transformers alone."""
    model = tiny_llama().double()
    model.set_attn_implementation("eager")
    return model


@functools.cache
@torch.inference_mode()
def target_logits(token_ids: tuple[int, ...]) -> torch.Tensor:
    """``[len(token_ids), VOCAB]``: one plain forward pass."""
    logits: torch.Tensor = reference_model()(input_ids=torch.tensor([token_ids]), use_cache=False).logits
    return logits[0, :, :VOCAB]


def target_choices(client: Client, block: Block, draft: Sequence[int], rows: int) -> list[int]:
    """What the target chooses behind the forced tokens and each token of ``draft``."""
    context = [*client.tokens, *block.forced]
    logits = target_logits((*context, *draft))[len(context) - 1 :][:rows]
    counts = TokenCounts(VOCAB, client.prompt, context[len(client.prompt) :])
    chosen: list[int] = choose_tokens(
        logits, [RowGroup(client.params, len(context), counts, tuple(draft), rows)]
    ).tolist()
    return chosen


def check_logprobs(client: Client, block: Block, outcome: Verified, *, first: bool) -> None:
    """What was asked for, of the target's raw distribution; nothing else. ``client`` has not taken the block yet."""
    after = [] if outcome.next_token is None else [outcome.next_token]
    tokens = [*block.forced, *(block.draft[node] for node in outcome.accepted_path), *after]
    if client.logprobs is None:
        assert outcome.logprobs == ()
    else:
        logits = target_logits((*client.tokens, *tokens))[len(client.tokens) - 1 :][: len(tokens)]
        assert_same_logprobs(outcome.logprobs, expected_logprobs(logits, tokens, client.logprobs))
    if client.prompt_logprobs and first:
        assert outcome.prompt_logprobs[0] is None
        expected = expected_logprobs(target_logits(tuple(client.prompt))[:-1], client.prompt[1:], client.logprobs or 0)
        assert_same_logprobs(outcome.prompt_logprobs[1:], expected)
        assert outcome.cached_tokens == 0 or len(client.prompt) == 1
    else:
        assert outcome.prompt_logprobs == ()


class VerifierMachine(RuleBasedStateMachine):
    """Opens, submits, submits again, repeats, replaces and closes; up to four generations over memory for about two."""

    capacity = BLOCKS * BLOCK_TOKENS  # positions of the longest sequence
    most_nodes: int = max(sum(accumulate(expansion, mul)) for expansion in EXPANSIONS)

    def __init__(self) -> None:
        super().__init__()
        self.engine = self.make_engine()
        self.clients: dict[str, Client] = {}
        self.unfinished: dict[str, Block] = {}
        self.decided: dict[str, tuple[Block, Verified]] = {}
        self.spoken: list[list[int]] = []  # sequences that were committed, now or before
        self.devices: dict[str, FakeDevice] = {}  # what drew a chain that ended in a deferred correction
        self.deferred: dict[str, tuple[Verified, FakeDevice]] = {}
        self.rejected_at: dict[str, int] = {}

    def make_engine(self) -> PagedVerifier:
        return torch_verifier(exact_model(), blocks=BLOCKS, prefill_chunk_tokens=CHUNK)

    def tree_fits(self, room: int) -> bool:
        """Whether any tree may stand behind a sequence that leaves ``room`` positions."""
        return room >= self.most_nodes

    @rule(
        name=st.sampled_from(NAMES),
        text=st.sampled_from(range(len(TEXTS))),
        prompt_tokens=st.one_of(st.integers(1, 50), st.integers(25, 50)),
        output_tokens=st.integers(0, 6),
        params=st.sampled_from(PARAMS),
        logprobs=st.sampled_from([None, 0, 3]),
        prompt_logprobs=st.booleans(),
    )
    def open(
        self,
        name: str,
        text: int,
        prompt_tokens: int,
        output_tokens: int,
        params: SamplingParams,
        logprobs: int | None,
        *,
        prompt_logprobs: bool,
    ) -> None:
        """A new generation, or a resumed one; it replaces one of the same name, in whatever state that is."""
        self._forget(name)
        tokens = TEXTS[text]
        client = Client(name, tokens[:prompt_tokens], params, logprobs=logprobs, prompt_logprobs=prompt_logprobs)
        client.tokens += tokens[prompt_tokens : prompt_tokens + output_tokens]
        self.engine.open(client.opening())
        self.clients[name] = client

    @precondition(lambda self: self.spoken)
    @rule(data=st.data(), name=st.sampled_from(NAMES), params=st.sampled_from(PARAMS))
    def open_next_turn(self, data: st.DataObject, name: str, params: SamplingParams) -> None:
        """A prompt that another generation has committed: what is cached of it must be its KV."""
        tokens = data.draw(st.sampled_from(self.spoken))
        self._forget(name)
        self.clients[name] = Client(name, tokens, params)
        self.engine.open(self.clients[name].opening())

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), batches=st.integers(1, 8))
    def submit(self, data: st.DataObject, batches: int) -> None:
        """Batches of some generations each, in any order."""
        for _ in range(batches):
            if not self.clients:
                return
            order = data.draw(st.permutations(sorted(self.clients)))
            names = order[: data.draw(st.integers(1, len(order)))]
            self._verify([self._next_block(data, name) for name in names])

    @precondition(lambda self: self.decided)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """The last round again is answered from memory, an older one is stale."""
        block, outcome = self.decided[data.draw(st.sampled_from(sorted(self.decided)))]
        assert self.engine.verify([block]) == [outcome]
        older = Block(block.generation, block.round - 1, block.position, block.prefix_hash, rule=block.rule)
        assert self.engine.verify([older]) == [Stale(block.generation, block.round - 1)]

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), keep_cache=st.booleans())
    def close(self, data: st.DataObject, *, keep_cache: bool) -> None:
        """Finished or cancelled, in any state; what comes later is unknown."""
        name = data.draw(st.sampled_from(sorted(self.clients)))
        block = self.clients[name].block()
        self.engine.close(name, keep_cache=keep_cache)
        self._forget(name)
        assert self.engine.verify([block]) == [Unknown(name, block.round)]

    @invariant()
    def memory_is_held_by_open_generations_only(self) -> None:
        usage = self.engine.usage()
        assert usage.generations == len(self.clients)
        assert usage.used_blocks + usage.cached_blocks <= usage.total_blocks
        assert bool(kept_row_bytes(self.engine)) <= bool(self.deferred)
        if not self.clients:
            assert usage.used_blocks == 0

    def teardown(self) -> None:
        """Whatever was begun can be brought to its end, and then nothing is held."""
        for _ in range(MOST_PASSES):
            if not self.unfinished:
                break
            self._verify(list(self.unfinished.values()))
        assert not self.unfinished, f"not decided after {MOST_PASSES} passes"
        for name in self.clients:
            self.engine.close(name, keep_cache=True)
        usage = self.engine.usage()
        assert (usage.used_blocks, usage.generations) == (0, 0)

    def _next_block(self, data: st.DataObject, name: str) -> Block:
        """The unfinished one again or, now and then, another round in its place; a new one if there is none."""
        client, block = self.clients[name], self.unfinished.get(name)
        if block is None:
            return self._new_block(data, client)
        if data.draw(st.integers(0, 5)) > 0:
            return block
        client.round += 1
        return self._new_block(data, client)

    def _new_block(self, data: st.DataObject, client: Client) -> Block:
        """A chain or a tree by any rule that fits; the device's correction first, if it owes one."""
        forced: list[int] = []
        if client.name in self.deferred:
            what = data.draw(st.integers(0, 5))
            if what == 0:
                return client.block(bonus=False, rule=AcceptanceRule.RATIO, deferral=DEFERRALS[0])
            # A correction that never came leaves the next token to the target.
            forced = [] if what == 1 else [self._correction(data, client)]
        text = TEXTS[data.draw(st.sampled_from(range(len(TEXTS))))]
        # Long ones span several chunks.
        lengths: st.SearchStrategy[int] = st.one_of(st.just(0), st.just(0), st.integers(1, 25))
        room = self.capacity - len(client.tokens) - len(forced) - 1
        forced += text[: max(0, min(room, data.draw(lengths)))]
        room = self.capacity - len(client.tokens) - len(forced) - 1
        if not client.params.greedy and data.draw(st.booleans()):
            return self._ratio_block(data, client, forced, room)
        if self.tree_fits(room) and data.draw(st.booleans()):
            return self._matched_tree(data, client, forced)
        bare = client.block(forced=forced)
        draft: list[int] = []
        right = data.draw(st.integers(0, 5))
        for _ in range(min(right, room)):
            draft.append(target_choices(client, bare, draft, len(draft) + 1)[-1])
        wrong = data.draw(st.booleans())
        if draft and wrong:
            at = data.draw(st.integers(0, len(draft) - 1))
            draft[at] = (draft[at] + 1) % VOCAB
        return client.block(draft, bonus=data.draw(st.integers(0, 3)) > 0, forced=forced)

    def _correction(self, data: st.DataObject, client: Client) -> int:
        """What the device draws; now and then a token whose probability is 0."""
        outcome, device = self.deferred[client.name]
        source, position = outcome.deferred, len(client.tokens)
        assert source is not None
        if isinstance(source, TargetRow) and source.token_ids is not None and data.draw(st.integers(0, 3)) == 0:
            return next(token_id for token_id in range(VOCAB) if token_id not in source.token_ids)
        drawn = device.correct(source, self.rejected_at[client.name], position)
        return int(source.probs.argmax()) if drawn is None else drawn

    def _ratio_block(self, data: st.DataObject, client: Client, forced: Sequence[int], room: int) -> Block:
        device = FakeDevice(target_logits, client.params.seed)
        before, bonus = [*client.tokens, *forced], data.draw(st.integers(0, 3)) > 0
        if self.tree_fits(room) and data.draw(st.booleans()):
            rule = data.draw(st.sampled_from([AcceptanceRule.RATIO, AcceptanceRule.RATIO_DISTINCT]))
            distinct = rule is AcceptanceRule.RATIO_DISTINCT
            tree = device.tree(before, data.draw(st.sampled_from(EXPANSIONS)), distinct=distinct)
            return client.block(
                tree.draft, bonus=bonus, forced=forced, parents=tree.parents, rule=rule, distribution=tree.distribution
            )
        draft = device.chain(before, min(room, data.draw(st.integers(1, 4))))
        deferral = data.draw(st.sampled_from([None, *DEFERRALS]))
        sent: DraftDistribution = None
        if draft:
            known = device.dense() if data.draw(st.booleans()) else device.sparse()
            sent = known if deferral is None else device.scalars(draft)
        else:
            deferral = None  # the device has no row of its own to correct with
        self.devices[client.name] = device
        return client.block(
            draft, bonus=bonus, forced=forced, rule=AcceptanceRule.RATIO, distribution=sent, deferral=deferral
        )

    def _matched_tree(self, data: st.DataObject, client: Client, forced: Sequence[int]) -> Block:
        """A tree around the target's own choices; perhaps without them."""
        tree = FakeDevice(target_logits, 3).tree(
            [*client.tokens, *forced], data.draw(st.sampled_from(EXPANSIONS)), distinct=True
        )
        draft, bare = list(tree.draft), client.block(forced=forced)
        if data.draw(st.booleans()):
            path: list[int] = []
            while children := [node for node, p in enumerate(tree.parents) if p == (path[-1] if path else -1)]:
                chosen = target_choices(client, bare, [draft[node] for node in path], len(path) + 1)[-1]
                path.append(data.draw(st.sampled_from(children)))
                draft[path[-1]] = chosen
        return client.block(
            draft, bonus=data.draw(st.integers(0, 3)) > 0, forced=forced, parents=tree.parents, distribution=None
        )

    def _verify(self, blocks: Sequence[Block]) -> None:
        for block, outcome in zip(blocks, self.engine.verify(blocks), strict=True):
            self._check(block, outcome)

    def _check(self, block: Block, outcome: Outcome) -> None:
        name, client = block.generation, self.clients[block.generation]
        if isinstance(outcome, Unfinished):
            assert outcome.remaining_tokens > 0
            self.unfinished[name] = block
            return
        if isinstance(outcome, BlockRefused):
            self._check_refusal(client, block, outcome)
            return
        assert isinstance(outcome, Verified), outcome
        expected = plain_decision(target_logits, client, block)
        assert_decided(outcome, expected)
        check_logprobs(client, block, outcome, first=not client.outcomes)
        client.take(block, outcome)
        self.unfinished.pop(name, None)
        self.decided[name] = (block, outcome)
        self._note_deferral(block, outcome)
        if len(client.tokens) < self.capacity:
            self.spoken.append(list(client.tokens))
        else:
            self.engine.close(name, keep_cache=True)
            self._forget(name)

    def _check_refusal(self, client: Client, block: Block, outcome: BlockRefused) -> None:
        """Only impossible corrections are refused, and never committed."""
        assert "whose probability there is 0" in outcome.reason
        row = client.block(bonus=False, rule=AcceptanceRule.RATIO, deferral=DEFERRALS[0])
        source = plain_decision(target_logits, client, row).deferred
        assert isinstance(source, TargetRow)
        assert whole(source).probs[block.forced[0]] == 0.0
        self.unfinished.pop(client.name, None)

    def _note_deferral(self, block: Block, outcome: Verified) -> None:
        name, committed = (
            block.generation,
            bool(block.forced or outcome.accepted_path or outcome.next_token is not None),
        )
        if outcome.deferred is None:
            if committed:
                self.deferred.pop(name, None)
        elif name in self.deferred and not block.draft and not block.forced:
            self.deferred[name] = (outcome, self.deferred[name][1])  # the row was asked for again
        else:
            self.deferred[name] = (outcome, self.devices[name])
            self.rejected_at[name] = outcome.accepted_len

    def _forget(self, name: str) -> None:
        self.deferred.pop(name, None)
        self.clients.pop(name, None)
        self.unfinished.pop(name, None)
        self.decided.pop(name, None)


class BranchedVerifierMachine(VerifierMachine):
    """The same over a model that takes trees path by path; each of up to four paths has up to two blocks of its own."""

    def make_engine(self) -> PagedVerifier:
        return branched_verifier(exact_model(), blocks=BLOCKS, prefill_chunk_tokens=CHUNK)

    def tree_fits(self, room: int) -> bool:
        return room >= 8 * BLOCK_TOKENS


class VllmVerifierMachine(VerifierMachine):
    """The same over vLLM, in float32. A sequence takes up to three of five blocks, other paths of its tree the rest."""

    blocks = 5

    def make_engine(self) -> PagedVerifier:
        return vllm_verifier(tiny_llama(), blocks=self.blocks, prefill_chunk_tokens=2 * CHUNK)

    def tree_fits(self, room: int) -> bool:
        if room < self.most_nodes:
            return False
        before = self.capacity - 1 - room
        after = -(-(before + max(map(len, EXPANSIONS))) // VLLM_BLOCK_TOKENS)
        return after + 3 * (after - before // VLLM_BLOCK_TOKENS) <= self.blocks


TestVerifierMachine = VerifierMachine.TestCase
TestVerifierMachine.settings = settings(max_examples=60, stateful_step_count=25)
TestBranchedVerifierMachine = BranchedVerifierMachine.TestCase
TestBranchedVerifierMachine.settings = TestVerifierMachine.settings
TestVllmVerifierMachine = ON_VLLM(VllmVerifierMachine.TestCase)
TestVllmVerifierMachine.settings = TestVerifierMachine.settings


@pytest.mark.parametrize("common", [0, 3, 20])
@pytest.mark.parametrize("passes", [1, 3])
def test_a_round_that_replaces_one_in_the_middle_of_its_forced_tokens(common: int, passes: int) -> None:
    """What was computed for the first round's forced tokens is not taken for the second's."""
    engine = torch_verifier(tiny_llama(), prefill_chunk_tokens=8)
    client = Client("a", TEXTS[0][:7], PARAMS[0])
    engine.open(client.opening())
    first = client.block(forced=TEXTS[2][:30])
    for _ in range(passes):
        assert isinstance(engine.verify([first])[0], Unfinished)
    client.round += 1
    forced = [*TEXTS[2][:common], *TEXTS[1][: 30 - common]]
    second = client.block(forced=forced)
    client.take(second, verify_until_done(engine, [second])[0])
    assert client.output == [*forced, *tiny_alone([*client.prompt, *forced], PARAMS[0], 1)]
    third = client.block([1, 2])
    client.take(third, verify_until_done(engine, [third])[0])
    rest = client.output[len(forced) :]
    assert rest == tiny_alone([*client.prompt, *forced], PARAMS[0], len(rest))


def test_a_shorter_round_may_replace_one_whose_forced_tokens_were_begun() -> None:
    engine = torch_verifier(tiny_llama(), prefill_chunk_tokens=8)
    client = Client("a", TEXTS[0][:7], PARAMS[1])
    engine.open(client.opening())
    for _ in range(3):
        assert isinstance(engine.verify([client.block(forced=TEXTS[2][:30])])[0], Unfinished)
    client.round += 1
    block = client.block([1])
    client.take(block, verify_until_done(engine, [block])[0])
    assert client.output == tiny_alone(client.prompt, PARAMS[1], len(client.output))
