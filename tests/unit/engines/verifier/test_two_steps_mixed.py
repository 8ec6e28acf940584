"""Any interleaving of semantic rounds, of their two steps and of greedy ones, with memory for about one generation."""

import random
from dataclasses import replace

import pytest

from outrider.contracts.exchanged import FloatRow
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import (
    AcceptanceRule,
    Block,
    BlockRefused,
    Resolution,
    Undecided,
    Unfinished,
    Verified,
)
from outrider.engines.verifier.engine import PagedVerifier
from tests.unit.engines.conftest import VOCAB, MakeVerifier, tiny_llama
from tests.unit.engines.reference import Client, assert_decided, assert_plain_logprobs, kept_row_bytes, tiny_logits
from tests.unit.engines.semantic_device import (
    FAILS,
    ThresholdJudge,
    draft_with,
    hidden_states,
    plain_mismatches,
    plain_semantic,
    resolution,
    semantic_block,
)

GREEDY = SamplingParams(temperature=0.0)


class Crowd:
    """Generations with little KV memory, each somewhere between its rounds; every outcome is checked as it comes."""

    def __init__(self, engine: PagedVerifier, rng: random.Random) -> None:
        self.engine, self.rng = engine, rng
        self.logits_of = tiny_logits
        self.clients: dict[str, Client] = {}
        self.begun: dict[str, Block] = {}  # not decided yet
        self.waiting: dict[str, Undecided] = {}  # of these, those the engine has asked about
        self.states: dict[str, FloatRow] = {}  # the device's, of the begun block
        self.resolved = self.abandoned = self.at_once = 0

    def open(self, name: str, prompt: list[int]) -> None:
        self.clients[name] = Client(name, prompt, GREEDY, logprobs=self.rng.choice([None, 1]))
        self.begun.pop(name, None)
        self.waiting.pop(name, None)
        self.engine.open(self.clients[name].opening())

    def step(self) -> None:
        """One call with a block, a resolution, both, or nothing of each generation."""
        blocks, resolutions = list[Block](), list[Resolution]()
        for name, client in self.clients.items():
            what = self.rng.randrange(8)
            if name in self.waiting and what < 4:
                resolutions.append(self._resolution(name, fits=what > 0))
            if name not in self.begun:
                blocks.append(self._new(client))
            elif what in (0, 4) or name not in self.waiting:
                blocks.append(self.begun[name])
            elif what == 5:
                self.abandoned += 1
                client.round += 1
                blocks.append(self._new(client))
        self.rng.shuffle(blocks)
        self._verify(blocks, resolutions)

    def _verify(self, blocks: list[Block], resolutions: list[Resolution]) -> None:
        outcomes = self.engine.verify(blocks, resolutions)
        for asked, outcome in zip(resolutions, outcomes[len(blocks) :], strict=True):
            assert asked.hidden is not None
            if len(asked.hidden) != len(self.waiting[asked.generation].mismatches):
                assert isinstance(outcome, BlockRefused)
            else:
                self.resolved += 1
                self._take(asked.generation, outcome)
        for block, outcome in zip(blocks, outcomes, strict=False):
            name = block.generation
            if isinstance(outcome, Undecided):
                assert outcome.mismatches == plain_mismatches(self.clients[name], block)
                self.waiting[name] = outcome
            elif not isinstance(outcome, Unfinished):
                self.at_once += 1
                self._take(name, outcome)

    def _new(self, client: Client) -> Block:
        """Semantic or greedy; now and then with forced tokens that take several chunks."""
        name, rng = client.name, self.rng
        forced = [rng.randrange(VOCAB) for _ in range(rng.choice([0, 0, 0, 1, 9]))]
        draft = draft_with(client, [rng.random() < 0.5 for _ in range(rng.randrange(4))], forced)
        self.states[name] = hidden_states(*(rng.uniform(-1.5, 1.5) for _ in draft))
        block = semantic_block(client, draft, bonus=rng.random() < 0.7 or not draft + forced, forced=forced)
        what = rng.randrange(5)
        if what == 0:
            block = replace(block, hidden=self.states[name])
        elif what == 1:
            block, self.states[name] = replace(block, rule=AcceptanceRule.GREEDY), hidden_states(*[FAILS] * len(draft))
        self.waiting.pop(name, None)
        self.begun[name] = block
        return block

    def _resolution(self, name: str, *, fits: bool) -> Resolution:
        at = list(self.waiting[name].mismatches)
        return resolution(self.begun[name], self.states[name][at] if fits else hidden_states(*at, 0.0))

    def _take(self, name: str, outcome: object) -> None:
        client, block = self.clients[name], self.begun.pop(name)
        self.waiting.pop(name, None)
        assert isinstance(outcome, Verified), outcome
        assert_decided(outcome, plain_semantic(client, block, self.states[name], None))
        before = len(client.tokens)
        client.take(block, outcome)
        if client.logprobs is not None:
            assert_plain_logprobs(outcome.logprobs, self.logits_of, client.tokens, before, 1)


@pytest.mark.parametrize("seed", range(3))
def test_any_interleaving_with_little_memory_commits_what_the_rule_says(make_verifier: MakeVerifier, seed: int) -> None:
    rng = random.Random(seed)
    most = 80 + make_verifier.block_tokens  # positions a generation may come to
    engine = make_verifier(
        tiny_llama(),
        blocks=make_verifier.blocks_of(most) + 1,
        prefill_chunk_tokens=max(8, make_verifier.block_tokens),
        judge=ThresholdJudge(),
    )
    crowd = Crowd(engine, rng)
    for _ in range(250):
        for name in "abc":
            grown = name in crowd.clients and len(crowd.clients[name].tokens) > 60
            if name not in crowd.clients or grown or rng.random() < 0.02:
                crowd.open(name, [rng.randrange(5) for _ in range(rng.randint(1, 45))])
        crowd.step()
    assert min(crowd.resolved, crowd.abandoned, crowd.at_once, engine.usage().evictions) > 2
    for name in "abc":
        engine.close(name, keep_cache=False)
    assert (engine.usage().used_blocks, kept_row_bytes(engine)) == (0, 0)
