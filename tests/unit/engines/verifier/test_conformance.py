"""What every verifier engine must do, whatever holds the model. Runs once per engine in ``conftest.VERIFIERS``."""

import random

import numpy as np
import pytest

from outrider.contracts.cost import VerifyCost
from outrider.contracts.errors import ContextTooLongError, ParameterError, UnsupportedBlockError
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import (
    AcceptanceRule,
    Block,
    BlockRefused,
    Resolution,
    Stale,
    Unfinished,
    Unknown,
    Verified,
)
from tests.unit.engines.conftest import VOCAB, MakeVerifier, tiny_llama
from tests.unit.engines.reference import Client, alone, generate, mixed_draft, verify_until_done

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.8, top_p=0.9, seed=5)
PENALISED = SamplingParams(
    temperature=1.0, seed=6, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4, logit_bias=((3, 4.0),)
)
PARAMS = {"greedy": GREEDY, "sampled": SAMPLED, "penalised": PENALISED}
PROMPT = [5, 17, 42, 8, 61, 30, 2]


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("window", [0, 1, 4, 16])
def test_output_equals_the_target_alone_for_every_window(
    make_exact_verifier: MakeVerifier, params: SamplingParams, window: int
) -> None:
    truth = alone(make_exact_verifier, PROMPT, params, 40)
    client, rng = Client("a", PROMPT, params), random.Random(window)
    engine = make_exact_verifier(tiny_llama())
    generate(engine, [client], lambda c: mixed_draft(truth[len(c.output) :], window, rng), 24)
    assert client.output == truth[: len(client.output)]


def test_perfect_drafts_are_accepted_whole(make_exact_verifier: MakeVerifier) -> None:
    truth = alone(make_exact_verifier, PROMPT, SAMPLED, 12)
    client = Client("a", PROMPT, SAMPLED)
    generate(make_exact_verifier(tiny_llama()), [client], lambda c: truth[len(c.output) :][:5], 12)
    assert [o.accepted_len for o in client.outcomes] == [5, 5]
    assert client.output == truth


def test_company_does_not_change_an_output(make_exact_verifier: MakeVerifier) -> None:
    """Different prefixes, windows, rules and penalties share every batch; one joins while others are warm."""
    rng = random.Random(1)
    clients = [
        Client(f"c{i}", [rng.randrange(VOCAB) for _ in range(rng.randint(1, 50))], params)
        for i, params in enumerate([*PARAMS.values()] * 3)
    ]
    truths = {c.name: alone(make_exact_verifier, c.prompt, c.params, 40) for c in clients}
    generate(
        make_exact_verifier(tiny_llama()),
        clients,
        lambda c: mixed_draft(truths[c.name][len(c.output) :], rng.randint(0, 8), rng),
        16,
    )
    for client in clients:
        assert client.output == truths[client.name][: len(client.output)]


def test_a_long_prompt_is_computed_in_chunks_and_stalls_nobody(make_exact_verifier: MakeVerifier) -> None:
    engine = make_exact_verifier(tiny_llama(), prefill_chunk_tokens=16)
    warm, cold = Client("warm", PROMPT, GREEDY), Client("cold", [7] * 100, GREEDY)
    engine.open(warm.opening())
    first = warm.block()
    warm.take(first, verify_until_done(engine, [first])[0])
    engine.open(cold.opening())
    passes, cold_block = 0, cold.block()
    while True:
        block = warm.block([1, 2])
        warm_outcome, cold_outcome = engine.verify([block, cold_block])
        assert isinstance(warm_outcome, Verified), "the warm generation gets on in every pass"
        warm.take(block, warm_outcome)
        passes += 1
        if isinstance(cold_outcome, Verified):
            break
        assert isinstance(cold_outcome, Unfinished)
        assert cold_outcome.remaining_tokens == 100 - 16 * passes
    assert passes == 7  # 99 prefix positions in chunks of 16, the last with the block's own row
    assert [cold_outcome.next_token] == alone(make_exact_verifier, cold.prompt, GREEDY, 1)
    assert warm.output == alone(make_exact_verifier, PROMPT, GREEDY, len(warm.output))


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
def test_eviction_is_invisible(make_exact_verifier: MakeVerifier, params: SamplingParams) -> None:
    """KV for one or two of five generations: each is evicted and restored again and again."""
    engine = make_exact_verifier(tiny_llama(), blocks=make_exact_verifier.blocks_of(96))
    rng = random.Random(2)
    clients = [Client(f"c{i}", [rng.randrange(VOCAB) for _ in range(30)], params) for i in range(5)]
    truths = {c.name: alone(make_exact_verifier, c.prompt, params, 30) for c in clients}
    generate(engine, clients, lambda c: mixed_draft(truths[c.name][len(c.output) :], 3, rng), 12)
    assert engine.usage().evictions > 0
    for client in clients:
        assert client.output == truths[client.name][: len(client.output)]


def test_forced_tokens_are_committed_before_the_draft(make_exact_verifier: MakeVerifier) -> None:
    for params in PARAMS.values():
        engine, client = make_exact_verifier(tiny_llama()), Client("a", PROMPT, params)
        engine.open(client.opening())
        first = client.block()
        client.take(first, verify_until_done(engine, [first])[0])
        forced = (9, 77)
        # Forced tokens are output: what the target says after them is what it says after this output.
        resumed = Client("b", PROMPT, params)
        resumed.tokens = [*client.tokens, *forced]
        engine.open(resumed.opening())
        expected = verify_until_done(engine, [resumed.block()])[0].next_token
        block = client.block([expected or 0], forced=forced)
        outcome = verify_until_done(engine, [block])[0]
        assert outcome.accepted_len == 1
        client.take(block, outcome)
        assert client.tokens[: len(resumed.tokens)] == resumed.tokens


def test_a_bonus_token_that_is_not_wanted_is_not_drawn(make_exact_verifier: MakeVerifier) -> None:
    truth = alone(make_exact_verifier, PROMPT, SAMPLED, 16)
    engine, client = make_exact_verifier(tiny_llama()), Client("a", PROMPT, SAMPLED)
    engine.open(client.opening())
    for draft, bonus, expected in (
        ([], False, []),
        (truth[:3], False, truth[:3]),
        (truth[3:7], False, truth[3:7]),
        (truth[7:9], True, truth[7:10]),
        ([*truth[10:12], (truth[12] + 1) % VOCAB], False, truth[10:13]),
    ):
        before = len(client.output)
        block = client.block(draft, bonus=bonus)
        client.take(block, verify_until_done(engine, [block])[0])
        assert client.output[before:] == expected


def test_prompt_and_output_stay_distinct_after_a_resume(make_exact_verifier: MakeVerifier) -> None:
    """Presence and frequency penalties count output only; a resumed generation must not count it as prompt."""
    truth = alone(make_exact_verifier, PROMPT, PENALISED, 24)
    engine, client = make_exact_verifier(tiny_llama()), Client("a", PROMPT, PENALISED)
    client.tokens += truth[:10]
    generate(engine, [client], lambda c: truth[len(c.output) :][:2], 20)
    assert client.output == truth[: len(client.output)]


def test_a_repeated_round_is_answered_from_memory(make_exact_verifier: MakeVerifier) -> None:
    engine, client = make_exact_verifier(tiny_llama()), Client("a", PROMPT, SAMPLED)
    engine.open(client.opening())
    first = client.block()
    outcome = verify_until_done(engine, [first])[0]
    client.take(first, outcome)
    assert engine.verify([first]) == [outcome]
    second = client.block([1, 2, 3])
    client.take(second, verify_until_done(engine, [second])[0])
    assert engine.verify([first]) == [Stale("a", 0)]
    third = client.block()
    client.take(third, verify_until_done(engine, [third])[0])
    assert client.output == alone(make_exact_verifier, PROMPT, SAMPLED, len(client.output))


def test_blocks_that_assume_another_prefix_are_stale(make_exact_verifier: MakeVerifier) -> None:
    engine, client = make_exact_verifier(tiny_llama()), Client("a", PROMPT, GREEDY)
    engine.open(client.opening())
    first = client.block()
    client.take(first, verify_until_done(engine, [first])[0])
    other = Client("a", [*PROMPT[:-1], 3], GREEDY)
    other.tokens += client.output
    other.round = 1
    longer = Client("a", PROMPT, GREEDY)
    longer.tokens += [*client.output, 4]
    longer.round = 1
    assert engine.verify([other.block([1])]) == [Stale("a", 1)]
    assert engine.verify([longer.block([1])]) == [Stale("a", 1)]


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
def test_a_round_sent_ahead_holds_only_if_the_one_before_was_accepted_whole(
    make_exact_verifier: MakeVerifier, params: SamplingParams
) -> None:
    """Two rounds of one generation are under way; the second assumes all of the first, which draws no bonus token."""
    truth = alone(make_exact_verifier, PROMPT, params, 24)
    engine, client = make_exact_verifier(tiny_llama()), Client("a", PROMPT, params)
    engine.open(client.opening())
    opening = client.block()
    client.take(opening, verify_until_done(engine, [opening])[0])
    for right in (True, False, True):
        at = len(client.output)
        draft = [*truth[at : at + 2], truth[at + 2] if right else (truth[at + 2] + 1) % VOCAB]
        first = client.block(draft, bonus=False)
        ahead = Client("a", PROMPT, params)
        ahead.tokens, ahead.round = [*client.tokens, *draft], client.round + 1
        second = ahead.block(truth[at + 3 : at + 5])
        client.take(first, verify_until_done(engine, [first])[0])
        outcome = engine.verify([second])[0]
        if right:
            assert isinstance(outcome, Verified)
            assert outcome.accepted_len == 2
            client.take(second, outcome)
        else:
            assert outcome == Stale("a", second.round)
        assert client.output == truth[: len(client.output)]


def test_unknown_generations_and_resolutions_harm_nobody(make_exact_verifier: MakeVerifier) -> None:
    engine, client, ghost = (
        make_exact_verifier(tiny_llama()),
        Client("a", PROMPT, GREEDY),
        Client("ghost", PROMPT, GREEDY),
    )
    engine.open(client.opening())
    outcomes = engine.verify([ghost.block(), client.block()], [Resolution("ghost", 4, np.zeros((1, 48), np.float32))])
    assert outcomes[0] == Unknown("ghost", 0)
    assert isinstance(outcomes[1], Verified)
    assert outcomes[2] == Unknown("ghost", 4)


def test_blocks_that_can_never_be_verified_are_refused_alone(make_exact_verifier: MakeVerifier) -> None:
    engine = make_exact_verifier(tiny_llama())
    clients = [Client(name, PROMPT, GREEDY) for name in ("outside", "long", "good")]
    for client in clients:
        engine.open(client.opening())
    outcomes = engine.verify([clients[0].block([VOCAB]), clients[1].block([1] * 250), clients[2].block([1])])
    assert isinstance(outcomes[0], BlockRefused)
    assert f"0..{VOCAB - 1}, found {VOCAB}" in outcomes[0].reason
    assert isinstance(outcomes[1], BlockRefused)
    assert "limit of 256" in outcomes[1].reason
    assert isinstance(outcomes[2], Verified)


def test_prefixes_are_shared_within_a_salt_alone(make_exact_verifier: MakeVerifier) -> None:
    engine, shared = make_exact_verifier(tiny_llama()), 2 * make_exact_verifier.block_tokens
    system = [(11 * i) % VOCAB for i in range(shared + 1)]
    clients = [Client(f"{i}", [*system, i], GREEDY, salt=salt) for i, salt in enumerate((b"a", b"b", b"", b"a"))]
    for client in clients:
        generate(engine, [client], lambda _: [], 1)
    assert [client.outcomes[0].cached_tokens for client in clients] == [0, 0, 0, shared]
    assert clients[3].output == alone(make_exact_verifier, clients[3].prompt, GREEDY, 1)


def test_prefixes_are_shared_between_generations(make_exact_verifier: MakeVerifier) -> None:
    engine, shared = make_exact_verifier(tiny_llama()), 2 * make_exact_verifier.block_tokens
    system = [(11 * i) % VOCAB for i in range(shared + 1)]
    first, second = Client("a", [*system, 1], GREEDY), Client("b", [*system, 2], SAMPLED)
    for client in (first, second):
        generate(engine, [client], lambda _: [], 1)
    assert first.outcomes[0].cached_tokens == 0
    assert second.outcomes[0].cached_tokens == shared, "the two full blocks the prompts have in common"
    assert second.output == alone(make_exact_verifier, second.prompt, SAMPLED, 1)


def test_a_conversations_next_turn_finds_the_kv_of_its_last(make_exact_verifier: MakeVerifier) -> None:
    engine, turn = make_exact_verifier(tiny_llama()), Client("turn-1", PROMPT, GREEDY)
    generate(engine, [turn], lambda _: [1, 2], max(20, 2 * make_exact_verifier.block_tokens))
    engine.close("turn-1", keep_cache=True)
    later = Client("turn-2", [*turn.tokens, 4, 4], GREEDY)
    generate(engine, [later], lambda _: [], 4)
    assert later.outcomes[0].cached_tokens >= len(turn.tokens) - 1 - make_exact_verifier.block_tokens
    assert later.outcomes[0].cached_tokens > len(PROMPT)
    assert later.output == alone(make_exact_verifier, later.prompt, GREEDY, len(later.output))


@pytest.mark.parametrize("keep_cache", [True, False])
def test_closing_gives_every_block_back(make_exact_verifier: MakeVerifier, *, keep_cache: bool) -> None:
    """In every state: not yet computed, in the middle of its prefix, between rounds."""
    engine = make_exact_verifier(tiny_llama(), prefill_chunk_tokens=max(16, make_exact_verifier.block_tokens))
    clients = [Client("new", PROMPT, GREEDY), Client("cold", [3] * 90, GREEDY), Client("warm", PROMPT, SAMPLED)]
    for client in clients:
        engine.open(client.opening())
    assert isinstance(engine.verify([clients[1].block()])[0], Unfinished)
    verify_until_done(engine, [clients[2].block()])
    assert engine.usage().used_blocks > 0
    for client in clients:
        engine.close(client.name, keep_cache=keep_cache)
        engine.close(client.name, keep_cache=keep_cache)
    usage = engine.usage()
    assert (usage.used_blocks, usage.generations) == (0, 0)
    assert (usage.cached_blocks > 0) is keep_cache


def test_opening_again_replaces_the_generation(make_exact_verifier: MakeVerifier) -> None:
    engine, client = make_exact_verifier(tiny_llama()), Client("a", PROMPT, GREEDY)
    generate(engine, [client], lambda _: [], 3)
    again = Client("a", PROMPT, SAMPLED)
    generate(engine, [again], lambda _: [], 3)
    assert again.output == alone(make_exact_verifier, PROMPT, SAMPLED, 3)
    assert engine.usage().generations == 1


def test_prompts_that_can_never_fit_are_refused_when_opened(make_exact_verifier: MakeVerifier) -> None:
    small, limit = make_exact_verifier(tiny_llama(), blocks=5), 5 * make_exact_verifier.block_tokens
    with pytest.raises(ContextTooLongError, match=rf"needs {limit + 1} positions .* limit of {limit} "):
        small.open(Client("a", [1] * limit, GREEDY).opening())
    with pytest.raises(ContextTooLongError, match="limit of 256"):
        make_exact_verifier(tiny_llama()).open(Client("a", [1] * 256, GREEDY).opening())
    with pytest.raises(ParameterError, match=rf"0\.\.{VOCAB - 1}"):
        small.open(Client("a", [VOCAB], GREEDY).opening())
    with pytest.raises(ParameterError, match="at least one token"):
        small.open(Client("a", [], GREEDY).opening())
    assert small.usage().generations == 0


def test_what_the_engine_cannot_do_is_refused_before_anything_runs(make_exact_verifier: MakeVerifier) -> None:
    engine, client = make_exact_verifier(tiny_llama()), Client("a", PROMPT, SAMPLED)
    engine.open(client.opening())
    good = client.block()
    lossy = Block("a", 0, good.position, good.prefix_hash, draft=(1,), rule=AcceptanceRule.GREEDY)
    with pytest.raises(UnsupportedBlockError, match="greedy rule for a sampled generation"):
        engine.verify([lossy])
    assert engine.usage().used_blocks == 0
    with pytest.raises(ValueError, match="at most one block per generation"):
        engine.verify([good, good])
    assert isinstance(engine.verify([good])[0], Verified)


def test_forced_tokens_of_an_abandoned_block_leave_no_trace(make_exact_verifier: MakeVerifier) -> None:
    """A round given up in the middle of its forced tokens must not lend its KV to the next one."""
    engine, client = make_exact_verifier(tiny_llama(), prefill_chunk_tokens=4), Client("a", PROMPT, GREEDY)
    engine.open(client.opening())
    first = client.block()
    client.take(first, verify_until_done(engine, [first])[0])
    assert isinstance(engine.verify([client.block(forced=[9] * 12)])[0], Unfinished)
    client.round += 1
    other = [3] * 12
    outcome = verify_until_done(engine, [client.block(forced=other)])[0]
    assert [outcome.next_token] == alone(make_exact_verifier, [*client.tokens, *other], GREEDY, 1)


def test_a_pass_tells_what_it_computed_of_each_block(make_exact_verifier: MakeVerifier) -> None:
    """Not what its blocks lacked: a chunk is shared, a cached prefix is only read, what is repeated costs nothing."""
    engine = make_exact_verifier(tiny_llama(), prefill_chunk_tokens=16)
    assert engine.last_pass() == ()
    rng = random.Random(2)
    first, second = (Client(name, [rng.randrange(VOCAB) for _ in range(39)], GREEDY) for name in "ab")
    for client in (first, second):
        engine.open(client.opening())
    blocks = [first.block([1, 2]), second.block()]
    passes = []
    outcomes = engine.verify(blocks)
    while not isinstance(outcomes[0], Verified):
        passes.append(engine.last_pass())
        outcomes = engine.verify(blocks)
    assert passes == [(VerifyCost(16, 0),), (VerifyCost(16, 16),)], "the second waits for its turn"
    assert engine.last_pass() == (VerifyCost(9, 32), VerifyCost(10, 0)), (
        "six of the prefix and three rows; what is left"
    )
    engine.verify(blocks[:1])
    assert engine.last_pass() == (), "answered from memory"
    verify_until_done(engine, blocks[1:])
    again = Client("c", first.prompt, GREEDY)
    engine.open(again.opening())
    verify_until_done(engine, [again.block()])
    [cost] = engine.last_pass()
    assert cost.cached_tokens >= 32
    assert cost.new_tokens + cost.cached_tokens == 39
