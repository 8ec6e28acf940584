"""Figures of measured cells with their intervals and tables, by the definitions of ``lab.simulation.results``.

So measurements and simulations are comparable.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lab.bench.capacity.emulated_devices import GROUP
from lab.bench.capacity.log import BatchEntry, CellLog, ResponseEntry, RoundEntry
from lab.bench.capacity.plan import POLICIES
from lab.bench.harness.statistics import Estimate, quotient, ratio
from lab.reports.columns import Columns, decimals, percent, show_columns
from lab.simulation.results import ClassResults, DeviceAccount, DeviceResults, RunResults, by_class, promised
from lab.simulation.run import percentiles
from outrider.contracts.cost import CostModel, LinearCostModel
from outrider.costs.fit_figures import BatchKind, BatchSample
from outrider.costs.fitting import fit_offsets
from outrider.scheduling.attribution import ViolationCause

STRETCH_S = 5.0  # minimum; a cell is cut into equal periods


@dataclass(frozen=True, slots=True)
class Stretch:
    """A period of one cell after its warm-up; for intervals, periods of all repeats are redrawn.

    Responses and rounds of the same time are correlated, those of different periods less so. Differences between cells,
    such as from other load on the machine, are in no period: repeats show them.
    """

    seconds: float
    tokens: int  # committed
    kept: int  # responses that ended with their promise kept
    ended: int  # responses that ended
    refused: int


def time_slices(log: CellLog, length_s: float = STRETCH_S) -> list[Stretch]:
    """Cut a cell's time after its warm-up into equal periods, none shorter than ``length_s`` unless the whole is."""
    count = max(1, int(log.measured_s / length_s))
    edges_s = np.linspace(log.warmup_s, log.ended_at_s, count + 1)

    def sums(found: Sequence[tuple[float, int]]) -> list[int]:
        at_s = [at_s for at_s, _ in found]
        counted, _ = np.histogram(at_s, edges_s, weights=[float(number) for _, number in found])
        return [round(number) for number in counted.tolist()]

    tokens = [(made.committed_at_s, made.timing.committed_tokens) for one in log.responses for made in one.rounds]
    ended = [(one.ended_at_s, one.kept) for one in log.responses if one.ended_at_s is not None]
    refused = [(one.refused_at_s, 1) for one in log.responses if one.refused_at_s is not None]
    columns = sums(tokens), sums(ended), sums([(at_s, 1) for at_s, _ in ended]), sums(refused)
    return [Stretch(log.measured_s / count, *row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates over all repeats of one measurement.

    Attributes:
        against: goodput over that of another measurement; None without one. ``each_against``: per common repeat.
    """

    goodput: Estimate  # committed tokens per second
    kept_per_s: Estimate  # responses per second that ended with their promise kept
    kept_share: Estimate  # of the responses that ended or were refused
    against: Estimate | None
    each_against: tuple[float, ...]


def rates(logs: Sequence[CellLog], others: Sequence[CellLog] = ()) -> Rates:
    """Rates of cells (at least one, with a response that ended), and their goodput relative to other cells."""
    mine, theirs = ([piece for log in group for piece in time_slices(log)] for group in (logs, others))
    seconds = [piece.seconds for piece in mine]
    tokens = [float(piece.tokens) for piece in mine]
    kept = [float(piece.kept) for piece in mine]
    goodputs = {log.cell.repeat: _goodput(log) for log in others}
    against = None
    if theirs:
        against = quotient((tokens, seconds), ([float(p.tokens) for p in theirs], [p.seconds for p in theirs]))
    return Rates(
        goodput=ratio(tokens, seconds),
        kept_per_s=ratio(kept, seconds),
        kept_share=ratio(kept, [float(piece.ended + piece.refused) for piece in mine]),
        against=against,
        each_against=tuple(_goodput(log) / goodputs[log.cell.repeat] for log in logs if log.cell.repeat in goodputs),
    )


def _goodput(log: CellLog) -> float:
    return sum(piece.tokens for piece in time_slices(log)) / log.measured_s


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


_LOAD: Columns[Figures] = (("load", lambda one: one.load), ("policy", lambda one: one.policy))
_RATES: Columns[Figures] = (
    *_LOAD,
    ("ended", lambda one: " ".join(map(str, one.ended))),
    ("goodput", lambda one: one.rates.goodput.shown(digits=1)),
    ("against fcfs", lambda one: one.rates.against or "-"),
    ("each repeat", lambda one: " ".join(f"{each:.3f}" for each in one.rates.each_against) or "-"),
    ("kept/s", lambda one: one.rates.kept_per_s.shown(digits=2)),
    ("kept of asked, %", lambda one: one.rates.kept_share.shown(100.0, digits=1)),
    ("refused", lambda one: one.promised.refused),
)
_LATENESS: Columns[Figures] = (
    *_LOAD,
    ("rounds", lambda one: percent(one.promised.round_violation_rate)),
    ("(queue", lambda one: percent(one.promised.late_queue_rounds / max(one.promised.rounds, 1))),
    ("compute)", lambda one: percent(one.promised.late_compute_rounds / max(one.promised.rounds, 1))),
    ("responses", lambda one: percent(one.promised.response_violation_rate)),
    ("devices", lambda one: percent(one.promised.device_violation_rate)),
    ("round p50", lambda one: f"{one.round_times.p50_s * 1e3:.0f}"),
    ("p99", lambda one: f"{one.round_times.p99_s * 1e3:.0f}"),
    ("first token p50", lambda one: f"{one.first_token_times.p50_s * 1e3:.0f}"),
    ("p99", lambda one: f"{one.first_token_times.p99_s * 1e3:.0f}"),
    ("blocks/batch", lambda one: f"{one.mean_batch_blocks:.1f}"),
    ("busy", lambda one: percent(one.busy_share)),
    ("slowness", lambda one: decimals(one.slowness, 3)),
)
_BY_CLASS: Columns[tuple[Figures, ClassResults]] = (
    ("load", lambda row: row[0].load),
    ("policy", lambda row: row[0].policy),
    ("promised", lambda row: f"{row[1].slo.tokens_per_s:g}/s"),
    ("achieved", lambda row: "-" if (speed := row[1].achieved_tokens_per_s) is None else f"{speed:.2f}/s"),
    ("late rounds", lambda row: percent(row[1].round_violation_rate)),
    ("(queue", lambda row: percent(row[1].late_queue_rounds / max(row[1].rounds, 1))),
    ("compute)", lambda row: percent(row[1].late_compute_rounds / max(row[1].rounds, 1))),
    ("kept or on time", lambda row: row[1].responses - row[1].late_responses),
    ("late", lambda row: row[1].late_responses),
    ("refused", lambda row: row[1].refused),
    ("late devices", lambda row: f"{row[1].late_devices} of {row[1].devices}"),
)


def show_figures(figures: Sequence[Figures]) -> None:
    show_columns(
        "Goodput in tokens/s and kept responses, with 95 % intervals (stretches of time redrawn)", _RATES, figures
    )
    show_columns("Late rounds, responses and devices; times in ms", _LATENESS, figures)
    by_class = [(one, of_class) for one in figures for of_class in one.by_class]
    show_columns("By promised speed", _BY_CLASS, by_class)
    for one in figures:
        if one.off_record or one.faults:
            print(f"{one.policy}, {one.load}: {one.off_record} responses off record, {one.faults} faults")
