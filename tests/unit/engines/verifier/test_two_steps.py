"""The semantic rule from every engine: at once, or in two steps between which anything may happen."""

import pickle
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.errors import UnsupportedBlockError
from outrider.contracts.exchanged import Deferral, FloatRow
from outrider.contracts.link import Csi
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import (
    Block,
    BlockRefused,
    Resolution,
    Stale,
    Undecided,
    Unfinished,
    Unknown,
    Verified,
)
from outrider.engines.verifier.engine import PagedVerifier
from tests.unit.engines.conftest import VOCAB, MakeVerifier, tiny_llama
from tests.unit.engines.reference import (
    Client,
    assert_decided,
    assert_plain_logprobs,
    kept_row_bytes,
    tiny_logits,
    verify_until_done,
)
from tests.unit.engines.semantic_device import (
    BAD_LINK,
    FAILS,
    PASSES,
    WIDTH,
    ThresholdJudge,
    draft_with,
    hidden_states,
    plain_mismatches,
    plain_semantic,
    resolution,
    semantic_block,
)

GREEDY = SamplingParams(temperature=0.0)
PROMPT = [5, 17, 42, 8, 61, 30, 2]
WRONG = (False, True, False, True)  # where the draft of most tests differs from the target


def opened(make_verifier: MakeVerifier, *names: str) -> tuple[PagedVerifier, list[Client]]:
    engine = make_verifier(tiny_llama(), judge=ThresholdJudge())
    clients = [Client(name, PROMPT, GREEDY) for name in names]
    for client in clients:
        engine.open(client.opening())
    return engine, clients


def ask(engine: PagedVerifier, client: Client, wrong: tuple[bool, ...] = WRONG) -> tuple[Block, Undecided]:
    """A block that waits for its resolution."""
    block = semantic_block(client, draft_with(client, wrong))
    outcome = engine.verify([block])[0]
    assert isinstance(outcome, Undecided)
    return block, outcome


def resolve(engine: PagedVerifier, client: Client, block: Block, *first: float) -> Verified:
    outcome = engine.verify([], [resolution(block, hidden_states(*first))])[0]
    assert isinstance(outcome, Verified)
    client.take(block, outcome)
    return outcome


def goes_on(engine: PagedVerifier, client: Client) -> None:
    """The next greedy round finds KV that is that of the committed tokens."""
    block = client.block(draft_with(client, (False, False, True)))
    outcome = verify_until_done(engine, [block])[0]
    assert outcome.accepted_len == 2
    client.take(block, outcome)
    assert client.tokens[-1] == draft_with(Client("", client.tokens[:-1], GREEDY), (False,))[0]


def test_full_and_selective_upload_decide_alike_and_as_the_rule_says(make_verifier: MakeVerifier) -> None:
    engine = make_verifier(tiny_llama(), judge=ThresholdJudge())

    @settings(max_examples=25)
    @given(
        prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8),
        rounds=st.lists(
            st.tuples(
                st.lists(st.booleans(), max_size=6),
                st.lists(st.floats(-1, 1, width=32), min_size=6, max_size=6),
                st.booleans(),
                st.sampled_from([None, BAD_LINK]),
            ),
            min_size=1,
            max_size=3,
        ),
    )
    def alike(prompt: list[int], rounds: list[tuple[list[bool], list[float], bool, Csi | None]]) -> None:
        full, selective = Client("full", prompt, GREEDY), Client("selective", prompt, GREEDY)
        for client in (full, selective):
            engine.open(client.opening())
        for wrong, first, bonus, channel in rounds:
            draft, states = draft_with(full, wrong), hidden_states(*first[: len(wrong)])
            whole = semantic_block(full, draft, hidden=states, channel=channel, bonus=bonus)
            bare = semantic_block(selective, draft, channel=channel, bonus=bonus)
            expected = plain_semantic(full, whole, states, channel)
            at_once, later = engine.verify([whole, bare])
            asked = plain_mismatches(selective, bare)
            if asked:
                assert later == Undecided("selective", bare.round, asked)
                later = engine.verify([], [resolution(bare, states[list(asked)])])[0]
            assert isinstance(at_once, Verified)
            assert isinstance(later, Verified)
            assert_decided(at_once, expected)
            assert_decided(later, expected)
            full.take(whole, at_once)
            selective.take(bare, later)
        assert full.tokens == selective.tokens

    alike()


def test_a_resolution_runs_nothing_and_its_kv_is_that_of_what_was_committed(make_verifier: MakeVerifier) -> None:
    engine, [client] = opened(make_verifier, "a")
    block, undecided = ask(engine, client)
    assert undecided.mismatches == (1, 3)
    assert engine.last_pass() != ()
    outcome = resolve(engine, client, block, PASSES, FAILS)
    assert engine.last_pass() == ()
    assert outcome.accepted_path == (0, 1, 2)
    assert outcome.next_token not in (None, block.draft[3])
    again = client.block()
    client.take(again, verify_until_done(engine, [again])[0])
    assert [cost.new_tokens for cost in engine.last_pass()] == [1], "KV of accepted mismatches was kept"
    goes_on(engine, client)


def test_asked_again_a_round_is_as_undecided_and_then_as_decided(make_verifier: MakeVerifier) -> None:
    engine, [client] = opened(make_verifier, "a")
    block, undecided = ask(engine, client)
    assert engine.verify([block]) == [undecided]
    assert engine.last_pass() == ()
    answer = resolution(block, hidden_states(PASSES, PASSES))
    outcome = engine.verify([], [answer])[0]
    assert isinstance(outcome, Verified)
    assert outcome.accepted_len == len(WRONG)
    assert engine.verify([], [answer]) == [outcome]
    assert engine.verify([block], [answer, answer]) == [outcome] * 3
    client.take(block, outcome)
    later = client.block()
    client.take(later, verify_until_done(engine, [later])[0])
    assert engine.verify([block], [answer]) == [Stale("a", 0)] * 2


def test_resolutions_nobody_waits_for_harm_nothing(make_verifier: MakeVerifier) -> None:
    engine, [client] = opened(make_verifier, "a")
    block, undecided = ask(engine, client)
    states = hidden_states(PASSES, PASSES)
    others = [Resolution("ghost", 0, states), Resolution("a", 1, states), Resolution("a", -1, states)]
    assert engine.verify([], others) == [Unknown("ghost", 0), Stale("a", 1), Stale("a", -1)]
    assert engine.verify([block]) == [undecided]
    resolve(engine, client, block, PASSES, PASSES)


@pytest.mark.parametrize(
    ("hidden", "reason"),
    [
        (hidden_states(PASSES), f"[2, {WIDTH}] float32, found [1, {WIDTH}]"),
        (hidden_states(PASSES, PASSES, PASSES), f"found [3, {WIDTH}]"),
        (np.zeros((2, WIDTH + 1), np.float32), f"found [2, {WIDTH + 1}]"),
        (np.zeros(2 * WIDTH, np.float32), f"found [{2 * WIDTH}]"),
        (hidden_states(PASSES, np.nan), "finite"),
    ],
)
def test_hidden_states_that_do_not_fit_are_refused_and_the_round_stays_open(
    make_verifier: MakeVerifier, hidden: FloatRow, reason: str
) -> None:
    engine, [client, other] = opened(make_verifier, "a", "b")
    block, undecided = ask(engine, client)
    refused, unharmed = engine.verify([block, other.block()], [resolution(block, hidden)])[::2]
    assert refused == undecided
    assert isinstance(unharmed, BlockRefused)
    assert reason in unharmed.reason
    resolve(engine, client, block, PASSES, PASSES)
    whole = semantic_block(client, draft_with(client, WRONG), hidden=hidden_states(*[PASSES] * 3))
    outcome = engine.verify([whole])[0]
    assert isinstance(outcome, BlockRefused)
    assert f"[4, {WIDTH}] float32, found [3, {WIDTH}]" in outcome.reason


def test_a_lost_device_has_its_mismatches_rejected(make_verifier: MakeVerifier) -> None:
    engine, [client] = opened(make_verifier, "a")
    block, undecided = ask(engine, client)
    outcome = engine.verify([], [Resolution("a", block.round, None)])[0]
    assert isinstance(outcome, Verified)
    assert outcome.accepted_len == undecided.mismatches[0]
    client.take(block, outcome)
    goes_on(engine, client)


def test_a_new_round_abandons_the_open_one(make_verifier: MakeVerifier) -> None:
    engine, [client] = opened(make_verifier, "a")
    first, _ = ask(engine, client)
    client.round += 1
    second, _ = ask(engine, client, (True, False))
    answer = resolution(first, hidden_states(PASSES, PASSES))
    assert engine.verify([first], [answer]) == [Stale("a", 0)] * 2
    resolve(engine, client, second, FAILS)
    goes_on(engine, client)
    third, _ = ask(engine, client)
    client.round += 1
    bare = client.block()
    client.take(bare, verify_until_done(engine, [bare])[0])
    assert engine.verify([], [resolution(third, hidden_states(PASSES, PASSES))]) == [Stale("a", third.round)]
    goes_on(engine, client)


def test_a_round_is_abandoned_as_soon_as_another_is_begun(make_verifier: MakeVerifier) -> None:
    chunk = max(16, make_verifier.block_tokens)
    engine = make_verifier(tiny_llama(), prefill_chunk_tokens=chunk, judge=ThresholdJudge())
    client = Client("a", PROMPT, GREEDY)
    engine.open(client.opening())
    block, _ = ask(engine, client)
    client.round += 1
    long = client.block(forced=[9] * 2 * chunk)
    assert isinstance(engine.verify([long])[0], Unfinished)
    assert kept_row_bytes(engine) == 0
    assert engine.verify([], [resolution(block, hidden_states(PASSES, PASSES))]) == [Stale("a", 0)]
    client.take(long, verify_until_done(engine, [long])[0])
    goes_on(engine, client)


def test_what_cannot_take_its_place_leaves_a_round_open(make_verifier: MakeVerifier) -> None:
    engine, [client] = opened(make_verifier, "a")
    block, undecided = ask(engine, client)
    hoping = Client("a", PROMPT, GREEDY)
    hoping.tokens += block.draft
    hoping.round = 1
    assert engine.verify([hoping.block([1])]) == [Stale("a", 1)]
    outside = replace(block, round=1, draft=(VOCAB,))
    assert isinstance(engine.verify([outside])[0], BlockRefused)
    with pytest.raises(UnsupportedBlockError, match="semantic rule for a token tree"):
        engine.verify([replace(block, round=1, parents=(-1,) * 4)], [resolution(block, hidden_states(PASSES, PASSES))])
    assert engine.verify([block]) == [undecided], "the resolution was not applied either"
    resolve(engine, client, block, FAILS, FAILS)


def test_one_call_resolves_a_round_and_verifies_the_next(make_verifier: MakeVerifier) -> None:
    """Resolutions first; one that comes too late for that, with a block in its round's place, wins over the block."""
    engine, [client, other] = opened(make_verifier, "a", "b")
    block, _ = ask(engine, client)
    second, _ = ask(engine, other)
    after = Client("a", PROMPT, GREEDY)
    after.tokens += [*block.draft, draft_with(client, (*WRONG, False))[-1]]
    after.round = 1
    states = hidden_states(PASSES, PASSES)
    blocks = [after.block(draft_with(after, (False, True))), replace(second, round=1)]
    outcomes = engine.verify(blocks, [resolution(second, states), resolution(block, states)])
    assert [outcome.round for outcome in outcomes] == [1, 1, 0, 0]
    next_round, replaced, resolved, decided = outcomes
    assert isinstance(next_round, Verified)
    assert next_round.accepted_len == 1
    assert replaced == Stale("b", 1)
    assert isinstance(resolved, Verified)
    assert isinstance(decided, Verified)
    client.take(block, decided)
    client.take(blocks[0], next_round)
    goes_on(engine, client)


def test_closing_or_opening_again_drops_an_open_round_and_its_memory(make_verifier: MakeVerifier) -> None:
    engine, [client, other] = opened(make_verifier, "a", "b")
    first, _ = ask(engine, client)
    second, _ = ask(engine, other)
    one_round = 2 * 48 * 4  # two states of 48 float32
    assert kept_row_bytes(engine) == 2 * one_round
    engine.close("a", keep_cache=True)
    engine.open(other.opening())
    states = hidden_states(PASSES, PASSES)
    assert kept_row_bytes(engine) == 0
    assert engine.verify([], [resolution(first, states), resolution(second, states)]) == [
        Unknown("a", 0),
        Stale("b", 0),
    ]
    engine.close("b", keep_cache=True)
    assert (engine.usage().used_blocks, engine.usage().generations) == (0, 0)


@pytest.mark.parametrize("first", [(FAILS, FAILS), (PASSES, FAILS), (PASSES, PASSES)], ids=["none", "one", "both"])
@pytest.mark.parametrize("bonus", [True, False])
def test_eviction_of_its_kv_does_not_touch_an_open_round(
    make_verifier: MakeVerifier, first: tuple[float, float], *, bonus: bool
) -> None:
    positions = 3 * make_verifier.block_tokens
    engine = make_verifier(tiny_llama(), blocks=3, prefill_chunk_tokens=positions, judge=ThresholdJudge())
    prompt = PROMPT[: min(len(PROMPT), positions - 6)]
    client, large = Client("a", prompt, GREEDY), Client("b", [1] * (positions - 2), GREEDY)
    for one in (client, large):
        engine.open(one.opening())
    block = semantic_block(client, draft_with(client, WRONG), bonus=bonus)
    assert isinstance(engine.verify([block])[0], Undecided)
    verify_until_done(engine, [large.block()])
    assert engine.usage().evictions == 1
    outcome = resolve(engine, client, block, *first)
    assert outcome.accepted_len == {(FAILS, FAILS): 1, (PASSES, FAILS): 3, (PASSES, PASSES): 4}[first]
    assert (outcome.next_token is None) is (outcome.accepted_len == 4 and not bonus)
    tail = client.block()
    client.take(tail, verify_until_done(engine, [tail])[0])
    assert client.tokens[-1] == draft_with(Client("", client.tokens[:-1], GREEDY), (False,))[0]


@pytest.mark.parametrize("first", [(FAILS, FAILS), (PASSES, FAILS), (PASSES, PASSES)], ids=["none", "one", "both"])
@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("whole", [True, False], ids=["full", "selective"])
def test_logprobs_come_with_the_final_outcome(
    make_verifier: MakeVerifier, first: tuple[float, float], *, bonus: bool, whole: bool
) -> None:
    """Of forced, accepted and next tokens, and the prompt's and what was cached of it, once."""
    engine = make_verifier(tiny_llama(), judge=ThresholdJudge())
    logits_of = tiny_logits
    client = Client("a", PROMPT, GREEDY, logprobs=2, prompt_logprobs=True)
    engine.open(client.opening())
    forced = (9, 8)
    block = semantic_block(client, draft_with(client, WRONG, forced), bonus=bonus, forced=forced)
    if whole:
        states = hidden_states(0.0, first[0], 0.0, first[1])
        outcome = verify_until_done(engine, [replace(block, hidden=states)])[0]
        client.take(block, outcome)
    else:
        assert isinstance(engine.verify([block])[0], Undecided)
        outcome = resolve(engine, client, block, *first)
    assert_plain_logprobs(outcome.logprobs, logits_of, client.tokens, len(PROMPT), 2)
    assert outcome.prompt_logprobs[0] is None
    assert_plain_logprobs(outcome.prompt_logprobs[1:], logits_of, PROMPT, 1, 2)
    later = client.block()
    assert verify_until_done(engine, [later])[0].prompt_logprobs == ()


def test_cached_tokens_come_with_the_final_outcome(make_verifier: MakeVerifier) -> None:
    engine = make_verifier(tiny_llama(), judge=ThresholdJudge())
    shared = make_verifier.block_tokens
    prompt = [(11 * i) % VOCAB for i in range(shared + 1)]
    for name in "ab":
        client = Client(name, prompt, GREEDY)
        engine.open(client.opening())
        block = semantic_block(client, draft_with(client, WRONG))
        while isinstance(outcome := engine.verify([block])[0], Unfinished):
            pass
        assert isinstance(outcome, Undecided)
        assert resolve(engine, client, block, FAILS, FAILS).cached_tokens == (shared if name == "b" else 0)


def test_penalties_count_the_mismatches_before_a_row(make_verifier: MakeVerifier) -> None:
    """Each row's choice is what a greedy round says that has those before it forced."""
    engine = make_verifier(tiny_llama(), judge=ThresholdJudge())
    params = SamplingParams(temperature=0.0, repetition_penalty=1.5, frequency_penalty=2.0)
    drafted = [7, 7, 11, 7]
    choices = []
    for length in range(len(drafted) + 1):
        plain = Client(f"plain-{length}", PROMPT, params)
        engine.open(plain.opening())
        choices.append(verify_until_done(engine, [plain.block(forced=drafted[:length])])[0].next_token)
    client = Client("a", PROMPT, params)
    engine.open(client.opening())
    block = semantic_block(client, drafted)
    outcome = engine.verify([block])[0]
    asked = tuple(i for i in range(4) if drafted[i] != choices[i])
    assert outcome == Undecided("a", 0, asked)
    outcome = resolve(engine, client, block, *[PASSES] * len(asked))
    assert (outcome.accepted_len, outcome.next_token) == (4, choices[4])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parents": (-1, 0)}, "the semantic rule for a token tree"),
        ({"deferral": Deferral()}, "a deferred correction under the semantic rule"),
    ],
)
def test_what_the_rule_does_not_cover_is_refused_before_anything_runs(
    make_verifier: MakeVerifier, change: dict[str, object], message: str
) -> None:
    engine, [client, other] = opened(make_verifier, "a", "b")
    block = replace(semantic_block(client, [1, 2]), **change)  # type: ignore[arg-type]  # fields by name
    with pytest.raises(UnsupportedBlockError, match=message):
        engine.verify([other.block(), block])
    assert engine.usage().used_blocks == 0


def test_sampled_generations_and_engines_without_a_judge_know_no_semantic_rule(make_verifier: MakeVerifier) -> None:
    engine = make_verifier(tiny_llama(), judge=ThresholdJudge())
    sampled = Client("a", PROMPT, SamplingParams(seed=3))
    engine.open(sampled.opening())
    with pytest.raises(UnsupportedBlockError, match="semantic rule for a sampled generation"):
        engine.verify([semantic_block(sampled, [1])])
    plain, client = make_verifier(tiny_llama()), Client("a", PROMPT, GREEDY)
    plain.open(client.opening())
    with pytest.raises(UnsupportedBlockError, match="for which it was given no judge"):
        plain.verify([semantic_block(client, [1])])


def test_both_steps_cross_processes_and_compare_by_value() -> None:
    block = semantic_block(Client("a", PROMPT, GREEDY), [1, 2], hidden=hidden_states(1.0, 2.0), channel=BAD_LINK)
    answer = resolution(block, hidden_states(1.0))
    assert pickle.loads(pickle.dumps((block, answer))) == (block, answer)
    assert block != replace(block, hidden=hidden_states(1.0, 2.5))
    assert block != replace(block, hidden=None)
    assert block != replace(block, channel=None)
    assert answer != replace(answer, hidden=hidden_states(1.5))


class Moody(ThresholdJudge):
    """Breaks over some questions."""

    def answer(self, drafter_hidden: FloatRow, target_hidden: FloatRow, channel: Csi | None) -> Sequence[bool]:
        if channel is not None:
            raise ZeroDivisionError("of a link")
        return super().answer(drafter_hidden, target_hidden, channel)


@pytest.mark.parametrize("selective", [False, True])
def test_a_judge_that_breaks_harms_its_own_block_alone(make_verifier: MakeVerifier, selective: bool) -> None:
    engine, states, blocks = make_verifier(tiny_llama(), judge=Moody()), hidden_states(*[PASSES] * 4), list[Block]()
    for name, channel in (("a", None), ("b", BAD_LINK), ("c", None)):
        client = Client(name, PROMPT, GREEDY)
        engine.open(client.opening())
        hidden = None if selective else states
        blocks.append(semantic_block(client, draft_with(client, WRONG), hidden=hidden, channel=channel))
    outcomes = engine.verify(blocks)
    while any(isinstance(outcome, Unfinished) for outcome in outcomes):
        outcomes = engine.verify(blocks)
    if selective:
        asked = [len(outcome.mismatches) for outcome in outcomes if isinstance(outcome, Undecided)]
        outcomes = engine.verify([], [resolution(block, states[:n]) for block, n in zip(blocks, asked, strict=True)])
    first, broken, last = (outcome for outcome in outcomes if isinstance(outcome, Verified))
    assert first.accepted_path == last.accepted_path == tuple(range(len(WRONG)))
    assert first.overrides == last.overrides == tuple(i for i, wrong in enumerate(WRONG) if wrong)
    assert broken.accepted_path == tuple(range(WRONG.index(True)))
    assert broken.overrides == ()
