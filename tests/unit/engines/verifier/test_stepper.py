"""Autonomous runs: whatever joins or leaves meanwhile, each generation gets the target's own tokens."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from transformers import PreTrainedModel

from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import (
    AcceptanceRule,
    AutonomousRun,
    Block,
    Outcome,
    PromptLookupGrant,
    Stale,
    Unfinished,
    Verified,
)
from outrider.engines.verifier.stepper import Stepper
from outrider.lookup.store import EarlierTexts
from outrider.lookup.text import LookupHistory
from tests.unit.engines.conftest import tiny_llama, torch_verifier
from tests.unit.engines.reference import Client, assert_same_logprobs, expected_logprobs, plain_logits_of, tiny_alone

GREEDY = SamplingParams(temperature=0.0)
SEEDED = SamplingParams(temperature=0.8, top_p=0.9, seed=5)
PENALISED = SamplingParams(
    temperature=1.0, seed=6, repetition_penalty=1.3, frequency_penalty=0.4, withheld_ids=(3, 4, 5), withheld_until=20
)
PROMPT = [5, 17, 42, 8, 61, 30, 2]
TOKENS = 12
said_alone = partial(tiny_alone, in_float64=True)  # what ``model`` says alone


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny_llama().double()


def stretched(client: Client, until_round: int, end_ids: Sequence[int] = (), draft: Sequence[int] = ()) -> Block:
    return replace(client.block(draft), autonomous_run=AutonomousRun(until_round, frozenset(end_ids)))


def take(clients: Sequence[Client], outcomes: Sequence[Outcome]) -> None:
    """Commit what was decided, as whoever sent the blocks does: from the outcomes alone."""
    by_name = {client.name: client for client in clients}
    for outcome in outcomes:
        if not isinstance(outcome, Unfinished):
            assert isinstance(outcome, Verified), outcome
            client = by_name[outcome.generation]
            assert outcome.round == client.round
            client.take(client.block(), outcome)


def run(stepper: Stepper, *clients: Client) -> None:
    while not stepper.idle:
        take(clients, stepper.step())


def opened(stepper: Stepper, *clients: Client) -> None:
    for client in clients:
        stepper.open(client.opening())


@pytest.mark.parametrize("params", [GREEDY, SEEDED, PENALISED], ids=["greedy", "seeded", "penalised"])
def test_a_autonomous_run_says_what_the_target_alone_says(model: PreTrainedModel, params: SamplingParams) -> None:
    stepper = Stepper(torch_verifier(model))
    client, company = Client("a", PROMPT, params, logprobs=2), Client("b", PROMPT * 3, SEEDED)
    opened(stepper, client, company)
    stepper.give([stretched(client, TOKENS - 1)])
    take([client], stepper.step())
    stepper.give([stretched(company, 3)])
    run(stepper, client, company)
    assert client.output == said_alone(PROMPT, params, TOKENS)
    assert company.output == said_alone(PROMPT * 3, SEEDED, 4)
    if params.greedy:
        rows = plain_logits_of(model)(tuple(client.tokens))[len(PROMPT) - 1 : -1]
        found = [entry for outcome in client.outcomes for entry in outcome.logprobs]
        assert_same_logprobs(found, expected_logprobs(rows, client.output, 2))


def test_credit_ends_a_autonomous_run_and_more_of_it_goes_on(model: PreTrainedModel) -> None:
    stepper, client = Stepper(torch_verifier(model)), Client("a", PROMPT, GREEDY)
    opened(stepper, client)
    stepper.give([stretched(client, 3)])
    run(stepper, client)
    assert len(client.output) == 4
    assert stepper.idle
    stepper.grant_rounds("a", 6)
    stepper.grant_rounds("nobody", 6)
    run(stepper, client)
    assert client.output == said_alone(PROMPT, GREEDY, 7)


def test_an_end_token_is_the_last(model: PreTrainedModel) -> None:
    expected = said_alone(PROMPT, GREEDY, TOKENS)
    end = expected[4]
    stepper, client = Stepper(torch_verifier(model)), Client("a", PROMPT, GREEDY)
    opened(stepper, client)
    stepper.give([stretched(client, 99, [end])])
    run(stepper, client)
    stepper.grant_rounds("a", 200)
    assert stepper.idle
    assert client.output == expected[: expected.index(end) + 1]


@pytest.mark.parametrize("late_by", [0, 1, 2, 3])
def test_a_late_block_counts_for_what_is_not_committed_yet(model: PreTrainedModel, late_by: int) -> None:
    for params in (GREEDY, SEEDED):
        expected = said_alone(PROMPT, params, TOKENS)
        stepper, client = Stepper(torch_verifier(model)), Client("a", PROMPT, params)
        opened(stepper, client)
        stepper.give([stretched(client, 50)])
        take([client], stepper.step())
        late = client.block([*expected[1:5], 96])  # the last is wrong
        for _ in range(late_by):
            take([client], stepper.step())
        client.round = 60
        stepper.give([replace(late, round=60)])
        (outcome,) = stepper.step()
        assert isinstance(outcome, Verified)
        assert len(outcome.accepted_path) == 4 - late_by
        left = late.draft[late_by:]
        client.take(client.block(left), outcome)
        assert client.output == expected[: len(client.output)]
        assert stepper.idle, "its block has ended the stretch"


@pytest.mark.parametrize("late_by", [0, 1, 3])
def test_a_late_block_may_be_older_than_its_autonomous_run(model: PreTrainedModel, late_by: int) -> None:
    """It was drafted while the block that began the autonomous run was under way."""
    for params in (GREEDY, SEEDED):
        expected = said_alone(PROMPT, params, TOKENS)
        stepper, client = Stepper(torch_verifier(model)), Client("a", PROMPT, params)
        opened(stepper, client)
        late = replace(client.block([*expected[:4], 96]), round=60, autonomous_run=AutonomousRun(62))
        stepper.give([stretched(client, 50)])
        for _ in range(late_by):
            take([client], stepper.step())
        client.round = 60
        stepper.give([late])
        (outcome,) = stepper.step()
        assert isinstance(outcome, Verified)
        assert len(outcome.accepted_path) == 4 - late_by
        client.take(client.block(late.draft[late_by:]), outcome)
        run(stepper, client)
        assert client.round == 63, "it has a stretch of its own"
        assert client.output == expected[:7]


@pytest.mark.parametrize("draft", ["another token", "as much as is committed", "less than is committed"])
def test_a_late_block_that_was_drafted_in_vain_brings_a_token_like_any_other_round(
    model: PreTrainedModel, draft: str
) -> None:
    expected = said_alone(PROMPT, SEEDED, TOKENS)
    drafts = {"another token": (96, *expected[2:5]), "as much as is committed": expected[1:3]}
    stepper, client = Stepper(torch_verifier(model)), Client("a", PROMPT, SEEDED)
    opened(stepper, client)
    stepper.give([stretched(client, 50)])
    take([client], stepper.step())
    late = replace(client.block(drafts.get(draft, expected[1:2])), round=60, autonomous_run=AutonomousRun(62))
    for _ in range(2):
        take([client], stepper.step())
    client.round = 60
    stepper.give([late])
    run(stepper, client)
    assert client.output == expected[:6]


def test_a_late_block_that_does_not_fit_is_stale_and_ends_the_autonomous_run(model: PreTrainedModel) -> None:
    expected = said_alone(PROMPT, SEEDED, TOKENS)
    others = {
        "another prefix": {"prefix_hash": 1},
        "a rule that may prefer what comes in time": {"rule": AcceptanceRule.RATIO},
        "a tree": {"parents": (-1, 0, 1)},
    }
    for why, changes in others.items():
        stepper, client = Stepper(torch_verifier(model)), Client("a", PROMPT, SEEDED)
        opened(stepper, client)
        stepper.give([stretched(client, 50)])
        take([client], stepper.step())
        late = replace(client.block(expected[1:4]), round=60)
        for _ in range(2):
            take([client], stepper.step())
        stepper.give([replace(late, **changes)])  # type: ignore[arg-type]
        assert stepper.step() == [Stale("a", 60)], why
        assert stepper.idle, why
        client.round = 61
        stepper.give([stretched(client, 63)])
        run(stepper, client)
        assert client.output == expected[: len(client.output)], why
        assert len(client.output) == 6, why


def test_who_is_held_back_or_closed_stops_at_once_and_the_former_goes_on_where_it_was(model: PreTrainedModel) -> None:
    stepper = Stepper(torch_verifier(model))
    clients = held_back, closed, goes_on = [Client(name, PROMPT * size, GREEDY) for size, name in enumerate("abc", 1)]
    opened(stepper, *clients)
    stepper.give([stretched(client, 5) for client in clients])
    while not all(client.output for client in clients):
        take(clients, stepper.step())
    stepper.grant_rounds("a", 0)
    stepper.close("b", keep_cache=True)
    made = len(held_back.output), len(closed.output)
    run(stepper, *clients)
    assert (len(held_back.output), len(closed.output), len(goes_on.output)) == (*made, 6)
    stepper.grant_rounds("a", 9)
    run(stepper, *clients)
    assert held_back.output == said_alone(PROMPT, GREEDY, 10)


def test_a_prefix_that_is_held_back_goes_on_where_it_was(model: PreTrainedModel) -> None:
    stepper = Stepper(torch_verifier(model, prefill_chunk_tokens=4))
    client = Client("a", PROMPT * 3, GREEDY)
    opened(stepper, client)
    stepper.give([client.block()])
    (first,) = stepper.step()
    assert isinstance(first, Unfinished)
    stepper.grant_rounds("a", client.round - 1)
    assert stepper.idle
    stepper.grant_rounds("a", client.round)
    (then,) = stepper.step()
    assert isinstance(then, Unfinished)
    assert then.remaining_tokens < first.remaining_tokens
    run(stepper, client)
    assert client.output == said_alone(PROMPT * 3, GREEDY, 1)


def test_prefixes_share_the_chunk_of_a_pass_in_the_order_that_was_told(model: PreTrainedModel) -> None:
    stepper = Stepper(torch_verifier(model, prefill_chunk_tokens=4))
    clients = [Client(name, prompt * 3, GREEDY) for name, prompt in (("a", PROMPT), ("b", PROMPT[::-1]))]
    opened(stepper, *clients)
    stepper.give([client.block() for client in clients])

    def remaining() -> dict[str, int]:
        return {each.generation: each.remaining_tokens for each in stepper.step() if isinstance(each, Unfinished)}

    whole = len(PROMPT) * 3
    assert remaining() == {"a": whole - 4, "b": whole}, "who came first"
    stepper.prefill_in(("b", "a"))
    assert remaining() == {"a": whole - 4, "b": whole - 4}
    stepper.prefill_in(None)
    assert remaining() == {"a": whole - 4, "b": whole - 8}
    stepper.prefill_in(())
    assert remaining() == {"a": whole - 8, "b": whole - 8}
    run(stepper, *clients)
    assert [client.output for client in clients] == [said_alone(client.prompt, GREEDY, 1) for client in clients]


def test_who_decodes_alone_is_not_thrown_out_by_who_comes_later(model: PreTrainedModel) -> None:
    """With KV for little more than one of them: the second waits, and then says what it would have said."""
    engine = torch_verifier(model, blocks=14)
    stepper, first, second = Stepper(engine), Client("a", PROMPT * 4, GREEDY), Client("b", PROMPT[::-1] * 4, SEEDED)
    opened(stepper, first, second)
    stepper.give([stretched(first, TOKENS - 1)])
    while not first.output:
        take([first], stepper.step())
    stepper.give([stretched(second, TOKENS - 1)])
    for _ in range(5):
        take([first, second], stepper.step())
    assert engine.usage().evictions == 0
    run_until_done = 60
    while len(second.output) < TOKENS and run_until_done:
        run_until_done -= 1
        take([first, second], stepper.step())
        if len(first.output) == TOKENS:
            stepper.close("a", keep_cache=False)
    assert first.output == said_alone(PROMPT * 4, GREEDY, TOKENS)
    assert second.output == said_alone(PROMPT[::-1] * 4, SEEDED, TOKENS)


def test_who_is_held_back_in_the_middle_of_a_prefix_keeps_nobody_waiting(model: PreTrainedModel) -> None:
    """The older one has memory that the other needs, and is not to go on before that: then it begins anew."""
    engine = torch_verifier(model, blocks=10, prefill_chunk_tokens=16)
    stepper, first, second = Stepper(engine), Client("a", PROMPT * 4, GREEDY), Client("b", PROMPT[::-1] * 4, SEEDED)
    opened(stepper, first, second)
    stepper.give([first.block()])
    (begun,) = stepper.step()
    assert isinstance(begun, Unfinished)
    stepper.grant_rounds("a", first.round - 1)
    stepper.give([stretched(second, 3)])
    for _ in range(8):
        take([second], stepper.step())
    assert len(second.output) == 4
    stepper.grant_rounds("a", first.round)
    for _ in range(8):
        take([first], stepper.step())
    assert first.output == said_alone(PROMPT * 4, GREEDY, 1)
    assert second.output == said_alone(PROMPT[::-1] * 4, SEEDED, 4)


REPETITIVE = SamplingParams(temperature=0.7, seed=3, logit_bias=((5, 100.0),))  # says the same again and again
LEAVE = PromptLookupGrant(8, len(PROMPT) + 60, 1.0, 0.0)


def looking(
    client: Client, grant_rounds: PromptLookupGrant, until_round: int = 99, end_ids: Sequence[int] = ()
) -> Block:
    return replace(client.block(), autonomous_run=AutonomousRun(until_round, frozenset(end_ids), grant_rounds))


@pytest.mark.parametrize("params", [GREEDY, SEEDED, PENALISED], ids=["greedy", "seeded", "penalised"])
def test_what_a_verifier_drafts_itself_changes_no_token(model: PreTrainedModel, params: SamplingParams) -> None:
    """Its tenant was told nearly the same before."""
    expected, company_said = said_alone(PROMPT, params, 60), said_alone(PROMPT * 3, SEEDED, 30)
    experience = LookupHistory(earlier=EarlierTexts(1000))
    experience.earlier.add("t", [96 if i % 11 == 10 else token_id for i, token_id in enumerate(expected)])
    stepper = Stepper(torch_verifier(model), experience)
    client, company = Client("a", PROMPT, params, logprobs=1), Client("b", PROMPT * 3, SEEDED)
    stepper.open(replace(client.opening(), tenant="t"))
    opened(stepper, company)
    stepper.give([looking(client, LEAVE), looking(company, replace(LEAVE, until_position=len(PROMPT) * 3 + 30))])
    run(stepper, client, company)
    assert client.output == expected, "as many as it may take, and no more"
    assert company.output == company_said
    assert [entry.token_id for outcome in client.outcomes for entry in outcome.logprobs] == expected
    drafts = [outcome.own_draft for outcome in client.outcomes if outcome.own_draft is not None]
    assert all(0.0 < draft.expected_tokens <= len(draft.token_ids) <= 8 for draft in drafts)
    drafted, accepted = sum(len(one.token_ids) for one in drafts), sum(one.accepted_len for one in client.outcomes)
    assert 20 < accepted < drafted


def test_an_end_token_inside_ones_own_draft_ends_the_autonomous_run(model: PreTrainedModel) -> None:
    expected = said_alone(PROMPT, SEEDED, 60)
    inside = 0
    for first in (i for i in range(8, 40) if expected[i] not in expected[:i]):
        experience = LookupHistory(earlier=EarlierTexts(1000))
        experience.earlier.add("t", expected)
        stepper, client = Stepper(torch_verifier(model), experience), Client("a", PROMPT, SEEDED)
        stepper.open(replace(client.opening(), tenant="t"))
        stepper.give([looking(client, LEAVE, end_ids=[expected[first]])])
        run(stepper, client)
        assert client.output == expected[: len(client.output)]
        before_last = len(client.output) - client.outcomes[-1].accepted_len - 1
        assert before_last <= first < len(client.output), "it is of the last round"
        inside += first < len(client.output) - 1
    assert inside > 3


def test_leave_to_draft_is_given_and_taken_while_a_autonomous_run_goes_on(model: PreTrainedModel) -> None:
    stepper, client = Stepper(torch_verifier(model)), Client("a", PROMPT, REPETITIVE)
    opened(stepper, client)
    stepper.give([stretched(client, 99)])

    def said(steps: int) -> int:
        before = len(client.output)
        for _ in range(steps):
            take([client], stepper.step())
        return len(client.output) - before

    assert said(8) == 8
    stepper.look_up("nobody", LEAVE)
    stepper.look_up("a", replace(LEAVE, tokens=2))
    assert said(4) == 4 * 3
    stepper.look_up("a", replace(LEAVE, row_price=9.0))
    assert said(3) == 3, "rows are too dear"
    stepper.look_up("a", None)
    said(20)
    assert all(outcome.own_draft is None for outcome in client.outcomes[-20:])
    assert client.output == said_alone(PROMPT, REPETITIVE, len(client.output))


def test_where_memory_is_short_a_draft_takes_no_block_for_itself(model: PreTrainedModel) -> None:
    """Others' KV goes before a guess."""
    longest = []
    for blocks in (64, 7):
        engine = torch_verifier(model, blocks=blocks)
        stepper, client = Stepper(engine), Client("a", PROMPT, REPETITIVE)
        other = Client("b", PROMPT[::-1] * 2, SEEDED)
        opened(stepper, client, other)
        stepper.give([other.block()])
        run(stepper, other)
        stepper.give([looking(client, replace(LEAVE, until_position=len(PROMPT) + 16))])
        drafted = [0]
        while not stepper.idle:
            usage, position = engine.usage(), len(client.tokens)
            take([client], stepper.step())
            own = client.outcomes[-1].own_draft if client.outcomes else None
            if own is not None and usage.total_blocks == usage.used_blocks:
                last = position + len(own.token_ids) - 1
                assert last // usage.block_tokens == (position - 1) // usage.block_tokens
                drafted.append(len(own.token_ids))
        longest.append(max(drafted))
        assert client.output == said_alone(PROMPT, REPETITIVE, len(client.output))
    assert longest[0] == 0 < longest[1], "the other's KV is never all gone"


def test_a_late_block_counts_for_what_ones_own_drafts_have_left_of_it(model: PreTrainedModel) -> None:
    expected = said_alone(PROMPT, REPETITIVE, 60)
    for steps in range(1, 5):
        stepper, client = Stepper(torch_verifier(model)), Client("a", PROMPT, REPETITIVE)
        opened(stepper, client)
        stepper.give([looking(client, replace(LEAVE, tokens=2))])
        for _ in range(4):
            take([client], stepper.step())
        late, position = client.block([5] * 7), len(client.tokens)
        for _ in range(steps):
            take([client], stepper.step())
        client.round = 60
        stepper.give([replace(late, round=60)])
        (outcome,) = stepper.step()
        assert isinstance(outcome, Verified)
        left = max(0, 7 - (len(client.tokens) - position))
        assert outcome.accepted_len == left
        client.take(client.block([5] * left), outcome)
        assert client.output == expected[: len(client.output)]


def test_only_complete_responses_are_looked_through_and_only_by_their_tenant(model: PreTrainedModel) -> None:
    def drafted(before: str, now: str, *, complete: bool) -> int:
        stepper = Stepper(torch_verifier(model), LookupHistory(earlier=EarlierTexts(1000)))
        for name, tenant in (("a", before), ("b", now)):
            client = Client(name, PROMPT, SEEDED)
            stepper.open(replace(client.opening(), tenant=tenant))
            stepper.give([looking(client, replace(LEAVE, until_position=len(PROMPT) + 40))])
            run(stepper, client)
            stepper.close(name, keep_cache=complete)
        return sum(outcome.accepted_len for outcome in client.outcomes)

    assert drafted("x", "x", complete=True) > 20
    own = drafted("x", "x", complete=False)
    assert own < 10
    assert drafted("x", "y", complete=True) == drafted("x", "", complete=True) == drafted("", "", complete=True) == own
