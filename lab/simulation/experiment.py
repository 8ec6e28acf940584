"""The capacity experiment: its cases (cost models with settings), capacities at promised speeds, and mixed classes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from lab.simulation.capacity import Capacity, capacity
from lab.simulation.planning import DraftSetting, outlook, resident_devices, target_alone
from lab.simulation.published import SPEEDS_TOKENS_PER_S, TABLE_12
from lab.simulation.results import ClassResults, PlanePoint, SimulationResults
from lab.simulation.roofline import HARDWARE, MEMORY_SHARE, MODELS, RooflineCostModel
from lab.simulation.run import simulate
from lab.simulation.settings import (
    ABLATION,
    WISP_CHANGES,
    WITHOUT_LIMIT,
    Settings,
    Tuning,
    Variant,
    drafted_by,
    group_of,
    preset,
    scenario_of,
    verifier_of,
)
from outrider.contracts.cost import DEFAULT_COST_MODEL, CostModel
from outrider.contracts.slo import SloClass

_MOST_DEVICES = 1024
_PLANE_POINTS = 1000
_FAR_STEP, NEAR_STEP = 1.25, 1.03  # of a search's guesses
_A100 = HARDWARE["a100-80gb"]

# Table 12, except that a cached token is read at the card's bandwidth instead of its authors' engine's.
FLASH = replace(
    TABLE_12, seconds_per_cached_token=MODELS["qwen3-32b"].kv_bytes_per_token / (MEMORY_SHARE * _A100.bytes_per_s)
)


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
    tuning: Tuning | None = None  # settings in place of the variant's own
    guess: int = 0  # count to begin with, which is near the capacity; 0 takes closed forms


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
    devices_apart: int  # the same where refusals are bounded by themselves, and are no late responses
    refused_share: float  # of requests, with ``devices_apart``
    apart_tokens_per_s: float  # goodput with ``devices_apart``


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


def unkept_rate_apart(results: SimulationResults, first_token_s: float) -> float:
    """Return the worst class's share of late responses among those begun, or of refusals if that is larger."""
    if results.first_token_times.p99_s > first_token_s:
        return 1.0
    late = max(found.late_responses / max(1, found.responses) for found in results.by_class())
    return max(late, *map(refused_share, results.by_class()))


def refused_share(found: ClassResults) -> float:
    return found.refused / max(1, found.responses + found.refused)


def run_cell(cell: Cell) -> CellResult:
    """Search one cell's capacity; a pure function of the cell."""
    runs: dict[int, SimulationResults] = {}

    def results_of(devices: int) -> SimulationResults:
        if devices not in runs:
            runs[devices] = run(cell, devices)
        return runs[devices]

    def search(rate: Callable[[SimulationResults, float], float], guess: int, first_step: float) -> Capacity:
        settings = cell.case.settings
        rates = partial(_rate_at, results_of, rate, settings.first_token_s)
        return capacity(rates, settings.epsilon, _MOST_DEVICES, guess, cell.resolution, first_step=first_step)

    step = NEAR_STEP if cell.guess else _FAR_STEP
    found = apart = search(unkept_rate, cell.guess or first_guess(cell), step)
    if any(one.refused for results in runs.values() for one in results.devices):
        apart = search(unkept_rate_apart, max(1, found.devices), NEAR_STEP)
    results, results_apart = results_of(found.devices or 1), results_of(apart.devices or 1)
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
        devices_apart=apart.devices,
        refused_share=max(map(refused_share, results_apart.by_class())),
        apart_tokens_per_s=results_apart.goodput_tokens_per_s,
    )


def _rate_at(
    results_of: Callable[[int], SimulationResults],
    rate: Callable[[SimulationResults, float], float],
    first_token_s: float,
    devices: int,
) -> float:
    return rate(results_of(devices), first_token_s)


def run(cell: Cell, devices: int) -> SimulationResults:
    case, speeds = cell.case, cell.speeds_tokens_per_s
    scenario = scenario_of(case.settings, case.costs, cell.variant, speeds, devices, cell.seed, cell.responses)
    return simulate(scenario if cell.tuning is None else cell.tuning.applied(scenario))


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


_MIXED_VARIANTS = (
    Variant.KV,
    *WISP_CHANGES,
    Variant.SCHEDULER,
    Variant.ADMISSION,
    Variant.CHAINS,
)
_LOADED = (Variant.KV, Variant.WISP, Variant.WISP_FAIR, Variant.SCHEDULER, Variant.CHAINS)


@dataclass(frozen=True, slots=True)
class CapacityFigures:
    cases: tuple[Case, ...]  # the first is WISP's own
    found: Mapping[tuple[str, Variant, float], CellResult]  # by case, system and promised speed
    mixed: Mapping[str, Sequence[CellResult]]  # results with all classes at once, by case and KV memory
    loads: tuple[LoadResult, ...]  # runs of the first case without a memory limit, over numbers of devices

    def devices(self, case: Case, variant: Variant, speed: float) -> int:
        return self.found[case.name, variant, speed].devices

    def multiple(self, case: Case, variant: Variant, over: Variant, speed: float) -> float | None:
        """Return the ratio of two capacities; None if ``over`` serves nobody."""
        base = self.devices(case, over, speed)
        return self.devices(case, variant, speed) / base if base else None

    def nearest_load(self, published: Sequence[float]) -> LoadResult | None:
        """Return the FCFS run whose rates of late rounds are nearest to the published ones; None if there is none."""
        runs = [load for load in self.loads if load.variant is Variant.KV and len(load.by_class) == len(published)]

        def distance(load: LoadResult) -> float:
            rates = [one.round_violation_rate for one in load.by_class]
            return sum((ours - theirs) ** 2 for ours, theirs in zip(rates, published, strict=True))

        return min(runs, key=distance, default=None)


def cases(*, quick: bool) -> list[Case]:
    """Return all cases, WISP's published coefficients first."""
    settings = preset("wisp_table_2")
    compared = (Variant.SLED, Variant.KV, Variant.CHAINS, Variant.WISP, Variant.WISP_FAIR, Variant.CENTRALIZED)
    return [
        Case(
            "table 12",
            "WISP Table 12: coefficients its authors fitted on their engine, one A100, Qwen3-32B",
            settings,
            TABLE_12,
            (8.0,) if quick else SPEEDS_TOKENS_PER_S,
            (*ABLATION, *WISP_CHANGES, Variant.PREDICTOR, Variant.CENTRALIZED),
        ),
        Case(
            "table 12, memory free",
            "WISP Table 12 again, with KV memory for everybody: what time alone allows",
            replace(settings, kv_tokens=WITHOUT_LIMIT),
            TABLE_12,
            (8.0,),
            (*ABLATION, *WISP_CHANGES, Variant.PREDICTOR, Variant.CENTRALIZED),
        ),
        Case(
            "acceptance",
            "WISP Table 12 with cached tokens read at the card's bandwidth, fewer tokens accepted, shorter windows",
            replace(settings, token_acceptance=0.732, window=8),
            FLASH,
            (8.0,),
            (*ABLATION, Variant.WISP, Variant.WISP_FAIR, Variant.CENTRALIZED),
        ),
        Case(
            "roofline",
            "a roofline of Qwen3-32B on one A100, from data sheets: nothing of it was measured",
            settings,
            RooflineCostModel(MODELS["qwen3-32b"], _A100),
            (8.0,) if quick else (8.0, 16.0, 24.0),
            compared,
        ),
        Case(
            "this machine",
            "the built-in model of the embedded pair on one CPU core",
            preset("embedded"),
            DEFAULT_COST_MODEL,
            (1.0,) if quick else (0.5, 1.0, 2.0),
            compared,
        ),
    ]


def capacity_cells(case: Case, seed: int, *, quick: bool) -> list[Cell]:
    cell = partial(Cell, case, seed=seed, responses=1.0 if quick else 2.0, resolution=0.05 if quick else 0.015)
    return [cell(variant, (speed,)) for variant in case.variants for speed in case.speeds_tokens_per_s]


def mixed_cases(chosen: Sequence[Case]) -> list[Case]:
    """Return the cases that are run with all classes at once: WISP's coefficients, and those with less acceptance."""
    return [case for case in chosen if case.name in {"table 12", "acceptance"}]


def mixed_cells(case: Case, seed: int, *, quick: bool, memory: bool) -> list[Cell]:
    """Return cells with all classes at once, evenly many devices each, with or without the KV memory limit."""
    case = case if memory else replace(case, settings=replace(case.settings, kv_tokens=WITHOUT_LIMIT))
    cell = partial(Cell, case, seed=seed, responses=0.75 if quick else 1.5, resolution=0.05 if quick else 0.02)
    return [cell(variant, SPEEDS_TOKENS_PER_S) for variant in _MIXED_VARIANTS]


def loaded(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of mixed classes whose violations are shown over numbers of devices."""
    return [cell for cell in cells if cell.variant in _LOADED]
