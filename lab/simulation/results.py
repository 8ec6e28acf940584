"""Results of a simulation, most of them by device.

Lateness is counted in three units:

- a *round* is late if it alone was slower than promised (WISP eq. 4); its cause is that of eq. 21;
- a *response* is late if it was slower than promised from its first token to its last (what a user feels);
- a *device* is late if over all its time it was given fewer tokens than ``speed * time``.

A response that is *unfinished* at the end counts in all three if even a full block committed at that moment would leave
it behind. A device without a first token is due tokens from the end of its grace on. So a starved device cannot drop
out of the statistics.

Best-effort devices are promised nothing and are never late. No speed is due in a first round (prompt to first token).
Everything counts from the warm-up on: commits after it, the time between them, and responses not over by then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from outrider.admission.decisions import AdmissionReport
from outrider.contracts.slo import SloClass
from outrider.scheduling.attribution import ViolationCause, round_is_late
from outrider.scheduling.policy import StopReason


@dataclass(slots=True, kw_only=True)
class DeviceCounts:
    """Counts of a device, or sums over several."""

    responses: int = 0  # those that ended, or were under way at the end
    late_responses: int = 0  # of these
    refused: int = 0  # refusals by admission; the device may have retried successfully
    rounds: int = 0  # committed, without first rounds; an open one that is late already counts
    late_queue_rounds: int = 0  # late because of queueing; ``late_compute_rounds``: because their batch took long
    late_compute_rounds: int = 0
    drafted_tokens: int = 0  # verified draft tokens of these rounds; ``accepted_tokens``: the accepted ones of them
    accepted_tokens: int = 0
    committed_tokens: int = 0  # all, first tokens included
    timed_tokens: int = 0  # committed after first tokens (or the warm-up), in ``timed_s``
    timed_s: float = 0.0

    @property
    def late_rounds(self) -> int:
        return self.late_queue_rounds + self.late_compute_rounds


@dataclass(slots=True, kw_only=True)
class DeviceResults(DeviceCounts):
    """Results of one device; complete once the run is over."""

    device: int  # its number
    group: str  # its group's name
    slo: SloClass
    unfinished: bool = False  # whether a response was going on at the end
    starved: bool = False  # whether even a full block would have left that one behind
    speeds_tokens_per_s: list[float] = field(default_factory=list)  # of each finished response

    @property
    def promised(self) -> bool:
        return self.slo.tokens_per_s > 0.0

    @property
    def late(self) -> bool:
        """Whether it was given less than promised over all its time."""
        return self.timed_tokens < self.slo.tokens_per_s * self.timed_s

    @property
    def achieved_tokens_per_s(self) -> float | None:
        """Mean speed after first tokens; None if no time counts yet."""
        return self.timed_tokens / self.timed_s if self.timed_s > 0.0 else None


@dataclass(slots=True, kw_only=True)
class ClassResults(DeviceCounts):
    """Sums over several devices, for instance those of one SLO class."""

    slo: SloClass
    devices: int
    late_devices: int
    achieved_tokens_per_s: float | None  # mean speed over all their time; None if none was due

    @property
    def device_violation_rate(self) -> float:
        """Share of devices that were given less than promised."""
        return _share(self.late_devices, self.devices)

    @property
    def response_violation_rate(self) -> float:
        """Share of responses that were late or refused; every refusal counts as a response of its own."""
        return _share(self.late_responses + self.refused, self.responses + self.refused)

    @property
    def round_violation_rate(self) -> float:
        """Share of rounds slower than promised: what WISP's tables count."""
        return _share(self.late_rounds, self.rounds)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of a set of times; all 0 of an empty set."""

    count: int
    mean_s: float
    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class PlanePoint:
    """One verification in the queue-compute plane (WISP Figure 8). ``cause`` is None if the round was not late."""

    queue_s: float
    verify_s: float
    tokens_per_s: float  # promised
    cause: ViolationCause | None


@dataclass(frozen=True, slots=True)
class BatchEntry:
    planned_at_s: float  # when the last plan before it was made
    starts_at_s: float  # it ends ``took_s`` later
    took_s: float
    predicted_s: float
    members: tuple[tuple[int, int], ...]  # device and round of each block, in the policy's order
    new_tokens: int  # positions computed; likewise ``cached_tokens`` read
    cached_tokens: int
    reason: StopReason

    @property
    def ends_at_s(self) -> float:
        return self.starts_at_s + self.took_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """Results of a run, simulated or measured.

    Attributes:
        round_times: from one commit of a response to its next, without first rounds; their parts are ``draft_times``
            (on the device), ``link_times``, ``queue_times`` and ``verify_times``.
    """

    measured_s: float  # from the warm-up to the end
    round_times: Percentiles
    draft_times: Percentiles
    link_times: Percentiles
    queue_times: Percentiles
    verify_times: Percentiles
    first_token_times: Percentiles  # from the request to the first token
    batch_sizes: tuple[tuple[int, int], ...]  # (blocks, batches of so many), ascending

    @property
    def mean_batch_blocks(self) -> float:
        batches = sum(count for _, count in self.batch_sizes)
        return _share(sum(size * count for size, count in self.batch_sizes), batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResults(RunResults):
    """Results of one run on the virtual clock.

    Attributes:
        simulated_rounds: of the whole run, warm-up and first rounds included; the measure of the simulator's own speed.
    """

    stop_reasons: tuple[tuple[StopReason, int], ...]  # (why a batch stopped growing, batches)
    name: str  # the scenario's; likewise ``system`` and ``seed``
    system: str
    seed: int
    devices: tuple[DeviceResults, ...]  # by number
    batches: int  # begun after the warm-up
    busy_s: float  # time the verifier computed after the warm-up
    predicted_s: float  # predicted time of its passes
    evictions: int  # times a sequence lost KV to others
    recomputed_tokens: int  # positions computed again because of that, or because no KV is kept
    plane: tuple[PlanePoint, ...]  # a sample, evenly spread over the run
    batch_log: tuple[BatchEntry, ...]  # every batch of the whole run, if the scenario asks for it
    simulated_rounds: int
    swapped_out_blocks: int = 0  # KV blocks copied to host memory; ``swapped_in_blocks``: copied back
    swapped_in_blocks: int = 0
    admission: AdmissionReport | None = None  # at the end

    @property
    def goodput_tokens_per_s(self) -> float:
        """Committed tokens of all devices per second."""
        return _share(sum(device.committed_tokens for device in self.devices), self.measured_s)

    @property
    def rounds(self) -> int:
        """Sum of ``DeviceCounts.rounds`` over all devices."""
        return sum(device.rounds for device in self.devices)

    @property
    def busy_share(self) -> float:
        return _share(self.busy_s, self.measured_s)

    @property
    def promised(self) -> ClassResults:
        return promised(self.devices)

    def by_class(self) -> tuple[ClassResults, ...]:
        return by_class(self.devices)


def promised(devices: Sequence[DeviceResults]) -> ClassResults:
    """Sum up all devices with a promise (all devices if none has one); ``slo`` is that of the first."""
    return summary([device for device in devices if device.promised] or devices)


def by_class(devices: Sequence[DeviceResults]) -> tuple[ClassResults, ...]:
    """Sum up devices by SLO class, the slowest promise first."""
    classes = sorted({device.slo for device in devices}, key=lambda slo: (slo.tokens_per_s, slo.name))
    return tuple(summary([device for device in devices if device.slo == slo]) for slo in classes)


def summary(devices: Sequence[DeviceResults]) -> ClassResults:
    """Sum up the figures of at least one device; ``slo`` is that of the first."""
    total = {one.name: sum(getattr(device, one.name) for device in devices) for one in fields(DeviceCounts)}
    return ClassResults(
        slo=devices[0].slo,
        devices=len(devices),
        late_devices=sum(device.late for device in devices),
        achieved_tokens_per_s=total["timed_tokens"] / total["timed_s"] if total["timed_s"] > 0.0 else None,
        **total,
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


@dataclass(slots=True, eq=False)
class DeviceAccount:
    results: DeviceResults
    since_s: float = 0.0  # from when the speed of the response under way is measured
    open_tokens: int = 0  # its tokens since then; the last came ``open_s`` after ``since_s``
    open_s: float = 0.0

    @property
    def slo(self) -> SloClass:
        return self.results.slo

    @property
    def tokens_per_s(self) -> float:
        return self.results.slo.tokens_per_s

    def first_tokens(self, now_s: float, *, measured: bool) -> None:
        """Count a response's first token; its speed is measured from here."""
        self.since_s, self.open_tokens, self.open_s = now_s, 0, 0.0
        self.results.committed_tokens += measured

    def round_committed(self, tokens: int, now_s: float, *, measured: bool) -> None:
        """Count a round after the first token; before the warm-up's end it only moves ``since_s``."""
        if measured:
            self.results.committed_tokens += tokens
            self.open_tokens += tokens
            self.open_s = now_s - self.since_s
        else:
            self.since_s = now_s

    def judge_round(self, drafted: int, accepted: int, round_s: float, cause: ViolationCause) -> bool:
        self.results.rounds += 1
        self.results.drafted_tokens += drafted
        self.results.accepted_tokens += accepted
        late = round_is_late(self.tokens_per_s, accepted + 1, round_s)
        if late:
            self._count_late(cause)
        return late

    def end_response(self, *, measured: bool) -> None:
        if measured:
            self._count_response()
            if self.open_s > 0.0:
                self.results.speeds_tokens_per_s.append(self.open_tokens / self.open_s)
        self.open_tokens, self.open_s = 0, 0.0

    def close(self, began_at_s: float, due_from_s: float | None, most: int, end_s: float) -> None:
        """Count a response that is unfinished at the end of the run.

        It is starved if even a whole block committed now would leave it behind its promise. Then the time until now
        counts for it, and its open round counts as late if it alone is late already.

        Args:
            began_at_s: when its open round began.
            due_from_s: from when tokens are due; None if its first token came, and ``since_s`` counts.
            most: tokens due that the open round can commit at most.
            end_s: the end of the run.
        """
        since_s = self.since_s if due_from_s is None else due_from_s
        self.results.unfinished = True
        self.results.starved = self.open_tokens + most < self.tokens_per_s * (end_s - since_s)
        if self.results.starved:
            self.open_s = end_s - since_s
            if round_is_late(self.tokens_per_s, most, end_s - max(began_at_s, since_s)):
                self.results.rounds += 1
                self._count_late(ViolationCause.QUEUE)
        self._count_response()

    def _count_response(self) -> None:
        self.results.responses += 1
        self.results.late_responses += self.open_tokens < self.tokens_per_s * self.open_s
        self.results.timed_tokens += self.open_tokens
        self.results.timed_s += self.open_s

    def _count_late(self, cause: ViolationCause) -> None:
        if cause is ViolationCause.QUEUE:
            self.results.late_queue_rounds += 1
        else:
            self.results.late_compute_rounds += 1
