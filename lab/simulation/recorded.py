"""Validate the simulator: replay a workload that was recorded on a real cluster and compare round times.

A record has what devices did (drafts, accepted tokens, drafting times, message sizes, pauses) and the times of batches.
The replay takes the devices' part as given and simulates the rest: delivery, batching, queueing and commits.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import numpy.typing as npt

from lab.simulation.device import SimDevice
from lab.simulation.device_account import DeviceAccount
from lab.simulation.drafted_rounds import SimDraft, SimResponse
from lab.simulation.results import DeviceResults, SimulationResults
from lab.simulation.run import EventLoop
from lab.simulation.scenario import VerifierModel
from lab.simulation.server import SimulatedServer
from lab.simulation.systems import SystemRules
from lab.simulation.tally import RunTally
from outrider.contracts.cost import BatchWork, CostModel, Seconds, VerifyCost, work_of
from outrider.contracts.slo import BEST_EFFORT, SloClass
from outrider.link.emulator import LinkEmulator
from outrider.link.profiles import LinkProfile
from outrider.scheduling.registry import Scheduling
from outrider.selection.situation import SpeedPromise


@dataclass(frozen=True, slots=True)
class RecordedDevice:
    responses: tuple[
        tuple[SimResponse, tuple[SimDraft, ...]], ...
    ]  # in order, each with its rounds after the first token
    slo: SloClass = BEST_EFFORT
    link: LinkProfile | None = None  # the emulated link; None delivered at once
    link_seed: int = 0  # of its emulator
    exchange_s: float = 0.0  # seconds of every exchange beyond link and drafting steps


@dataclass(frozen=True, slots=True)
class WorkloadRecord:
    """A recorded run.

    Attributes:
        batches: of each forward pass: the cost of its blocks, and seconds inside the engine.
    """

    name: str  # given by the writer
    devices: tuple[RecordedDevice, ...]
    round_s: tuple[float, ...]  # measured seconds of all rounds, from the commit before to their own
    batches: tuple[tuple[tuple[VerifyCost, ...], float], ...]


class RecordedWorkload:
    """A ``Workload`` that repeats what a recorded device did."""

    def __init__(self, device: RecordedDevice) -> None:
        """Begin with the record's first response."""
        self.autonomous_rounds, self.follows_tuner = 0, False
        self._responses = iter(device.responses)
        self._rounds: Iterator[SimDraft] = iter(())

    def begin(self) -> SimResponse | None:
        """The next response of the record."""
        response, rounds = next(self._responses, (None, ()))
        self._rounds = iter(rounds)
        return response

    def draft(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> SimDraft:  # noqa: ARG002
        """Return the recorded draft, whatever the arguments."""
        return next(self._rounds)

    def stays_autonomous(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> bool:  # noqa: ARG002
        """Return False: each recorded round is ordered."""
        return False

    def cut(self, tokens: int) -> None:
        """Do nothing: acceptance is not learned here."""


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """A cost model that returns measured times of known batches, and another model's predictions of the rest.

    Attributes:
        measured_s: median seconds by new tokens, interactions and cached tokens of a batch.
    """

    otherwise: CostModel  # the other model; its guard time is used
    measured_s: Mapping[tuple[int, int, int], float] = field(default_factory=dict)

    def predict_s(self, batch: Sequence[VerifyCost]) -> float:
        """Return the measured time of batches with the same sums, else the other model's."""
        return self.predict_work_s(work_of(batch))

    def predict_work_s(self, work: tuple[int, int, int]) -> float:
        """Return the measured time of these sums, else the other model's."""
        known = self.measured_s.get(work)
        return self.otherwise.predict_work_s(work) if known is None else known

    def predict_works_s(self, works: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Predict ``[n, 3]`` sums one by one, as only some are measured; return ``[n]`` seconds."""
        known = [BatchWork(*(int(number) for number in row)) for row in works.tolist()]
        return np.array([self.predict_work_s(work) for work in known])

    def guard_s(self, predicted_s: Seconds) -> Seconds:
        """Return the other model's guard time, as a median says nothing of spread."""
        return self.otherwise.guard_s(predicted_s)


def measured_times(record: WorkloadRecord, otherwise: CostModel) -> MeasuredTimes:
    """Return a record's batches as a cost model."""
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
    """Run a record's devices to their end against a simulated verifier; ``seed`` is that of its pass times' noise."""
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
    """Compare a replay with its record, which has at least one round."""
    p50_s, p99_s = np.percentile(record.round_s, (50, 99)).tolist()
    times = results.round_times
    return ReplayComparison(len(record.round_s), p50_s, p99_s, times.p50_s, times.p99_s)
