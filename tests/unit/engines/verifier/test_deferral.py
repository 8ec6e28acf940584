"""Corrections a device draws itself (DSSD), from every engine: its token first, and what the engine keeps for it."""

from itertools import cycle

import numpy as np
import pytest

from outrider.contracts.exchanged import Candidates, Deferral, FloatField, TargetRow
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, BlockRefused, Stale, Unfinished, Verified
from outrider.engines.verifier.engine import PagedVerifier
from tests.unit.engines.conftest import VOCAB, MakeVerifier, tiny_llama, torch_verifier
from tests.unit.engines.fake_device import FakeDevice
from tests.unit.engines.reference import (
    Client,
    LogitsOf,
    assert_decided,
    assert_plain_logprobs,
    kept_row_bytes,
    plain_decision,
    tiny_alone,
    tiny_logits,
    verify_until_done,
)

SAMPLED = SamplingParams(temperature=0.8, top_p=0.9, seed=5)
PENALISED = SamplingParams(seed=6, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4)
PROMPT = [5, 17, 42, 8, 61, 30, 2]
RATIO = AcceptanceRule.RATIO
ROW = Deferral()


class Pair:
    """A client and its device; ``reject`` plays rounds until one ends in a deferred correction."""

    def __init__(self, engine: PagedVerifier, client: Client, logits_of: LogitsOf) -> None:
        self.engine, self.client = engine, client
        self.device = FakeDevice(logits_of, client.params.seed)
        engine.open(client.opening())

    def draft(self, forced: tuple[int, ...] = (), window: int = 3, deferral: Deferral = ROW) -> Block:
        draft = self.device.chain([*self.client.tokens, *forced], window)
        sent = self.device.scalars(draft)
        return self.client.block(draft, forced=forced, rule=RATIO, distribution=sent, deferral=deferral)

    def reject(self, deferral: Deferral = ROW) -> tuple[Block, Verified]:
        for _ in range(30):
            block = self.draft(deferral=deferral)
            outcome = verify_until_done(self.engine, [block])[0]
            self.client.take(block, outcome)
            if outcome.deferred is not None:
                return block, outcome
        raise AssertionError("nothing was rejected in 30 rounds")

    def ask_row(self, deferral: Deferral = ROW) -> Block:
        return self.client.block(bonus=False, rule=RATIO, deferral=deferral)

    def correction(self, outcome: Verified) -> int:
        assert outcome.deferred is not None
        token_id = self.device.correct(outcome.deferred, outcome.accepted_len, len(self.client.tokens))
        assert token_id is not None
        return token_id


def pair(engine: PagedVerifier, params: SamplingParams = SAMPLED, name: str = "a") -> Pair:
    return Pair(engine, Client(name, PROMPT, params, logprobs=2), tiny_logits)


def row_of(outcome: Verified) -> TargetRow:
    assert isinstance(outcome.deferred, TargetRow)
    return outcome.deferred


@pytest.mark.parametrize("params", [SAMPLED, PENALISED], ids=["sampled", "penalised"])
@pytest.mark.parametrize("field", [FloatField.FP32, FloatField.FP16])
def test_a_rejection_commits_what_was_accepted_and_hands_over_the_row(
    make_verifier: MakeVerifier, params: SamplingParams, field: FloatField
) -> None:
    one, logits_of = pair(make_verifier(tiny_llama()), params), tiny_logits
    for _ in range(5):
        block = one.draft(deferral=Deferral(field))
        expected = plain_decision(logits_of, one.client, block)
        outcome = verify_until_done(one.engine, [block])[0]
        assert_decided(outcome, expected, field)
        one.client.take(block, outcome)
        if outcome.deferred is not None:
            assert outcome.next_token is None
            forced = (one.correction(outcome),)
            block = one.draft(forced, deferral=Deferral(field))
            expected = plain_decision(logits_of, one.client, block)
            outcome = verify_until_done(one.engine, [block])[0]
            assert_decided(outcome, expected, field)
            one.client.take(block, outcome)
        if outcome.deferred is not None:
            one.client.tokens.append(one.correction(outcome))
            one.engine.open(one.client.opening())
    assert any(o.deferred is not None for o in one.client.outcomes)


def test_log_probabilities_of_corrections_are_the_plain_ones(make_verifier: MakeVerifier) -> None:
    """Of one forced token or many, with the row kept."""
    for extra in ((), (9, 77, 30, 31, 32, 33, 34, 35)):
        one = pair(make_verifier(tiny_llama(), prefill_chunk_tokens=3))
        _, outcome = one.reject()
        block = one.draft((one.correction(outcome), *extra))
        before = len(one.client.tokens)
        outcome = verify_until_done(one.engine, [block])[0]
        one.client.take(block, outcome)
        assert_plain_logprobs(outcome.logprobs, tiny_logits, one.client.tokens, before, 2)


def test_a_row_is_answered_again_without_a_pass(make_verifier: MakeVerifier) -> None:
    """The same numbers each time, in every form; nothing is committed, and no memory is taken."""
    one = pair(make_verifier(tiny_llama()))
    _, outcome = one.reject()
    first, tokens, used = row_of(outcome), list(one.client.tokens), one.engine.usage()
    for _ in range(3):
        block = one.ask_row()
        again = one.engine.verify([block])[0]
        assert isinstance(again, Verified)
        assert row_of(again) == first
        assert (again.accepted_path, again.next_token, again.logprobs) == ((), None, ())
        one.client.take(block, again)
        drawn = []
        for _ in range(2):
            block = one.ask_row(Deferral(candidates=6))
            again = one.engine.verify([block])[0]
            assert isinstance(again, Verified)
            assert isinstance(again.deferred, Candidates)
            one.client.take(block, again)
            drawn.append(again.deferred)
        assert drawn[0] == drawn[1]
    assert one.client.tokens == tokens
    assert one.engine.usage() == used
    assert len(row_of(outcome).probs) > 1


def test_a_kept_row_answers_even_after_its_kv_is_gone(make_verifier: MakeVerifier) -> None:
    """With KV for chunks of two tokens a pass could not decide it at once."""
    one = pair(make_verifier(tiny_llama(), blocks=make_verifier.blocks_of(96), prefill_chunk_tokens=2))
    _, outcome = one.reject()
    lose_kv(one.engine)
    again = one.engine.verify([one.ask_row()])[0]
    assert isinstance(again, Verified)
    assert row_of(again) == row_of(outcome)
    assert one.engine.usage().used_blocks == 0


def test_a_row_can_be_asked_for_where_nothing_was_rejected(make_verifier: MakeVerifier) -> None:
    one = pair(make_verifier(tiny_llama()))
    block = one.ask_row()
    expected = plain_decision(tiny_logits, one.client, block)
    assert_decided(verify_until_done(one.engine, [block])[0], expected)


def test_a_row_with_one_token_is_decided_at_once(make_verifier: MakeVerifier) -> None:
    params = SamplingParams(temperature=1.0, top_k=1, seed=3)
    one = pair(make_verifier(tiny_llama()), params)
    truth = tiny_alone(PROMPT, params, 4)
    block = one.ask_row()
    outcome = verify_until_done(one.engine, [block])[0]
    assert (outcome.next_token, outcome.deferred) == (truth[0], None)
    one.client.take(block, outcome)
    wrong = one.client.block(
        [(truth[1] + 1) % VOCAB],
        rule=RATIO,
        distribution=FakeDevice.certain(),
        deferral=ROW,
    )
    outcome = verify_until_done(one.engine, [wrong])[0]
    assert (outcome.accepted_path, outcome.next_token, outcome.deferred) == ((), truth[1], None)


def test_greedy_targets_leave_nothing_to_defer(make_verifier: MakeVerifier) -> None:
    params = SamplingParams(temperature=0.0)
    one, truth = pair(make_verifier(tiny_llama()), params), tiny_alone(PROMPT, params, 3)
    block = one.client.block(bonus=False, deferral=ROW)
    outcome = verify_until_done(one.engine, [block])[0]
    one.client.take(block, outcome)
    block = one.client.block([(truth[1] + 1) % VOCAB], bonus=False, deferral=ROW)
    outcome = verify_until_done(one.engine, [block])[0]
    one.client.take(block, outcome)
    assert (one.client.output, outcome.deferred) == (truth[:2], None)


def test_a_deferred_round_is_repeated_from_memory(make_verifier: MakeVerifier) -> None:
    one = pair(make_verifier(tiny_llama()))
    block, outcome = one.reject()
    assert one.engine.verify([block]) == [outcome]
    again = one.ask_row()
    one.client.take(again, verify_until_done(one.engine, [again])[0])
    assert one.engine.verify([block]) == [Stale("a", block.round)]
    assert one.engine.verify([again]) == [one.client.outcomes[-1]]


@pytest.mark.parametrize("logprobs", [None, 0])
def test_impossible_corrections_are_refused_and_possible_ones_taken_afterwards(
    make_verifier: MakeVerifier, logprobs: int | None
) -> None:
    """Whether the row is still kept or has to be computed again, with drafts and long forced tails behind."""
    for keep, tail in ((True, ()), (True, (1,) * 9), (False, ()), (False, (1,) * 9)):
        engine = make_verifier(tiny_llama(), blocks=make_verifier.blocks_of(96), prefill_chunk_tokens=4)
        one = pair(engine)
        one.client.logprobs = logprobs
        engine.open(one.client.opening())
        _, outcome = one.reject()
        if not keep:
            lose_rows(engine)
        possible = row_of(outcome).token_ids
        assert possible is not None
        wrong = next(token_id for token_id in range(VOCAB) if token_id not in possible)
        forced = (one.correction(outcome), *tail)
        block = one.client.block(
            [4, 5], forced=(wrong, *tail), rule=RATIO, distribution=FakeDevice.certain(2), deferral=ROW
        )
        for _ in range(20):
            refused = engine.verify([block])[0]
            if not isinstance(refused, Unfinished):
                break
        assert isinstance(refused, BlockRefused)
        assert f"found token {wrong}, whose probability there is 0" in refused.reason
        good = one.draft(forced)
        expected = plain_decision(tiny_logits, one.client, good)
        assert_decided(verify_until_done(engine, [good])[0], expected)


def lose_kv(engine: PagedVerifier) -> None:
    """Evict every idle generation; kept rows stay."""
    evicted, big = engine.usage().evictions, Client("big", [7] * 94, SAMPLED)
    engine.open(big.opening())
    verify_until_done(engine, [big.block()])
    engine.close("big", keep_cache=False)
    assert engine.usage().evictions > evicted


def lose_rows(engine: PagedVerifier) -> None:
    """Push a kept row out, by rejections until there is no room for more, and evict every idle generation."""
    others: list[Pair] = []
    kept_bytes = 0
    while kept_row_bytes(engine) > kept_bytes:
        kept_bytes = kept_row_bytes(engine)
        others.append(pair(engine, name=f"other-{len(others)}"))
        others[-1].reject()
    lose_kv(engine)
    for other in others:
        engine.close(other.client.name, keep_cache=False)


@pytest.mark.parametrize("lose", ["nothing", "KV", "row and KV", "everything"])
def test_what_is_lost_between_rejection_and_correction_is_computed_again(
    make_verifier: MakeVerifier, lose: str
) -> None:
    logits_of = tiny_logits
    for what in ("row", "correction", "no correction"):
        engine = make_verifier(tiny_llama(), blocks=make_verifier.blocks_of(96), prefill_chunk_tokens=8)
        one = pair(engine)
        _, outcome = one.reject()
        if lose == "KV":
            lose_kv(engine)
        elif lose == "row and KV":
            lose_rows(engine)
        elif lose == "everything":
            engine.close("a", keep_cache=False)
            engine.open(one.client.opening())
        forced = (one.correction(outcome),)
        block = {
            "row": one.ask_row(),
            "correction": one.draft(forced),
            "no correction": one.client.block([1, 2]),
        }[what]
        before = len(one.client.tokens)
        expected = plain_decision(logits_of, one.client, block)
        outcome = verify_until_done(engine, [block])[0]
        assert_decided(outcome, expected)
        one.client.take(block, outcome)
        assert_plain_logprobs(outcome.logprobs, logits_of, one.client.tokens, before, 2)


@pytest.mark.parametrize("params", [SAMPLED, PENALISED], ids=["sampled", "penalised"])
@pytest.mark.parametrize("positions", [800, 88])
def test_corrections_of_devices_and_of_the_engine_make_the_same_responses(
    make_verifier: MakeVerifier, params: SamplingParams, positions: int
) -> None:
    """Whole responses under DSSD against DSD with the same drafts and noise; four at once, evicted or not."""
    logits_of, length = tiny_logits, 24
    engine = make_verifier(tiny_llama(), blocks=make_verifier.blocks_of(positions))
    plain = make_verifier(tiny_llama())
    pairs = [Pair(engine, Client(f"c{i}", PROMPT[i:], params), logits_of) for i in range(4)]
    owed: dict[str, tuple[int, ...]] = {}
    deferrals = cycle([ROW, Deferral(candidates=0), ROW])
    while active := [one for one in pairs if len(one.client.output) < length]:
        drafts = [one.draft(owed.pop(one.client.name, ()), 3, next(deferrals)) for one in active]
        for one, block, outcome in zip(active, drafts, verify_until_done(engine, drafts), strict=True):
            one.client.take(block, outcome)
            if outcome.deferred is not None:
                owed[one.client.name] = (one.correction(outcome),)
    assert (engine.usage().evictions > 0) == (positions == 88)
    for one in pairs:
        dsd = Client(one.client.name, one.client.prompt, params)
        plain.open(dsd.opening())
        device = FakeDevice(logits_of, params.seed)
        while len(dsd.output) < length:
            draft = device.chain(dsd.tokens, 3)
            block = dsd.block(draft, rule=RATIO, distribution=device.dense())
            dsd.take(block, verify_until_done(plain, [block])[0])
        common = min(len(dsd.output), len(one.client.output))
        assert one.client.output[:common] == dsd.output[:common]


def test_closing_gives_kept_rows_back() -> None:
    engine = torch_verifier(tiny_llama())
    pairs = [pair(engine, name=name) for name in "ab"]
    for one in pairs:
        one.reject()
    row_bytes = VOCAB * np.dtype(np.float32).itemsize
    assert kept_row_bytes(engine) == 2 * row_bytes
    engine.open(pairs[0].client.opening())
    assert kept_row_bytes(engine) == row_bytes
    for one in pairs:
        engine.close(one.client.name, keep_cache=False)
    usage = engine.usage()
    assert (kept_row_bytes(engine), usage.used_blocks, usage.cached_blocks, usage.generations) == (0, 0, 0, 0)


def test_kept_rows_are_bounded_by_a_sixteenth_of_the_kv_budget() -> None:
    engine = torch_verifier(tiny_llama(), blocks=15)  # 15 blocks of 4 positions of 1024 bytes: 9 rows of 388 bytes
    pairs = [pair(engine, name=f"g{i}") for i in range(12)]
    for one in pairs:
        one.reject()
    assert kept_row_bytes(engine) == 9 * VOCAB * 4
