"""Targets for the scheduling policy: its capacity as a multiple of first come, first served's (FCFS).

Only the verifier's time is short: KV memory has no limit. A promise is kept if at most a tenth of the worst class's
responses are late. Both policies serve the same devices with the same random draws, one run by number and seed.

The *bound* is the capacity of a policy without waste: the largest goodput of any run of the row, over the mean promised
speed. With more devices some responses are late in any order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from lab.simulation.capacity import capacity
from lab.simulation.experiment import unkept_rate
from lab.simulation.published import SPEEDS_TOKENS_PER_S, TABLE_12
from lab.simulation.results import SimulationResults
from lab.simulation.run import simulate
from lab.simulation.settings import WITHOUT_LIMIT, Costs, Settings, Variant, preset, scenario_of
from lab.simulation.stop_map import FLASH
from outrider.contracts.cost import DEFAULT_COST_MODEL, CostModel

_MOST_DEVICES = 1024
_STEP = 1.06  # of the search, from where it begins
_EPSILON = 0.1


@dataclass(frozen=True, slots=True)
class Aim:
    """One setting with its target.

    Attributes:
        multiple: of FCFS's capacity, to be reached.
        guess: of FCFS's capacity, where the search begins.
    """

    name: str
    settings: Settings
    cost_model: CostModel
    speeds_tokens_per_s: tuple[float, ...]
    multiple: float
    guess: int

    @property
    def tokens_per_s(self) -> float:
        return fmean(self.speeds_tokens_per_s)


@dataclass(frozen=True, slots=True)
class AimRun:
    """Input of ``run_aim``: one aim with one seed."""

    aim: Aim
    seed: int = 0
    responses: float = 1.5  # of each device, behind the warm-up
    resolution: float = 0.015


@dataclass(frozen=True, slots=True)
class PolicyCapacity:
    """Capacity of one policy; first-token times are of a run with this number of devices."""

    devices: int
    first_token_p99_s: float
    tried: tuple[tuple[int, float], ...]  # every number of devices with the worst class's share of late responses


@dataclass(frozen=True, slots=True)
class AimResult:
    """Capacities of both policies."""

    name: str
    aim: float  # multiple
    seed: int
    fcfs: PolicyCapacity
    ours: PolicyCapacity
    same_load_first_token_p99_s: float  # ours, at FCFS's capacity
    bound_devices: float

    @property
    def multiple(self) -> float:
        """Our capacity over FCFS's; infinite if that is 0."""
        return self.ours.devices / self.fcfs.devices if self.fcfs.devices else float("inf")

    @property
    def bound_share(self) -> float:
        """Our capacity over the bound."""
        return self.ours.devices / self.bound_devices


def aims() -> tuple[Aim, ...]:
    """Return all aims; the last one only asks for no loss."""
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
    """Runs of one policy; each number of devices is run once."""

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
        """Search the policy's capacity from a guess."""
        settings, resolution = self._work.aim.settings, self._work.resolution
        found = capacity(
            self._rate, settings.epsilon, _MOST_DEVICES, guess, resolution, first_step=_STEP, look_beyond=False
        )
        return PolicyCapacity(found.devices, self.run(max(found.devices, 1)).first_token_times.p99_s, found.tried)

    def _rate(self, devices: int) -> float:
        return unkept_rate(self.run(devices), self._work.aim.settings.first_token_s)


@dataclass(frozen=True, slots=True)
class AimSummary:
    """One aim, averaged over its seeds."""

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
        """Whether the mean multiple reaches the aim."""
        return self.multiple >= self.aim


def summaries(results: Sequence[AimResult]) -> list[AimSummary]:
    """Summarise results by aim, in the order of their first occurrence."""
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
