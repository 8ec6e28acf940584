"""Figures of measured cells, by the definitions of ``outrider.simulation.results``.

So what a run measures and what the simulator says can be put side by side.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.capacity.emulated_devices import GROUP
from bench.capacity.log import CellLog, ResponseEntry, RoundEntry
from outrider.scheduling.attribution import ViolationCause
from outrider.scheduling.policy import StopReason
from outrider.simulation.device_account import DeviceAccount
from outrider.simulation.drafted_rounds import Draft
from outrider.simulation.results import ClassResults, DeviceResults, Percentiles, summary
from outrider.simulation.tally import percentiles


@dataclass(frozen=True, slots=True)
class Figures:
    """All repeats of a policy with so many users.

    Attributes:
        measured_s: of all repeats together.
        promised: all devices that were promised a speed; ``by_class`` the same by class, the slowest first.
        goodput_tokens_per_s: committed tokens per second.
        round_times: from one commit of a response to its next; likewise their parts, and ``first_token_times``.
        batch_sizes: (blocks, batches of so many), ascending.
        stop_reasons: (why a batch stopped growing, batches), the most frequent first, warm-ups included.
        busy_share: of the time, the verifier computed.
        off_record: responses with tokens that were not recorded, and ``faults`` of devices: both should be 0.
    """

    policy: str
    users: int
    measured_s: float
    promised: ClassResults
    by_class: tuple[ClassResults, ...]
    goodput_tokens_per_s: float
    round_times: Percentiles
    draft_times: Percentiles
    link_times: Percentiles
    queue_times: Percentiles
    verify_times: Percentiles
    first_token_times: Percentiles
    batch_sizes: tuple[tuple[int, int], ...]
    stop_reasons: tuple[tuple[StopReason, int], ...]
    busy_share: float
    off_record: int
    faults: int

    @property
    def mean_batch_blocks(self) -> float:
        """Blocks per batch."""
        return sum(size * count for size, count in self.batch_sizes) / max(sum(n for _, n in self.batch_sizes), 1)


def figures(logs: Sequence[CellLog], *, block_tokens: int, grace_s: float) -> Figures:
    """Figures of cells with the same policy and number of users.

    Args:
        logs: at least one.
        block_tokens: most tokens that a round can commit.
        grace_s: a device that waits longer for a first token is late from then on.
    """
    devices = [
        device_results(log, user, block_tokens=block_tokens, grace_s=grace_s)
        for log in logs
        for user in range(log.cell.users)
    ]
    measured_s = sum(log.measured_s for log in logs)
    rounds = [entry for log in logs for entry in _paced_rounds(log)]
    batches = [batch for log in logs for batch in log.batches if batch.sent_at_s >= log.warmup_s]
    classes = sorted({device.slo for device in devices}, key=lambda slo: (slo.tokens_per_s, slo.name))
    return Figures(
        policy=logs[0].cell.policy,
        users=logs[0].cell.users,
        measured_s=measured_s,
        promised=summary([device for device in devices if device.promised] or devices),
        by_class=tuple(summary([device for device in devices if device.slo == slo]) for slo in classes),
        goodput_tokens_per_s=sum(device.committed_tokens for device in devices) / measured_s,
        round_times=percentiles([gap_s for log in logs for gap_s in round_times_s(log)]),
        draft_times=percentiles([entry.timing.draft_s for entry in rounds]),
        link_times=percentiles([entry.timing.link_s for entry in rounds]),
        queue_times=percentiles([entry.timing.queue_s for entry in rounds]),
        verify_times=percentiles([entry.timing.verify_s for entry in rounds]),
        first_token_times=percentiles([wait_s for log in logs for wait_s in _first_token_times_s(log)]),
        batch_sizes=tuple(sorted(Counter(len(batch.members) for batch in batches).items())),
        stop_reasons=tuple(Counter(made.reason for log in logs for made in log.decisions).most_common()),
        busy_share=sum(batch.engine_s for batch in batches) / measured_s,
        off_record=sum(not response.as_recorded for log in logs for response in log.responses),
        faults=sum(len(log.faults) for log in logs),
    )


def device_results(log: CellLog, user: int, *, block_tokens: int, grace_s: float) -> DeviceResults:
    """One device in one cell."""
    account, starved, unfinished = DeviceAccount(), False, False
    responses = [response for response in log.responses if response.user == user]
    for response in responses:
        _give(account, response, log.warmup_s)
        if response.ended_at_s is None:
            unfinished = True
            starved = _close(account, response, log, block_tokens, grace_s)
    return account.results(user, GROUP, responses[0].slo, unfinished=unfinished, starved=starved)


def _give(account: DeviceAccount, response: ResponseEntry, warmup_s: float) -> None:
    """Count what a response was given; rounds are late as the coordinator judged them."""
    speed, first, measured = response.slo.tokens_per_s, True, False
    for entry in response.rounds:
        timing, measured = entry.timing, entry.committed_at_s >= warmup_s
        if first:
            account.first_tokens(entry.committed_at_s, measured=measured)
            first = False
            continue
        account.round_committed(timing.committed_tokens, entry.committed_at_s, measured=measured)
        if measured:
            draft = Draft(
                timing.drafted_tokens, timing.drafted_tokens, timing.accepted_tokens, timing.draft_s, 1.0, None
            )
            account.judge_round(speed, draft, timing.total_s, timing.late or ViolationCause.QUEUE)
    if response.ended_at_s is not None:
        account.end_response(speed, measured=measured)


def _close(account: DeviceAccount, response: ResponseEntry, log: CellLog, block_tokens: int, grace_s: float) -> bool:
    """Count what a response that goes on is owed; whether it is hopelessly behind."""
    if response.rounds:
        since_s, owed_from_s, most = response.rounds[-1].committed_at_s, None, block_tokens
    else:
        since_s, most = response.asked_at_s, 0
        owed_from_s = max(response.asked_at_s, log.warmup_s) + grace_s
    return account.close(response.slo.tokens_per_s, since_s, owed_from_s, most, log.ended_at_s)


def round_times_s(log: CellLog) -> list[float]:
    """From one commit of a response to its next, of those that count."""
    return [
        after.committed_at_s - before.committed_at_s
        for response in log.responses
        for before, after in pairwise(response.rounds)
        if after.committed_at_s > log.warmup_s
    ]


def _paced_rounds(log: CellLog) -> list[RoundEntry]:
    return [e for r in log.responses for e in r.rounds[1:] if e.committed_at_s > log.warmup_s]


def _first_token_times_s(log: CellLog) -> list[float]:
    return [
        response.rounds[0].committed_at_s - response.asked_at_s
        for response in log.responses
        if response.rounds and response.rounds[0].committed_at_s > log.warmup_s
    ]
