from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bench.capacity.cell import Times, run_cell
from bench.capacity.figures import figures
from bench.capacity.log import Cell, CellLog
from bench.capacity.plan import speed_classes, user_plans
from bench.capacity.run import Run, RunSettings, read_run, write_run
from bench.capacity.validation import fitted_verifier, same_decisions, validated
from bench.capacity.workload import workload
from outrider.contracts.errors import ParameterError
from outrider.scheduling.policy import BatchPlan, PendingVerification, StopReason
from outrider.scheduling.registry import SCHEDULING
from tests.unit.bench.recorded_tiny import TOKENS, tiny_responses, tiny_server
from tests.unit.serve_app.api.in_memory_service import LocalVerifier
from tests.unit.virtual_clock import on_loop

SETTINGS = RunSettings(
    policies=("sled", "fcfs"),
    users=(2,),
    repeats=1,
    warmup_s=0.2,
    measured_s=0.8,
    speeds=(1.0, 2.0),
    step_s=0.002,
    link="good_500mbps_5ms",
    pause_s=0.01,
    stagger_s=0.0,
)


async def cell(policy: str) -> CellLog:
    server, planned = tiny_server(LocalVerifier(), SETTINGS), Cell(policy, 2, 0)
    users = user_plans(
        planned, speed_classes(SETTINGS.speeds), tiny_responses(), seed=0, pause_s=SETTINGS.pause_s, stagger_s=0.0
    )
    return await run_cell(server, planned, users, SETTINGS.devices, Times(SETTINGS.warmup_s, SETTINGS.measured_s))


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


@on_loop
async def test_every_committed_round_was_in_a_batch_that_a_policy_chose() -> None:
    log = await cell("sled")
    chosen = [member for decision in log.decisions for member in decision.batch]
    sent = [(generation, number) for batch in log.batches for generation, number, _ in batch.members]
    assert set(sent) <= set(chosen)
    rounds = sum(len(response.rounds) for response in log.responses)
    assert rounds <= len(sent)
    first_passes = {(g, n): cost for batch in reversed(log.batches) for g, n, cost in batch.members}
    assert {cost.cached_tokens for cost in first_passes.values()} == {0}
    assert figures([log], block_tokens=SETTINGS.block_tokens, grace_s=5.0).off_record == 0


@on_loop
async def test_a_run_is_kept_and_replayed(tmp_path: Path) -> None:
    file = tmp_path / "runs" / "run.json.gz"
    run = Run(SETTINGS, (await cell("sled"), await cell("fcfs")))
    write_run(file, run)
    assert read_run(file) == run
    verifier = fitted_verifier(run)
    for log in run.logs:
        record = workload(log, SETTINGS)
        assert [len(device.responses) for device in record.devices] == [
            sum(response.user == user and bool(response.rounds) for response in log.responses) for user in (0, 1)
        ]
        found = validated(log, run, verifier)
        assert found.fitted.rounds == sum(max(len(response.rounds) - 1, 0) for response in log.responses)
        assert found.same_decisions == len(log.decisions)


class LastFirst:
    """Chooses by position in the list it is given."""

    def plan(self, pending: Sequence[PendingVerification], *_: object, **__: object) -> BatchPlan:
        """One block."""
        return BatchPlan((pending[-1],), tuple(pending[:-1]), StopReason.MAX_BLOCKS)


@on_loop
async def test_a_policy_that_heeds_the_order_of_the_list_is_found_out() -> None:
    log = await cell("fcfs")
    twice = [decision for decision in log.decisions if len(decision.pending) > 1]
    assert same_decisions(replace(log, decisions=tuple(twice)), LastFirst()) == 0
    assert same_decisions(log, SCHEDULING["fcfs"].policy) == len(log.decisions)


def test_a_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.json.gz"
    with pytest.raises(ParameterError, match="outrider bench capacity --record"):
        read_run(file)
    file.write_bytes(b"no gzip")
    with pytest.raises(ParameterError, match="outrider bench capacity --record"):
        read_run(file)
