import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from actors.messages import Closing, StepReply, VerifyCall
from actors.verifier.call_reorder_buffer import CallReorderBuffer
from lab.bench.capacity.noted_verifier import NotedVerifier
from outrider.contracts.cost import VerifyCost
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.verifying import AutonomousRun, Block, OpenGeneration, Outcome, Unfinished, Verified
from tests.unit.engines.conftest import BLOCK_TOKENS
from tests.unit.lab.bench.recorded_tiny import PROMPTS, tiny_responses
from tests.unit.serve_app.api.in_memory_service import CHUNK, ENGINE_S, LONG_PROMPT, LocalVerifier
from tests.unit.serve_app.coordination.in_memory import GREEDY
from tests.unit.virtual_clock import now_s, on_loop

OPENING = OpenGeneration("g", PROMPTS[0], GREEDY)
OUTPUT = tiny_responses()[0].output_ids


def block(number: int, output: tuple[int, ...], draft: tuple[int, ...], prompt: tuple[int, ...] = PROMPTS[0]) -> Block:
    prefix = (*prompt, *output)
    return Block("g", number, len(prefix), extend_prefix_hash(EMPTY_PREFIX_HASH, prefix), draft=draft)


async def asked(verifier: NotedVerifier, steps: AsyncGenerator[StepReply], call: VerifyCall) -> Outcome:
    """What a call's block comes to, in as many steps as it takes."""
    verifier.give(call)
    while True:
        (outcome,) = (await anext(steps)).outcomes
        if not isinstance(outcome, Unfinished):
            return outcome


async def response(
    verifier: NotedVerifier, steps: AsyncGenerator[StepReply], round_s: float = 0.0
) -> tuple[tuple[int, ...], list[int]]:
    """Three drafted tokens a round, the last one wrong; also what each round found in the cache."""
    output: tuple[int, ...] = ()
    openings: tuple[OpenGeneration, ...] = (OPENING,)
    cached: list[int] = []
    while len(output) < 8:
        draft = (*OUTPUT[len(output) : len(output) + 2], 0) if output else ()
        call = VerifyCall(openings=openings, blocks=(block(len(cached), output, draft),))
        outcome = await asked(verifier, steps, call)
        await asyncio.sleep(round_s)
        assert isinstance(outcome, Verified)
        assert outcome.next_token is not None
        output = (*output, *(draft[node] for node in outcome.accepted_path), outcome.next_token)
        cached.append(outcome.cached_tokens)
        openings = ()
    return output, cached


@pytest.mark.parametrize("keeps_kv", [True, False])
@on_loop
async def test_without_kept_kv_the_same_tokens_cost_the_whole_prefix(keeps_kv: bool) -> None:
    inner = LocalVerifier()
    verifier = NotedVerifier(inner, keeps_kv=keeps_kv, clock=now_s)
    steps = verifier.steps()
    output, cached = await response(verifier, steps, round_s=1.0)
    assert output == OUTPUT[: len(output)]
    assert set(cached) == {0}
    costs = [batch.costs[0] for batch in verifier.batches]
    prompt, rounds = len(PROMPTS[0]), range(len(costs) - 1)
    positions = [prompt + 1 + 3 * number for number in rounds]
    later = [VerifyCost(4, position - 1) if keeps_kv else VerifyCost(position + 3, 0) for position in positions]
    assert costs == [VerifyCost(prompt, 0), *later]
    sent = [number * (1 + ENGINE_S) for number in range(len(costs))]
    assert [batch.sent_at_s for batch in verifier.batches] == pytest.approx(sent)
    verifier.forget_all()
    await anext(steps)
    assert inner.empty


@on_loop
async def test_a_closed_generation_leaves_nothing_to_the_next_one() -> None:
    inner = LocalVerifier()
    verifier = NotedVerifier(inner, keeps_kv=True, clock=now_s)
    steps = verifier.steps()
    assert len(PROMPTS[0]) > BLOCK_TOKENS  # there is a block to share
    for _ in range(2):
        await response(verifier, steps)
        verifier.give(VerifyCall(closings=(Closing("g", keep_cache=True),)))
        await anext(steps)
        usage = inner.engine.usage()
        assert (usage.used_blocks, usage.cached_blocks) == (0, 0)
    assert len({batch.costs[0] for batch in verifier.batches if batch.members[0][1] == 0}) == 1


@pytest.mark.parametrize("keeps_kv", [True, False])
@on_loop
async def test_a_prefix_computed_in_chunks_is_opened_once_and_costs_its_chunks(keeps_kv: bool) -> None:
    verifier = NotedVerifier(LocalVerifier(), keeps_kv=keeps_kv, clock=now_s)
    opening, prompt = OpenGeneration("g", LONG_PROMPT, GREEDY), block(0, (), (), LONG_PROMPT)
    outcome = await asked(verifier, verifier.steps(), VerifyCall(openings=(opening,), blocks=(prompt,)))
    assert isinstance(outcome, Verified)
    costs = [batch.costs[0] for batch in verifier.batches]
    assert sum(cost.new_tokens for cost in costs) == len(LONG_PROMPT)
    assert [cost.cached_tokens for cost in costs] == [CHUNK * number for number in range(len(costs))]


@on_loop
async def test_rounds_that_follow_by_themselves_are_noted_with_what_they_cost() -> None:
    verifier = NotedVerifier(LocalVerifier(), keeps_kv=True, clock=now_s)
    autonomous_run, steps = AutonomousRun(until_round=3), verifier.steps()
    verifier.give(VerifyCall(openings=(OPENING,), blocks=(replace(block(0, (), ()), autonomous_run=autonomous_run),)))
    for _ in range(4):
        await anext(steps)
    noted, prompt = [batch.members for batch in verifier.batches], len(PROMPTS[0])
    later = [(("g", number, VerifyCost(1, prompt + number - 1)),) for number in (1, 2, 3)]
    assert noted == [(("g", 0, VerifyCost(prompt, 0)),), *later]


class ThroughInbox(LocalVerifier):
    """Takes calls as the actor does: none before those with lower numbers."""

    def __init__(self) -> None:
        """Nothing came yet."""
        super().__init__()
        self._in_order = CallReorderBuffer()

    def give(self, call: VerifyCall) -> None:
        """Take in all whose turn it is."""
        self._in_order.put(call)
        for ready in self._in_order.take():
            super().give(ready)


@on_loop
async def test_cells_that_follow_one_another_are_sessions_of_their_own() -> None:
    inner = ThroughInbox()
    for first_session in (0, 1000):
        verifier = NotedVerifier(inner, keeps_kv=True, clock=now_s, first_session=first_session)
        output, _ = await response(verifier, verifier.steps())
        assert output == OUTPUT[: len(output)]
        verifier.forget_all()
