"""Run a capacity experiment: capacities of systems at promised speeds, and results of mixed SLO classes."""

from dataclasses import dataclass
from enum import StrEnum

from lab.simulation.capacity import capacity
from lab.simulation.planning import DraftSetting, outlook, resident_devices, target_alone
from lab.simulation.results import ClassResults, PlanePoint, SimulationResults
from lab.simulation.run import simulate
from lab.simulation.settings import Settings, Variant, drafted_by, group_of, scenario_of, verifier_of
from outrider.contracts.cost import CostModel
from outrider.contracts.slo import SloClass

_MOST_DEVICES = 1024
_PLANE_POINTS = 1000


class Measure(StrEnum):
    """The unit in which violations are counted."""

    RESPONSE = "response"  # slower than promised from its first token to its last: what a user feels
    ROUND = "round"  # a round that alone is slower than promised (WISP eq. 4)
    DEVICE = "device"  # a device that got less than promised over the whole run


@dataclass(frozen=True, slots=True)
class CostCase:
    name: str
    source: str  # where its figures come from, for the reader
    settings: Settings
    costs: CostModel


@dataclass(frozen=True, slots=True)
class Case(CostCase):
    speeds_tokens_per_s: tuple[float, ...]
    variants: tuple[Variant, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """Input of one search: a system at one promised speed, or at several with evenly many devices."""

    case: Case
    variant: Variant
    speeds_tokens_per_s: tuple[float, ...]
    seed: int = 0
    responses: float = 2.0
    resolution: float = 0.0


@dataclass(frozen=True, slots=True)
class CellResult:
    """Result of a search. Figures from ``violation_rates`` on are of the run with ``devices`` (1 if none is served)."""

    costs_name: str
    variant: Variant
    speeds_tokens_per_s: tuple[float, ...]
    devices: int  # most that keep the promise
    draft: str  # of a round, by class
    tried: tuple[tuple[int, float], ...]  # every number of devices with its violation rate
    bounded: bool  # the search ended at the largest number it may try
    violation_rates: dict[str, float]  # by measure
    goodput_tokens_per_s: float  # of all devices together
    busy_share: float  # of the verifier's time; ``mean_blocks`` of a batch, ``evictions`` of resident sequences
    mean_blocks: float
    evictions: int
    first_token_p99_s: float
    simulated_rounds: int  # of all runs of the search


def violation_rate(found: ClassResults, measure: Measure) -> float:
    if measure is Measure.RESPONSE:
        return found.response_violation_rate
    return found.round_violation_rate if measure is Measure.ROUND else found.device_violation_rate


def worst_rate(results: SimulationResults, measure: Measure) -> float:
    """Return the worst class's rate: one class's kept promises do not make up for another's."""
    return max(violation_rate(found, measure) for found in results.by_class())


def unkept_rate(results: SimulationResults, first_token_s: float) -> float:
    """Return the worst class's share of late responses; 1 if the p99 of first-token times exceeds ``first_token_s``."""
    slow_start = results.first_token_times.p99_s > first_token_s
    return 1.0 if slow_start else worst_rate(results, Measure.RESPONSE)


def run_cell(cell: Cell) -> CellResult:
    """Search one cell's capacity; a pure function of the cell."""
    runs: dict[int, SimulationResults] = {}

    def rate(devices: int) -> float:
        if devices not in runs:
            runs[devices] = run(cell, devices)
        return unkept_rate(runs[devices], cell.case.settings.first_token_s)

    found = capacity(rate, cell.case.settings.epsilon, _MOST_DEVICES, first_guess(cell), cell.resolution)
    shown = found.devices or 1
    rate(shown)
    results = runs[shown]
    return CellResult(
        costs_name=cell.case.name,
        variant=cell.variant,
        speeds_tokens_per_s=cell.speeds_tokens_per_s,
        devices=found.devices,
        draft=drafts_of(cell),
        tried=found.tried,
        bounded=found.bounded,
        violation_rates={measure.value: worst_rate(results, measure) for measure in Measure},
        goodput_tokens_per_s=results.goodput_tokens_per_s,
        busy_share=results.busy_share,
        mean_blocks=results.mean_batch_blocks,
        evictions=results.evictions,
        first_token_p99_s=results.first_token_times.p99_s,
        simulated_rounds=sum(one.simulated_rounds for one in runs.values()),
    )


def run(cell: Cell, devices: int) -> SimulationResults:
    case, speeds = cell.case, cell.speeds_tokens_per_s
    return simulate(scenario_of(case.settings, case.costs, cell.variant, speeds, devices, cell.seed, cell.responses))


def first_guess(cell: Cell) -> int:
    """Guess a cell's capacity by closed forms, within KV memory; SLED serves about a fifth, as it keeps no KV."""
    verifier = verifier_of(cell.case.settings, cell.case.costs)
    speed = sum(cell.speeds_tokens_per_s) / len(cell.speeds_tokens_per_s)
    group = drafted_by(cell.variant, group_of(cell.case.settings, SloClass("mean", speed), 1), verifier)
    if cell.variant is Variant.CENTRALIZED:
        devices = target_alone(group, verifier, speed).devices
    else:
        devices = outlook(group, verifier, DraftSetting(group.window, group.expansion), speed).devices
    most = resident_devices(group, verifier)
    return max(1, int(min(devices if cell.variant is not Variant.SLED else devices / 5, most)))


def drafts_of(cell: Cell) -> str:
    if cell.variant is Variant.CENTRALIZED:
        return "none"
    verifier = verifier_of(cell.case.settings, cell.case.costs)
    drafts = []
    for speed in cell.speeds_tokens_per_s:
        group = drafted_by(cell.variant, group_of(cell.case.settings, SloClass("class", speed), 1), verifier)
        stops = ", predictor" if group.predictor else ""
        drafts.append(str(DraftSetting(group.window, group.expansion)) + stops)
    return "; ".join(dict.fromkeys(drafts))


@dataclass(frozen=True, slots=True)
class LoadResult:
    variant: Variant
    devices: int
    by_class: tuple[ClassResults, ...]  # the slowest promise first
    goodput_tokens_per_s: float
    busy_share: float
    round_p50_s: float
    round_p99_s: float
    first_token_p99_s: float
    plane: tuple[PlanePoint, ...]  # a sample of verifications (WISP Figure 8)


def run_load(work: tuple[Cell, int]) -> LoadResult:
    """Run a cell with a number of devices; a pure function of both."""
    cell, devices = work
    found = run(cell, devices)
    return LoadResult(
        variant=cell.variant,
        devices=devices,
        by_class=found.by_class(),
        goodput_tokens_per_s=found.goodput_tokens_per_s,
        busy_share=found.busy_share,
        round_p50_s=found.round_times.p50_s,
        round_p99_s=found.round_times.p99_s,
        first_token_p99_s=found.first_token_times.p99_s,
        plane=found.plane[:: max(1, len(found.plane) // _PLANE_POINTS)],
    )
