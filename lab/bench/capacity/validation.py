"""Validation of the simulator: measured runs, replayed.

The simulator's batch times are fitted to the first half of every cell's batches, and scaled by the machine's speed in
that half of the cell at hand; devices repeat what they did. Each cell is replayed in four ways, so that causes of a
deviation can be told apart:

- *fixed*: that model and its noise, and plans made with the same model throughout;
- *corrected*: plans made with a model that every pass corrects, as the coordinator's is, from the same start;
- *paced*: likewise, with the machine's measured speed at each time in place of noise;
- *measured*: *corrected* with the median measured time of passes with exactly the same work, if there were any.

If *fixed* deviates and *corrected* does not, the cause is the planner's model; if *paced* removes the deviation, it is
the machine, which others use as well; if all deviate, it is the model of the coordinator.

Policies are also asked again for every decision, with its blocks in the given and in the reverse order.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from statistics import median

import numpy as np
from tqdm import tqdm

from cluster.reports.tables import percent, show_table
from lab.bench.capacity.figures import batch_model, batch_samples
from lab.bench.capacity.log import BatchEntry, CellLog
from lab.bench.capacity.plan import POLICIES
from lab.bench.capacity.run import Run
from lab.bench.capacity.workload import workload
from lab.bench.harness.record import write_record
from lab.simulation.recorded import ReplayComparison, compared, measured_times, replay
from lab.simulation.scenario import VerifierModel
from outrider.contracts.cost import DEFAULT_COST_MODEL, LinearCostModel
from outrider.costs.estimator import OnlineEstimator
from outrider.costs.fit_figures import FitFigures, assess
from outrider.scheduling.policy import SchedulingPolicy
from outrider.scheduling.registry import SCHEDULING

_P50_AIM, _P99_AIM = 0.1, 0.2  # aims for relative errors


@dataclass(frozen=True, slots=True)
class FittedVerifier:
    """A replay's model of the verifier."""

    model: LinearCostModel
    overhead_s: float  # outside the engine, both ways, of steps that a call started
    unseen: FitFigures  # how well unseen batches are predicted


@dataclass(frozen=True, slots=True)
class CellValidation:
    """One cell.

    Attributes:
        slowness: of the machine during the cell: a batch's time over the model's prediction, geometric mean over the
            first half; ``noise``: standard deviation of the logarithm.
    """

    cell: str
    slowness: float
    noise: float
    replays: Mapping[str, ReplayComparison]  # by the names above
    decisions: int  # made; ``same_decisions`` of these when asked again
    same_decisions: int


def validate(run: Run, json_file: Path | None) -> None:
    """Replay every cell and print the comparison."""
    verifier = fitted_verifier(run)
    cells = [validated(log, run, verifier) for log in tqdm(run.logs, disable=None)]
    _show(verifier, cells)
    if json_file is not None:
        write_record(json_file, asdict(run.settings), {"verifier": verifier, "cells": cells})


def fitted_verifier(run: Run) -> FittedVerifier:
    """Fit to the first half of each cell's batches; evaluate on the second half."""
    seen = [batch for log in run.logs for batch in _first_half(log)]
    unseen = [batch for log in run.logs for batch in log.batches[len(_first_half(log)) :]]
    model = batch_model(seen)
    begun = [batch for batch in seen if batch.idle_s > 0.0]
    overheads_s = [batch.replied_at_s - batch.sent_at_s - batch.engine_s for batch in begun]
    return FittedVerifier(
        model=model,
        overhead_s=max(0.0, median(overheads_s or [0.0])),
        unseen=assess(model, batch_samples(unseen)),
    )


def validated(log: CellLog, run: Run, verifier: FittedVerifier) -> CellValidation:
    """Compare one cell with its replays."""
    record = workload(log, run.settings)
    ratios = [batch.engine_s / verifier.model.predict_s(batch.costs) for batch in _first_half(log)]
    slowness, noise = float(np.exp(np.mean(np.log(ratios)))), float(np.std(np.log(ratios)))
    model = _slowed(verifier.model, slowness, median(made.cost_model.relative_guard for made in log.decisions))
    fixed = VerifierModel(
        cost_model=model,
        limits=log.decisions[-1].limits,
        noise=noise,
        dispatch_s=verifier.overhead_s / 2.0,
        reply_s=verifier.overhead_s / 2.0,
    )
    corrected = replace(fixed, estimator=OnlineEstimator(DEFAULT_COST_MODEL))
    replayed = {
        "fixed": fixed,
        "corrected": corrected,
        "paced": replace(corrected, cost_model=verifier.model, noise=0.0, speed=pace_of(log, verifier.model)),
        "measured": replace(corrected, cost_model=measured_times(record, model), noise=0.0),
    }
    setting = POLICIES[log.cell.policy]
    scheduling = SCHEDULING[setting.scheduling]
    return CellValidation(
        cell=log.cell.name,
        slowness=slowness,
        noise=noise,
        replays={
            name: compared(record, replay(record, model, scheduling, keeps_kv=setting.keeps_kv))
            for name, model in replayed.items()
        },
        decisions=len(log.decisions),
        same_decisions=same_decisions(log, scheduling.policy),
    )


def pace_of(log: CellLog, model: LinearCostModel) -> Callable[[float], float]:
    """Measured over predicted pass time, as a function of time.

    The value is that of the last measured pass that had begun, or of the first one before that.
    """
    passes = sorted(((one.replied_at_s - one.engine_s, one) for one in log.batches), key=itemgetter(0))
    begun_at_s = [began_at_s for began_at_s, _ in passes]
    ratios = [batch.engine_s / model.predict_s(batch.costs) for _, batch in passes]
    return lambda now_s: ratios[max(0, bisect_right(begun_at_s, now_s) - 1)]


def same_decisions(log: CellLog, policy: SchedulingPolicy) -> int:
    """Count decisions that come out the same with the pending blocks in either order."""
    same = 0
    for made in log.decisions:
        plans = [
            policy.plan(pending, made.now_s, made.limits, made.cost_model, made.promised)
            for pending in (made.pending, made.pending[::-1])
        ]
        same += all(tuple((p.generation, p.round) for p in plan.batch) == made.batch for plan in plans)
    return same


def _slowed(model: LinearCostModel, slowness: float, guard: float) -> LinearCostModel:
    """The model with all times scaled by ``slowness``, and the guard that plans were made with."""
    a, b_compute, b_read, c = (slowness * slope for slope in model.slopes)
    offsets_s = tuple(slowness * offset_s for offset_s in model.row_offsets_s)
    return LinearCostModel(a, b_compute, b_read, c, offsets_s, guard)


def _first_half(log: CellLog) -> tuple[BatchEntry, ...]:
    return log.batches[: len(log.batches) // 2]


def _show(verifier: FittedVerifier, cells: Sequence[CellValidation]) -> None:
    unseen = verifier.unseen
    print(
        f"batch times: MAPE {percent(unseen.mape)} on {unseen.samples} batches not fitted to; "
        f"{verifier.overhead_s * 1e3:.1f} ms of a call beyond the engine"
    )
    names = tuple(cells[0].replays)
    show_table(
        "Round times in ms and the errors of replays, p50 / p99 in %",
        ("cell", "rounds", "slowness", "noise", "p50", "p99", *names, "same batches"),
        [
            (
                *(one.cell, one.replays["fixed"].rounds, f"{one.slowness:.2f}", f"{one.noise:.2f}"),
                f"{1e3 * one.replays['fixed'].measured_p50_s:.0f}",
                f"{1e3 * one.replays['fixed'].measured_p99_s:.0f}",
                *(f"{100 * found.p50_error:+.1f} / {100 * found.p99_error:+.1f}" for found in one.replays.values()),
                f"{one.same_decisions} of {one.decisions}",
            )
            for one in cells
        ],
    )
    for name in names:
        p50 = sum(abs(one.replays[name].p50_error) <= _P50_AIM for one in cells)
        p99 = sum(abs(one.replays[name].p99_error) <= _P99_AIM for one in cells)
        print(
            f"{name}: p50 within {percent(_P50_AIM)} in {p50} of {len(cells)} cells, "
            f"p99 within {percent(_P99_AIM)} in {p99}"
        )
