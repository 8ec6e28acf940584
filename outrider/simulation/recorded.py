"""A workload as it ran on a real cluster, and its replay in the simulator: does the simulator tell the truth?

A record holds what devices did (drafts, what was accepted, how long drafting took, message sizes, pauses) and what
batches took. The replay keeps the devices' part and computes the rest: delivery times, batches, waiting, commits.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import numpy.typing as npt

from outrider.contracts.cost import BatchWork, CostModel, Seconds, VerifyCost, work_of
from outrider.contracts.slo import BEST_EFFORT, SloClass
from outrider.link.emulator import LinkEmulator
from outrider.link.profiles import LinkProfile
from outrider.scheduling.registry import Scheduling
from outrider.selection.situation import SpeedPromise
from outrider.simulation.device import SimDevice
from outrider.simulation.device_account import DeviceAccount
from outrider.simulation.drafted_rounds import SimDraft, SimResponse
from outrider.simulation.results import DeviceResults, SimulationResults
from outrider.simulation.run import EventLoop
from outrider.simulation.scenario import VerifierModel
from outrider.simulation.server import SimulatedServer
from outrider.simulation.systems import SystemRules
from outrider.simulation.tally import RunTally


@dataclass(frozen=True, slots=True)
class RecordedDevice:
    responses: tuple[tuple[SimResponse, tuple[SimDraft, ...]], ...]  # in order, each with its rounds behind the first
    slo: SloClass = BEST_EFFORT
    link: LinkProfile | None = None  # it was emulated with; None delivered at once
    link_seed: int = 0  # of its emulator
    exchange_s: float = 0.0  # seconds of every exchange beyond link and drafting


@dataclass(frozen=True, slots=True)
class WorkloadRecord:
    """What ran.

    Attributes:
        batches: what each block of a forward pass cost, and the seconds inside the engine.
    """

    name: str  # the writer's
    devices: tuple[RecordedDevice, ...]
    round_s: tuple[float, ...]  # measured seconds of all rounds, from the commit before to their own
    batches: tuple[tuple[tuple[VerifyCost, ...], float], ...]


class RecordedWorkload:
    """A device that does again what it did (``outrider.simulation.drafted_rounds.Workload``)."""

    def __init__(self, device: RecordedDevice) -> None:
        """Begin at its first response."""
        self.alone_rounds, self.follows_tuner = 0, False
        self._responses = iter(device.responses)
        self._rounds: Iterator[SimDraft] = iter(())

    def begin(self) -> SimResponse | None:
        """The next response of the record."""
        response, rounds = next(self._responses, (None, ()))
        self._rounds = iter(rounds)
        return response

    def draft(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> SimDraft:  # noqa: ARG002
        """As recorded, whatever the state."""
        return next(self._rounds)

    def stays_alone(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> bool:  # noqa: ARG002
        """Never: each round is asked for."""
        return False

    def cut(self, tokens: int) -> None:
        """Nothing is learned from drafts."""


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """A cost model that knows batches which were measured, and asks another about the rest.

    Attributes:
        measured_s: median seconds by new tokens, interactions and cached tokens of a batch.
    """

    otherwise: CostModel  # the other model; its guard counts
    measured_s: Mapping[BatchWork, float] = field(default_factory=dict)

    def predict_s(self, batch: Sequence[VerifyCost]) -> float:
        """Measured, if a batch of the same sums was."""
        return self.predict_work_s(work_of(batch))

    def predict_work_s(self, work: BatchWork) -> float:
        """Measured, if these sums were."""
        known = self.measured_s.get(work)
        return self.otherwise.predict_work_s(work) if known is None else known

    def predict_works_s(self, works: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Batch by batch: some are measured and some are not."""
        known = [BatchWork(*(int(number) for number in row)) for row in works.tolist()]
        return np.array([self.predict_work_s(work) for work in known])

    def guard_s(self, predicted_s: Seconds) -> Seconds:
        """The other model's: a median says nothing of spread."""
        return self.otherwise.guard_s(predicted_s)


def measured_times(record: WorkloadRecord, otherwise: CostModel) -> MeasuredTimes:
    """The batches of a record as a cost model."""
    seconds: dict[BatchWork, list[float]] = defaultdict(list)
    for costs, engine_s in record.batches:
        seconds[work_of(costs)].append(engine_s)
    return MeasuredTimes(otherwise, {work: median(times) for work, times in seconds.items()})


def replay(
    record: WorkloadRecord,
    verifier: VerifierModel,
    scheduling: Scheduling,
    *,
    keeps_kv: bool = True,
    seed: int = 0,
) -> SimulationResults:
    """Run a record's devices against a simulated verifier, all of them to their end; ``seed`` is of its noise."""
    rules = SystemRules(scheduling, keeps_kv=keeps_kv)
    devices = []
    for number, device in enumerate(record.devices):
        link = None if device.link is None else LinkEmulator(device.link, device.link_seed)
        account = DeviceAccount(DeviceResults(device=number, group=device.slo.name, slo=device.slo))
        devices.append(SimDevice(account, RecordedWorkload(device), link, device.exchange_s))
    loop = EventLoop(devices, SimulatedServer(verifier, rules, seed), RunTally(0.0, keep_batch_log=True))
    loop.run()
    return loop.results(record.name, "replay", seed)


@dataclass(frozen=True, slots=True)
class ReplayComparison:
    """Round times as measured and as simulated."""

    rounds: int
    measured_p50_s: float
    measured_p99_s: float
    simulated_p50_s: float
    simulated_p99_s: float

    @property
    def p50_error(self) -> float:
        """Relative; positive if the simulator is slow."""
        return self.simulated_p50_s / self.measured_p50_s - 1.0

    @property
    def p99_error(self) -> float:
        return self.simulated_p99_s / self.measured_p99_s - 1.0


def compared(record: WorkloadRecord, results: SimulationResults) -> ReplayComparison:
    """A replay beside its record, which has a round at least."""
    p50_s, p99_s = np.percentile(record.round_s, (50, 99)).tolist()
    times = results.round_times
    return ReplayComparison(len(record.round_s), p50_s, p99_s, times.p50_s, times.p99_s)
