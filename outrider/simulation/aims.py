"""What the scheduling policy is to reach: devices served beside first come first served with the same kept KV.

Where time alone is short: memory for everybody, at most a tenth of the responses of the worst class slower than
promised. Both policies serve the same devices with the same luck, each number of devices once for each seed.

The *bound* is what a policy could serve that wasted nothing: the largest goodput that any run of the row had, over the
mean promise. Above it responses would have to be late however they are ordered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from outrider.contracts.cost import DEFAULT_COST_MODEL, CostModel
from outrider.simulation.capacity import capacity
from outrider.simulation.experiment import unkept_rate
from outrider.simulation.published import SPEEDS_TOKENS_PER_S, TABLE_12
from outrider.simulation.results import SimulationResults
from outrider.simulation.run import simulate
from outrider.simulation.settings import WITHOUT_LIMIT, Costs, Settings, Variant, preset, scenario_of
from outrider.simulation.stop_map import FLASH

_MOST_DEVICES = 1024
_STEP = 1.06  # of the search, from where it begins
_EPSILON = 0.1


@dataclass(frozen=True, slots=True)
class Aim:
    """One setting.

    Attributes:
        multiple: of the devices that first come first served serves; to be reached.
        guess: of these devices, for the search to begin at.
    """

    name: str
    settings: Settings
    cost_model: CostModel
    speeds_tokens_per_s: tuple[float, ...]
    multiple: float
    guess: int

    @property
    def tokens_per_s(self) -> float:
        """Promised, mean of the devices."""
        return fmean(self.speeds_tokens_per_s)


@dataclass(frozen=True, slots=True)
class AimRun:
    """One aim with one seed, as a pure function has it."""

    aim: Aim
    seed: int = 0
    responses: float = 1.5  # of each device, behind the warm-up
    resolution: float = 0.015


@dataclass(frozen=True, slots=True)
class PolicyCapacity:
    """What one policy serves; first-token times are of a run with so many devices."""

    devices: int
    first_token_p99_s: float
    tried: tuple[tuple[int, float], ...]  # every number of devices with the worst class's share of late responses


@dataclass(frozen=True, slots=True)
class AimResult:
    """Both policies, side by side."""

    name: str
    aim: float  # multiple
    seed: int
    fcfs: PolicyCapacity
    ours: PolicyCapacity
    same_load_first_token_p99_s: float  # ours, with the devices that first come first served serves
    bound_devices: float

    @property
    def multiple(self) -> float:
        """Ours over first come first served."""
        return self.ours.devices / self.fcfs.devices if self.fcfs.devices else float("inf")

    @property
    def bound_share(self) -> float:
        """Ours over the bound."""
        return self.ours.devices / self.bound_devices


def aims() -> tuple[Aim, ...]:
    """All of them; the last one asks for no more than not to lose."""
    wisp = replace(preset("wisp_table_2"), kv_tokens=WITHOUT_LIMIT, epsilon=_EPSILON)
    embedded = replace(preset("embedded"), kv_tokens=WITHOUT_LIMIT, epsilon=_EPSILON)
    less_accepted, slow = replace(wisp, token_acceptance=0.732, window=8), replace(wisp, draft_tokens_per_s=20.0)
    mixed = SPEEDS_TOKENS_PER_S
    return (
        Aim("mixed", wisp, TABLE_12, mixed, 1.55, 160),
        Aim("acceptance", less_accepted, FLASH, mixed, 1.5, 130),
        Aim("slow", slow, TABLE_12, mixed, 1.5, 126),
        Aim("embedded", embedded, DEFAULT_COST_MODEL, (0.5, 1.0, 2.0), 1.45, 24),
        Aim("embedded-1", embedded, DEFAULT_COST_MODEL, (1.0,), 1.5, 39),
        Aim("one-class", wisp, TABLE_12, (8.0,), 1.0, 158),
    )


def run_aim(work: AimRun) -> AimResult:
    fcfs, ours = _PolicyRuns(work, Variant.KV), _PolicyRuns(work, Variant.SCHEDULER)
    first = fcfs.served(work.aim.guess)
    second = ours.served(round(work.aim.multiple * max(first.devices, 1)))
    same_load = ours.run(max(first.devices, 1)).first_token_times.p99_s
    goodput = max(found.goodput_tokens_per_s for found in (*fcfs.made.values(), *ours.made.values()))
    bound = goodput / work.aim.tokens_per_s
    return AimResult(work.aim.name, work.aim.multiple, work.seed, first, second, same_load, bound)


class _PolicyRuns:
    """Of one policy; each number of devices once."""

    def __init__(self, work: AimRun, variant: Variant) -> None:
        self.made: dict[int, SimulationResults] = {}
        self._work, self._variant = work, variant

    def run(self, devices: int) -> SimulationResults:
        if devices not in self.made:
            aim, costs = self._work.aim, Costs(self._work.aim.cost_model, self._work.aim.cost_model)
            speeds, seed, responses = aim.speeds_tokens_per_s, self._work.seed, self._work.responses
            self.made[devices] = simulate(
                scenario_of(aim.settings, costs, self._variant, speeds, devices, seed, responses)
            )
        return self.made[devices]

    def served(self, guess: int) -> PolicyCapacity:
        """The most devices that keep the promise."""
        settings, resolution = self._work.aim.settings, self._work.resolution
        found = capacity(
            self._rate, settings.epsilon, _MOST_DEVICES, guess, resolution, first_step=_STEP, look_beyond=False
        )
        return PolicyCapacity(found.devices, self.run(max(found.devices, 1)).first_token_times.p99_s, found.tried)

    def _rate(self, devices: int) -> float:
        return unkept_rate(self.run(devices), self._work.aim.settings.first_token_s)


@dataclass(frozen=True, slots=True)
class AimSummary:
    """One aim over its seeds."""

    name: str
    aim: float
    fcfs_devices: tuple[int, ...]  # by seed; likewise ``devices`` and ``multiples``
    devices: tuple[int, ...]
    multiples: tuple[float, ...]
    bound_share: float  # mean; likewise the times
    fcfs_first_token_p99_s: float
    first_token_p99_s: float
    same_load_first_token_p99_s: float

    @property
    def multiple(self) -> float:
        return fmean(self.multiples)

    @property
    def reached(self) -> bool:
        """Whether it is, on average."""
        return self.multiple >= self.aim


def summaries(results: Sequence[AimResult]) -> list[AimSummary]:
    """One for each aim, in the order in which they come."""
    found = []
    for name in dict.fromkeys(result.name for result in results):
        own = [result for result in results if result.name == name]
        found.append(
            AimSummary(
                name=name,
                aim=own[0].aim,
                fcfs_devices=tuple(one.fcfs.devices for one in own),
                devices=tuple(one.ours.devices for one in own),
                multiples=tuple(one.multiple for one in own),
                bound_share=fmean(one.bound_share for one in own),
                fcfs_first_token_p99_s=fmean(one.fcfs.first_token_p99_s for one in own),
                first_token_p99_s=fmean(one.ours.first_token_p99_s for one in own),
                same_load_first_token_p99_s=fmean(one.same_load_first_token_p99_s for one in own),
            )
        )
    return found
