"""The cost models that ``outrider simulate capacity`` puts side by side, each with the settings it is run with."""

from dataclasses import dataclass, replace
from pathlib import Path

from outrider.contracts.cost import DEFAULT_COST_MODEL, LinearCostModel
from outrider.costs.profiles import read_profile
from outrider.simulation.experiment import Cell
from outrider.simulation.published import SPEEDS_TOKENS_PER_S, TABLE_12
from outrider.simulation.roofline import HARDWARE, MODELS, RooflineCostModel
from outrider.simulation.settings import LADDER, Costs, Rung, Settings, preset

TABLE_2 = "wisp_table_2"
_A100 = HARDWARE["a100-80gb"]
_DRAFTER = RooflineCostModel(MODELS["qwen3-1.7b"], _A100)  # colocated: nobody has published its cost
_MIXED_RUNGS = (Rung.KV, Rung.WISP, Rung.SCHEDULER, Rung.CHAINS)
_WITHOUT_LIMIT = 100_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """A cost model with what it is run with.

    Attributes:
        source: where its figures come from, for the reader.
    """

    name: str
    source: str
    settings: Settings
    costs: Costs
    speeds_tokens_per_s: tuple[float, ...]
    rungs: tuple[Rung, ...]


def cases(profile: Path | None, *, quick: bool) -> list[Case]:
    """All of them, WISP's published coefficients first.

    Raises:
        ConfigError: the profile cannot be read.
    """
    settings = preset(TABLE_2)
    compared = (Rung.SLED, Rung.KV, Rung.CHAINS, Rung.TREES, Rung.WISP, Rung.CENTRALIZED)
    roofline = RooflineCostModel(MODELS["qwen3-32b"], _A100)
    own, source = DEFAULT_COST_MODEL, "the built-in model of the embedded pair on one CPU core; no profile was given"
    if profile is not None:
        own, source = read_profile(profile).model, f"measured here: {profile.name}"
    return [
        Case(
            "table 12",
            "WISP Table 12: coefficients its authors fitted on their engine, one A100, Qwen3-32B",
            settings,
            Costs(TABLE_12, _DRAFTER),
            (8.0,) if quick else SPEEDS_TOKENS_PER_S,
            (*LADDER, Rung.WISP, Rung.PREDICTOR, Rung.CENTRALIZED, Rung.COLOCATED),
        ),
        Case(
            "table 12, memory free",
            "WISP Table 12 again, with KV memory for everybody: what time alone allows",
            replace(settings, kv_tokens=_WITHOUT_LIMIT),
            Costs(TABLE_12, _DRAFTER),
            (8.0,),
            (*LADDER, Rung.WISP, Rung.PREDICTOR, Rung.CENTRALIZED),
        ),
        Case(
            "roofline",
            "a roofline of Qwen3-32B on one A100, from data sheets: nothing of it was measured",
            settings,
            Costs(roofline, _DRAFTER),
            (8.0,) if quick else (8.0, 16.0, 24.0),
            compared,
        ),
        Case(
            "this machine",
            source,
            preset("embedded"),
            Costs(own, _quarter(own)),
            (1.0,) if quick else (0.5, 1.0, 2.0),
            compared,
        ),
    ]


def capacity_cells(case: Case, seed: int, *, quick: bool) -> list[Cell]:
    """Every system at every speed."""
    return [
        Cell(
            case.name,
            case.settings,
            case.costs,
            rung,
            (speed,),
            seed=seed,
            responses=1.0 if quick else 2.0,
            resolution=0.05 if quick else 0.015,
        )
        for rung in case.rungs
        for speed in case.speeds_tokens_per_s
    ]


def mixed_cells(case: Case, seed: int, *, quick: bool, memory: bool) -> list[Cell]:
    """All classes at once, as many devices each; with or without the limit of KV memory."""
    settings = case.settings if memory else replace(case.settings, kv_tokens=_WITHOUT_LIMIT)
    return [
        Cell(
            case.name,
            settings,
            case.costs,
            rung,
            SPEEDS_TOKENS_PER_S,
            seed=seed,
            responses=0.75 if quick else 1.5,
            resolution=0.05 if quick else 0.02,
        )
        for rung in _MIXED_RUNGS
    ]


def _quarter(model: LinearCostModel) -> LinearCostModel:
    """The drafter on the server: a quarter of the target's time, as its layers are (docs/experiments.md)."""
    return LinearCostModel(
        model.seconds_per_token / 4,
        model.seconds_per_interaction / 4,
        model.seconds_per_cached_token / 4,
        model.seconds_per_batch / 4,
    )
