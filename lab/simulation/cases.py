"""Cases of the capacity experiment (cost models with their settings), its cells, and access to its figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lab.simulation.experiment import Case, Cell, CellResult, LoadResult
from lab.simulation.published import SPEEDS_TOKENS_PER_S, TABLE_12
from lab.simulation.roofline import HARDWARE, MODELS, RooflineCostModel
from lab.simulation.settings import ABLATION, WISP_CHANGES, WITHOUT_LIMIT, Variant, preset
from lab.simulation.stop_map import FLASH
from outrider.contracts.cost import DEFAULT_COST_MODEL
from outrider.costs.profiles import read_profile

_A100 = HARDWARE["a100-80gb"]
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


def cases(profile: Path | None, *, quick: bool) -> list[Case]:
    """Return all cases, WISP's published coefficients first."""
    settings = preset("wisp_table_2")
    compared = (Variant.SLED, Variant.KV, Variant.CHAINS, Variant.WISP, Variant.WISP_FAIR, Variant.CENTRALIZED)
    own, source = DEFAULT_COST_MODEL, "the built-in model of the embedded pair on one CPU core; no profile was given"
    if profile is not None:
        own, source = read_profile(profile).model, f"measured here: {profile.name}"
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
            source,
            preset("embedded"),
            own,
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
