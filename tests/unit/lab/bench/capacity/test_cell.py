from dataclasses import replace
from itertools import pairwise

from lab.bench.capacity.cell import Until, run_cell
from lab.bench.capacity.figures import figures
from lab.bench.capacity.log import CellLog, arrival_times_s
from lab.bench.capacity.plan import Load, cells, speed_classes, user_plans
from lab.bench.capacity.run import RunSettings
from tests.unit.lab.bench.recorded_tiny import TOKENS, tiny_responses, tiny_server
from tests.unit.serve_app.api.in_memory_service import LocalVerifier
from tests.unit.virtual_clock import on_loop

SETTINGS = RunSettings(
    policies=("sled", "fcfs"),
    users=(2,),
    repeats=1,
    warmup_s=0.2,
    responses=4,
    speeds=(1.0, 2.0),
    step_s=0.002,
    link="good_500mbps_5ms",
    pause_s=0.01,
    stagger_s=0.0,
)
CLOSED_LOAD = Load(2)
UNTIL = Until(SETTINGS.warmup_s, SETTINGS.responses, 60.0)


async def cell(
    policy: str, load: Load = CLOSED_LOAD, until: Until = UNTIL, speeds: tuple[float, ...] = SETTINGS.speeds
) -> CellLog:
    server, (planned,) = tiny_server(LocalVerifier(), SETTINGS), cells((policy,), (load,), (0,))
    limits = replace(server.config.limits, max_queued_generations=2)  # who finds these waiting is refused
    server = replace(server, config=replace(server.config, limits=limits))
    users = user_plans(
        planned, speed_classes(speeds), tiny_responses(), seed=0, pause_s=SETTINGS.pause_s, stagger_s=0.0
    )
    return await run_cell(server, planned, users, SETTINGS.devices(planned.users), until)


@on_loop
async def test_users_are_answered_as_recorded_and_devices_really_draft() -> None:
    log = await cell("fcfs")
    assert {response.user for response in log.responses} == {0, 1}
    assert all(response.as_recorded for response in log.responses)
    assert (log.strays, log.faults) == (0, ())
    ended = [response for response in log.responses if response.ended_at_s is not None]
    lengths = {sum(entry.timing.committed_tokens for entry in response.rounds) for response in ended}
    assert lengths <= {TOKENS}
    drafted = [entry.timing for response in log.responses for entry in response.rounds if entry.timing.up_bits]
    assert {timing.drafted_tokens for timing in drafted} - set(range(1, SETTINGS.window)) == {SETTINGS.window}
    for timing in drafted:  # a device that joins later has some committed tokens to read as well
        read_s = timing.draft_s - timing.drafted_tokens * SETTINGS.step_s
        assert -1e-9 <= read_s <= TOKENS * SETTINGS.prefill_token_s
    times = [entry.committed_at_s for response in log.responses for entry in response.rounds]
    assert all(
        after > before for r in log.responses for before, after in pairwise([e.committed_at_s for e in r.rounds])
    )
    assert max(times) <= log.ended_at_s
    assert sum(response.ended_at_s >= UNTIL.warmup_s for response in ended if response.ended_at_s) == UNTIL.responses


@on_loop
async def test_the_centralized_baseline_drafts_nothing() -> None:
    log = await cell("centralized")
    assert all(response.as_recorded for response in log.responses)
    rounds = [entry.timing for response in log.responses for entry in response.rounds]
    assert rounds
    assert {timing.drafted_tokens for timing in rounds} == {0}


@on_loop
async def test_every_committed_round_was_in_a_batch_and_sled_keeps_no_kv() -> None:
    log = await cell("sled")
    sent = [(generation, number) for batch in log.batches for generation, number, _ in batch.members]
    rounds = sum(len(response.rounds) for response in log.responses)
    assert rounds <= len(sent)
    first_passes = {(g, n): cost for batch in reversed(log.batches) for g, n, cost in batch.members}
    assert {cost.cached_tokens for cost in first_passes.values()} == {0}
    assert figures([log], block_tokens=SETTINGS.block_tokens, grace_s=5.0).off_record == 0


@on_loop
async def test_in_an_open_loop_everybody_asks_once_and_when_it_is_planned() -> None:
    log = await cell("fcfs", Load(6, "bursts", 50.0), Until(0.0, 6, 60.0))
    assert sorted((response.user, response.number) for response in log.responses) == [(user, 0) for user in range(6)]
    planned = arrival_times_s("bursts", 50.0, 6, (0, 0))
    asked = [response.asked_at_s for response in sorted(log.responses, key=lambda response: response.user)]
    assert all(at_s >= planned_s - 1e-6 for at_s, planned_s in zip(asked, planned, strict=True))
    assert [response.slo.tokens_per_s for response in log.responses if response.user < 3] == [1.0, 2.0, 1.0]
    assert all(response.as_recorded and response.ended_at_s is not None for response in log.responses)


@on_loop
async def test_admission_refuses_what_the_others_let_in() -> None:
    load, until, speeds = Load(8, "poisson", 1000.0), Until(0.0, 8, 60.0), (1e5,)
    everybody = await cell("slo_aware", load, until, speeds)
    assert [response.refused_at_s for response in everybody.responses] == [None] * 8
    weighed = await cell("slo_aware_admission", load, until, speeds)
    refused = [response for response in weighed.responses if response.refused_at_s is not None]
    ended = [response for response in weighed.responses if response.ended_at_s is not None]
    assert refused  # of a promise that nobody could keep, one at a time is let in
    assert len(refused) + len(ended) == 8
    assert not any(response.rounds or response.kept for response in refused)
    found = figures([weighed], block_tokens=SETTINGS.block_tokens, grace_s=5.0)
    assert (found.promised.refused, found.ended) == (len(refused), (len(ended),))
    assert sum(of_class.refused for of_class in found.by_class) == len(refused)


@on_loop
async def test_a_cell_with_too_few_responses_is_broken_off() -> None:
    log = await cell("fcfs", until=Until(0.0, 1_000_000, 0.3))
    assert log.ended_at_s >= 0.3
    assert any(response.ended_at_s is None for response in log.responses)
