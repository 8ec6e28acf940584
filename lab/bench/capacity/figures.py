"""Figures of measured cells, by the definitions of ``lab.simulation.results``.

So measurements and simulations are comparable.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lab.bench.capacity.emulated_devices import GROUP
from lab.bench.capacity.intervals import Rates, rates, time_slices
from lab.bench.capacity.log import BatchEntry, CellLog, ResponseEntry, RoundEntry
from lab.bench.capacity.plan import POLICIES
from lab.simulation.device_account import DeviceAccount
from lab.simulation.results import ClassResults, DeviceResults, RunResults, by_class, promised
from lab.simulation.tally import percentiles
from outrider.contracts.cost import CostModel, LinearCostModel
from outrider.costs.fit_figures import BatchKind, BatchSample
from outrider.costs.fitting import fit_offsets
from outrider.scheduling.attribution import ViolationCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures(RunResults):
    """All repeats of a policy under a load."""

    policy: str
    load: str
    repeats: int
    ended: tuple[int, ...]  # responses after the warm-up, per repeat
    rates: Rates  # goodput against the baseline under the same load
    promised: ClassResults  # all devices with a promised speed; ``by_class`` the same by class, the slowest first
    by_class: tuple[ClassResults, ...]
    busy_share: float  # share of the time in which the verifier computed
    slowness: float | None  # of the machine: time of the batches over that of a model fitted to all cells
    off_record: int  # responses with unrecorded tokens, and ``faults`` of devices: both should be 0
    faults: int


def figures(
    logs: Sequence[CellLog],
    *,
    block_tokens: int,
    grace_s: float,
    baseline: Sequence[CellLog] = (),
    model: CostModel | None = None,
) -> Figures:
    """Figures of cells (at least one) with the same policy and load.

    Args:
        logs: the cells.
        block_tokens: most tokens that a round can commit.
        grace_s: a device that waits longer for a first token is late.
        baseline: cells under the same load, to compare goodput with.
        model: of batches, to compare machine speeds.
    """
    devices = [
        device_results(log, user, block_tokens=block_tokens, grace_s=grace_s)
        for log in logs
        for user in sorted({response.user for response in log.responses})
    ]
    measured_s = sum(log.measured_s for log in logs)
    rounds = [entry for log in logs for entry in _paced_rounds(log)]
    batches = [batch for log in logs for batch in log.batches if batch.sent_at_s >= log.warmup_s]
    return Figures(
        policy=logs[0].cell.policy,
        load=logs[0].cell.load,
        repeats=len(logs),
        ended=tuple(sum(piece.ended for piece in time_slices(log)) for log in logs),
        rates=rates(logs, baseline),
        measured_s=measured_s,
        promised=promised(devices),
        by_class=by_class(devices),
        round_times=percentiles([gap_s for log in logs for gap_s in round_times_s(log, log.warmup_s)]),
        draft_times=percentiles([entry.timing.draft_s for entry in rounds]),
        link_times=percentiles([entry.timing.link_s for entry in rounds]),
        queue_times=percentiles([entry.timing.queue_s for entry in rounds]),
        verify_times=percentiles([entry.timing.verify_s for entry in rounds]),
        first_token_times=percentiles([wait_s for log in logs for wait_s in _first_token_times_s(log)]),
        batch_sizes=tuple(sorted(Counter(len(batch.members) for batch in batches).items())),
        stop_reasons=tuple(Counter(made.reason for log in logs for made in log.decisions).most_common()),
        busy_share=sum(batch.engine_s for batch in batches) / measured_s,
        slowness=None if model is None else _slowness(batches, model),
        off_record=sum(not response.as_recorded for log in logs for response in log.responses),
        faults=sum(len(log.faults) for log in logs),
    )


def batch_model(batches: Iterable[BatchEntry]) -> LinearCostModel:
    return fit_offsets([BatchSample(BatchKind.VERIFICATION, batch.costs, (batch.engine_s,)) for batch in batches])


def _slowness(batches: Sequence[BatchEntry], model: CostModel) -> float | None:
    expected_s = sum(model.predict_s(batch.costs) for batch in batches)
    return sum(batch.engine_s for batch in batches) / expected_s if expected_s > 0.0 else None


def device_results(log: CellLog, user: int, *, block_tokens: int, grace_s: float) -> DeviceResults:
    """One device in one cell, with at least one request. A response that waits for admission is owed nothing yet."""
    admits = POLICIES[log.cell.policy].admits
    responses = [response for response in log.responses if response.user == user]
    account = DeviceAccount(DeviceResults(device=user, group=GROUP, slo=responses[0].slo))
    for response in responses:
        _give(account, response, log.warmup_s)
        if response.refused_at_s is not None:
            account.results.refused += response.refused_at_s >= log.warmup_s
        elif response.ended_at_s is None and (response.rounds or not admits):
            _close(account, response, log, block_tokens, grace_s)
    return account.results


def _give(account: DeviceAccount, response: ResponseEntry, warmup_s: float) -> None:
    """Count what a response received; rounds are late if the coordinator judged them so."""
    measured = False
    for number, entry in enumerate(response.rounds):
        timing, measured = entry.timing, entry.committed_at_s >= warmup_s
        if number == 0:
            account.first_tokens(entry.committed_at_s, measured=measured)
            continue
        account.round_committed(timing.committed_tokens, entry.committed_at_s, measured=measured)
        if measured:
            cause = timing.late or ViolationCause.QUEUE
            account.judge_round(timing.drafted_tokens, timing.accepted_tokens, timing.total_s, cause)
    if response.ended_at_s is not None:
        account.end_response(measured=measured)


def _close(account: DeviceAccount, response: ResponseEntry, log: CellLog, block_tokens: int, grace_s: float) -> None:
    """Count what is owed to a response still in progress."""
    if response.rounds:
        since_s, owed_from_s, most = response.rounds[-1].committed_at_s, None, block_tokens
    else:
        since_s, most = response.asked_at_s, 0
        owed_from_s = max(response.asked_at_s, log.warmup_s) + grace_s
    account.close(since_s, owed_from_s, most, log.ended_at_s)


def round_times_s(log: CellLog, from_s: float) -> list[float]:
    """Times between consecutive commits of a response, those after ``from_s``."""
    return [
        after.committed_at_s - before.committed_at_s
        for response in log.responses
        for before, after in pairwise(response.rounds)
        if after.committed_at_s > from_s
    ]


def _paced_rounds(log: CellLog) -> list[RoundEntry]:
    return [e for r in log.responses for e in r.rounds[1:] if e.committed_at_s > log.warmup_s]


def _first_token_times_s(log: CellLog) -> list[float]:
    return [
        response.rounds[0].committed_at_s - response.asked_at_s
        for response in log.responses
        if response.rounds and response.rounds[0].committed_at_s > log.warmup_s
    ]
