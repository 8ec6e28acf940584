"""What a simulation found: plain data, most of it by device.

Lateness, four ways:

- *a round* is late if it alone was slower than promised (WISP eq. 4), its cause as eq. 21 has it;
- *a response* is late if from its first token to its last it was slower than promised (what a user feels);
- *a device* is late if over all it was promised it was given less: tokens against ``speed * time``;
- what is *unfinished* at the end counts in all three if even a full block committed at that moment would leave it
  behind, and a device that got no first token is owed tokens from the end of its grace on. So a starved device cannot
  drop out of the statistics.

Best-effort devices are promised nothing and are never late. A first round (prompt to first token) owes no speed.
Everything counts from the warm-up on: commits after it, the time between them, and responses not over by then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from outrider.admission.decisions import AdmissionReport
from outrider.contracts.slo import SloClass
from outrider.scheduling.attribution import ViolationCause
from outrider.scheduling.policy import StopReason
from outrider.selection.speculation_tuner import TunerReport


@dataclass(slots=True, kw_only=True)
class DeviceCounts:
    """What a device was given, or several taken together."""

    responses: int = 0  # that ended, or were going on at the end
    late_responses: int = 0  # of these
    refused: int = 0  # times that a response was not let in; its device may have come back later
    rounds: int = 0  # committed, without first rounds; an open one that is late already counts
    late_queue_rounds: int = 0  # late for want of a place in a batch; ``late_compute_rounds``: as their batch took long
    late_compute_rounds: int = 0
    drafted_tokens: int = 0  # of these rounds, and verified; likewise ``accepted_tokens``
    accepted_tokens: int = 0
    committed_tokens: int = 0  # all, first tokens included
    timed_tokens: int = 0  # committed after first tokens (or the warm-up); ``timed_s``: in so much time
    timed_s: float = 0.0

    @property
    def late_rounds(self) -> int:
        """Late for either cause."""
        return self.late_queue_rounds + self.late_compute_rounds


@dataclass(slots=True, kw_only=True)
class DeviceResults(DeviceCounts):
    """One device; complete once the run is over."""

    device: int  # its number
    group: str  # its group's name
    slo: SloClass
    unfinished: bool = False  # whether a response was going on at the end
    starved: bool = False  # whether that one was hopelessly behind by then
    speeds_tokens_per_s: list[float] = field(default_factory=list)  # of each finished response

    @property
    def promised(self) -> bool:
        """Whether it was promised a speed."""
        return self.slo.tokens_per_s > 0.0

    @property
    def late(self) -> bool:
        """Whether it was given less than promised, over all."""
        return self.timed_tokens < self.slo.tokens_per_s * self.timed_s

    @property
    def achieved_tokens_per_s(self) -> float | None:
        """Mean speed behind first tokens; None if none was due yet."""
        return self.timed_tokens / self.timed_s if self.timed_s > 0.0 else None


@dataclass(slots=True, kw_only=True)
class ClassResults(DeviceCounts):
    """Devices taken together, those of one SLO class for instance."""

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
        """Share of responses slower than promised, or refused: each time a response was not let in is one asked for."""
        return _share(self.late_responses + self.refused, self.responses + self.refused)

    @property
    def round_violation_rate(self) -> float:
        """Share of rounds slower than promised: what WISP's tables count."""
        return _share(self.late_rounds, self.rounds)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of a set of times; all 0 of none."""

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
    planned_at_s: float  # when it was decided on
    starts_at_s: float  # when it began; at ``ends_at_s``, ``took_s`` later, it was over
    took_s: float
    predicted_s: float
    members: tuple[tuple[int, int], ...]  # device and round of each block, in the policy's order
    new_tokens: int  # positions computed; likewise ``cached_tokens`` read
    cached_tokens: int
    reason: StopReason

    @property
    def ends_at_s(self) -> float:
        """When it is over."""
        return self.starts_at_s + self.took_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """A run, simulated or measured.

    Attributes:
        round_times: from one commit of a response to its next, first rounds aside; their parts are ``draft_times``
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
    stop_reasons: tuple[tuple[StopReason, int], ...]  # (why a batch stopped growing, batches)

    @property
    def mean_batch_blocks(self) -> float:
        batches = sum(count for _, count in self.batch_sizes)
        return _share(sum(size * count for size, count in self.batch_sizes), batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResults(RunResults):
    """One run on the virtual clock.

    Attributes:
        simulated_rounds: of the whole run, warm-up and first rounds included: what a simulator's speed is measured by.
    """

    name: str  # the scenario's; likewise ``system`` and ``seed``
    system: str
    seed: int
    devices: tuple[DeviceResults, ...]  # by number
    batches: int  # begun after the warm-up
    busy_s: float  # the verifier computed in that time
    predicted_s: float  # what its passes were predicted to take
    evictions: int  # times a sequence lost KV for want of memory
    recomputed_tokens: int  # positions computed again because of that, or because no KV is kept
    plane: tuple[PlanePoint, ...]  # a sample, evenly spread over the run
    batch_log: tuple[BatchEntry, ...]  # every batch of the whole run, if the scenario asks for it
    simulated_rounds: int
    tuner: TunerReport | None = None  # at the end
    swapped_out_blocks: int = 0  # of KV copied to host memory for want of memory; ``swapped_in_blocks`` back
    swapped_in_blocks: int = 0
    admission: AdmissionReport | None = None  # likewise

    @property
    def goodput_tokens_per_s(self) -> float:
        """Committed tokens of all devices per second."""
        return _share(sum(device.committed_tokens for device in self.devices), self.measured_s)

    @property
    def rounds(self) -> int:
        """As ``DeviceCounts.rounds``, of all devices."""
        return sum(device.rounds for device in self.devices)

    @property
    def busy_share(self) -> float:
        """Of the verifier's time."""
        return _share(self.busy_s, self.measured_s)

    @property
    def promised(self) -> ClassResults:
        return promised(self.devices)

    def by_class(self) -> tuple[ClassResults, ...]:
        return by_class(self.devices)


def promised(devices: Sequence[DeviceResults]) -> ClassResults:
    """All devices that were promised a speed, taken together; ``slo`` is one of theirs."""
    return summary([device for device in devices if device.promised] or devices)


def by_class(devices: Sequence[DeviceResults]) -> tuple[ClassResults, ...]:
    """By SLO class, the slowest promise first."""
    classes = sorted({device.slo for device in devices}, key=lambda slo: (slo.tokens_per_s, slo.name))
    return tuple(summary([device for device in devices if device.slo == slo]) for slo in classes)


def summary(devices: Sequence[DeviceResults]) -> ClassResults:
    """At least one device's figures, added up."""
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
