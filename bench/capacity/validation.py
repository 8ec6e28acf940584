"""Does the simulator tell the truth? A measured run, replayed.

The batch times the simulator works with are fitted to the first half of every cell's batches, and scaled by how fast
the machine was during that half of the cell at hand; devices do again what they did. Each cell is replayed twice: with
that model and its noise, and with the median time measured for a batch of the very same work, where there was one. If
only the first misses, the cost model is to blame; if both do, what is modelled of the coordinator: it plans with an
estimate that every batch corrects, the replay with a model that stays.

Policies are asked again as well, every decision on what it was made on, in the order given and in the reverse one.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from bench.capacity.log import BatchEntry, CellLog
from bench.capacity.plan import POLICIES
from bench.capacity.run import Run
from bench.capacity.workload import workload
from bench.harness.record import write_record
from cluster.reports.tables import percent, show_table
from outrider.contracts.cost import CostModel, LinearCostModel
from outrider.costs.fit_figures import BatchSample, FitFigures, Regime, assess
from outrider.costs.fitting import fit_offsets
from outrider.scheduling.policy import SchedulingPolicy
from outrider.scheduling.registry import SCHEDULING
from outrider.simulation.recorded import ReplayComparison, WorkloadRecord, compared, measured_times, replay
from outrider.simulation.results import SimulationResults
from outrider.simulation.scenario import VerifierModel

_AIM = 0.1  # largest relative error wanted


@dataclass(frozen=True, slots=True)
class FittedVerifier:
    """What a replay knows of the verifier."""

    model: LinearCostModel
    overhead_s: float  # beyond the engine, both ways, of steps that what was sent made begin
    unseen: FitFigures  # how well batches that were not fitted to are predicted


@dataclass(frozen=True, slots=True)
class CellValidation:
    """One cell.

    Attributes:
        slowness: of the machine during the cell: a batch's time over what the model predicts, geometric mean over the
            first half; ``noise``: standard deviation of the logarithm.
    """

    cell: str
    slowness: float
    noise: float
    fitted: ReplayComparison  # by the fitted model; ``measured`` by measured batch times
    measured: ReplayComparison
    decisions: int  # made; ``same_decisions`` of these when asked again
    same_decisions: int


def validate(run: Run, json_file: Path | None) -> None:
    """Replay every cell and print what comes of it."""
    verifier = fitted_verifier(run)
    cells = [validated(log, run, verifier) for log in run.logs]
    _show(verifier, cells)
    if json_file is not None:
        write_record(json_file, asdict(run.settings), {"verifier": verifier, "cells": cells})


def fitted_verifier(run: Run) -> FittedVerifier:
    """From the first half of each cell's batches; the second half is what it is judged on."""
    seen = [batch for log in run.logs for batch in _first_half(log)]
    unseen = [batch for log in run.logs for batch in log.batches[len(_first_half(log)) :]]
    model = fit_offsets(_samples(seen))
    begun = [batch for batch in seen if batch.idle_s > 0.0]
    overheads_s = [batch.replied_at_s - batch.sent_at_s - batch.engine_s for batch in begun]
    return FittedVerifier(
        model=model,
        overhead_s=max(0.0, median(overheads_s or [0.0])),
        unseen=assess(model, _samples(unseen)),
    )


def validated(log: CellLog, run: Run, verifier: FittedVerifier) -> CellValidation:
    """One cell against its replays."""
    record = workload(log, run.settings)
    ratios = [batch.engine_s / verifier.model.predict_s(batch.costs) for batch in _first_half(log)]
    slowness, noise = float(np.exp(np.mean(np.log(ratios)))), float(np.std(np.log(ratios)))
    model = _slowed(verifier.model, slowness, median(made.cost_model.relative_guard for made in log.decisions))
    results = _replayed(record, log, model, model, verifier, noise)
    exact = _replayed(record, log, measured_times(record, model), model, verifier, 0.0)
    return CellValidation(
        cell=log.cell.name,
        slowness=slowness,
        noise=noise,
        fitted=compared(record, results),
        measured=compared(record, exact),
        decisions=len(log.decisions),
        same_decisions=same_decisions(log, SCHEDULING[POLICIES[log.cell.policy].scheduling].policy),
    )


def same_decisions(log: CellLog, policy: SchedulingPolicy) -> int:
    """Decisions that come out the same, whichever way round the pending blocks are given."""
    same = 0
    for made in log.decisions:
        plans = [
            policy.plan(pending, made.now_s, made.limits, made.cost_model, made.promised)
            for pending in (made.pending, made.pending[::-1])
        ]
        same += all(tuple((p.generation, p.round) for p in plan.batch) == made.batch for plan in plans)
    return same


def _slowed(model: LinearCostModel, slowness: float, guard: float) -> LinearCostModel:
    """The model on a machine whose times are so many times as long, with the guard that plans were made with."""
    a, b_compute, b_read, c = (slowness * slope for slope in model.slopes)
    offsets_s = tuple(slowness * offset_s for offset_s in model.row_offsets_s)
    return LinearCostModel(a, b_compute, b_read, c, offsets_s, guard)


def _replayed(
    record: WorkloadRecord,
    log: CellLog,
    cost_model: CostModel,
    planner: LinearCostModel,
    verifier: FittedVerifier,
    noise: float,
) -> SimulationResults:
    setting = POLICIES[log.cell.policy]
    model = VerifierModel(
        cost_model=cost_model,
        limits=log.decisions[-1].limits,
        planner_cost_model=planner,
        noise=noise,
        dispatch_s=verifier.overhead_s / 2.0,
        reply_s=verifier.overhead_s / 2.0,
    )
    return replay(record, model, SCHEDULING[setting.scheduling], keeps_kv=setting.keeps_kv)


def _first_half(log: CellLog) -> tuple[BatchEntry, ...]:
    return log.batches[: len(log.batches) // 2]


def _samples(batches: Sequence[BatchEntry]) -> list[BatchSample]:
    return [BatchSample(Regime.VERIFICATION, batch.costs, (batch.engine_s,)) for batch in batches]


def _show(verifier: FittedVerifier, cells: Sequence[CellValidation]) -> None:
    unseen = verifier.unseen
    print(
        f"batch times: MAPE {percent(unseen.mape)} on {unseen.samples} batches not fitted to; "
        f"{verifier.overhead_s * 1e3:.1f} ms of a call beyond the engine"
    )
    times = ("measured", "simulated", "error", "m. times")
    show_table(
        "Round times in ms, p50 and p99; errors with the fitted model, and with measured batch times",
        ("cell", "rounds", "slowness", "noise", *times, *times, "same batches"),
        [
            (
                *(one.cell, one.fitted.rounds, f"{one.slowness:.2f}", f"{one.noise:.2f}"),
                *(f"{1e3 * one.fitted.measured_p50_s:.0f}", f"{1e3 * one.fitted.simulated_p50_s:.0f}"),
                *(f"{one.fitted.p50_error:+.1%}", f"{one.measured.p50_error:+.1%}"),
                *(f"{1e3 * one.fitted.measured_p99_s:.0f}", f"{1e3 * one.fitted.simulated_p99_s:.0f}"),
                *(f"{one.fitted.p99_error:+.1%}", f"{one.measured.p99_error:+.1%}"),
                f"{one.same_decisions} of {one.decisions}",
            )
            for one in cells
        ],
    )
    p50, p99 = (
        sum(abs(error) <= _AIM for error in errors)
        for errors in ([one.fitted.p50_error for one in cells], [one.fitted.p99_error for one in cells])
    )
    print(f"within {percent(_AIM)}: p50 of {p50} and p99 of {p99} of {len(cells)} cells")
