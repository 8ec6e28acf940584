"""Cells of WISP's tables: which systems, at which promised speeds, of which model, and under which settings.

Qwen3-14B has no printed coefficients: Table 12 is scaled by what a term's time follows from, the weights for a position
and a pass, the heads for an interaction, the KV for a cached position; memory by what the weights leave of the card.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from lab.bench.papers.wisp.record import Record
from lab.bench.papers.wisp.tuning import OUR_CHANGES, OUR_START, WISP_CHANGES, WISP_START, Change, Tuned, search
from lab.simulation.experiment import Case, Cell, run, run_cell
from lab.simulation.published import SPEEDS_TOKENS_PER_S, TABLE_12
from lab.simulation.roofline import HARDWARE, MODELS, RooflineCostModel
from lab.simulation.settings import WISP_CHANGES as REPAIRS
from lab.simulation.settings import WITHOUT_LIMIT, Tuning, Variant, preset
from outrider.contracts.cost import LinearCostModel

SEEDS = (0, 1, 2)
TUNING_SEEDS = (10, 11)  # of no table
_TUNING_S = 32.0  # measured time of a search's runs
_WORSE = 0.95  # of the last capacity at a tuning place: clearly no gain
_SLOWER = 1.15  # guess of a capacity, over that at the next faster speed
TABLE_1_DEVICES = 290  # where first come, first served is late about as often as printed
MIXED = "mixed"
_LARGE, _SMALL = "qwen3-32b", "qwen3-14b"
# Virtual, after a warm-up of three quarters of a mean response at the slowest speed. All devices are there after one.
_MEASURED_S = 64.0
_LEAST_RESPONSES = 1.0  # measured, of mean length at the slowest speed


@dataclass(frozen=True, slots=True)
class System:
    """A row: a variant, and whose searched settings it runs with, if any."""

    name: str
    variant: Variant
    searched: str = ""  # "wisp" or "ours"


WISP, TUNED = System("wisp", Variant.WISP), System("wisp, searched", Variant.WISP, "wisp")
OURS, ADMITTING = System("ours", Variant.SCHEDULER), System("ours, admission", Variant.ADMISSION)
OURS_TUNED = System("ours, searched", Variant.SCHEDULER, "ours")
FCFS = System("fcfs", Variant.KV)
SLED, CENTRALIZED = System("sled", Variant.SLED), System("centralized", Variant.CENTRALIZED)
TABLE_2 = (TUNED, OURS, ADMITTING, WISP, CENTRALIZED, SLED, OURS_TUNED)
MIXED_SYSTEMS = (TUNED, OURS, ADMITTING, WISP, FCFS)
TABLE_1 = (FCFS, WISP, TUNED, OURS)


def case_of(model: str, *, memory: bool = True) -> Case:
    settings, costs = preset("wisp_table_2"), TABLE_12
    if model == _SMALL:
        large, small = (RooflineCostModel(MODELS[name], HARDWARE["a100-80gb"]) for name in (_LARGE, _SMALL))
        settings = replace(settings, kv_tokens=int(settings.kv_tokens * small.kv_tokens() / large.kv_tokens()))
        costs = scaled(costs, small, large)
    if not memory:
        settings = replace(settings, kv_tokens=WITHOUT_LIMIT)
    return Case(model, "WISP Table 12", settings, costs, SPEEDS_TOKENS_PER_S, ())


def scaled(costs: LinearCostModel, small: RooflineCostModel, large: RooflineCostModel) -> LinearCostModel:
    """Return a model's coefficients for another one of its family."""
    weights = small.model.matrix_weights / large.model.matrix_weights
    kv = small.model.kv_bytes_per_token / large.model.kv_bytes_per_token
    heads = small.model.layers * small.model.heads / (large.model.layers * large.model.heads)
    return LinearCostModel(
        weights * costs.seconds_per_token,
        heads * costs.seconds_per_interaction,
        kv * costs.seconds_per_cached_token,
        weights * costs.seconds_per_batch,
    )


class Tables:
    """Runs cells that the record lacks; ``quick`` ones are short, of one seed and one speed."""

    def __init__(self, record: Record, *, quick: bool) -> None:
        self._record, self._quick = record, quick
        self._seeds = SEEDS[:1] if quick else SEEDS
        self._tuned: dict[str, Tuning] = {}
        self._near: dict[tuple[str, float], int] = {}  # capacities of searched settings, by speed: guesses

    def search(self) -> None:
        """Search both systems' settings at 4 and 8 tokens/s, each on a tuning seed."""
        for name, start, changes in (("wisp", WISP_START, WISP_CHANGES), ("ours", OUR_START, OUR_CHANGES)):
            found = self._searched(name, start, changes[:1] if self._quick else changes)
            self._tuned[name] = found.tuning
            self._record.put(
                f"settings | {name}",
                {"chosen": found.chosen, "score": found.score, "printed": found.start_score, "tried": found.tried},
            )

    def _searched(self, name: str, start: Tuning, changes: Sequence[Change]) -> Tuned:
        variant = Variant.WISP if name == "wisp" else Variant.SCHEDULER
        guesses: dict[tuple[object, ...], int] = {}

        def score(label: str, tuning: Tuning) -> float:
            found = list[int]()
            for cell in self._tuning_cells(variant):
                place = cell.case.settings.kv_tokens, cell.speeds_tokens_per_s
                tuned = replace(cell, tuning=tuning, guess=guesses.get(place, 0))
                key = f"search | {name} | {label} | {_speeds(cell)} | seed {cell.seed}"
                devices = int(self._capacity(key, tuned)["devices"])
                if devices < _WORSE * guesses.get(place, 0):
                    return 0.0  # the other place is not tried
                guesses[place] = devices
                self._near[name, cell.speeds_tokens_per_s[0]] = devices
                found.append(max(devices, 1))
            return float(prod(found) ** (1.0 / len(found)))

        return search(start, changes, score)

    def _tuning_cells(self, variant: Variant) -> list[Cell]:
        case = case_of(_LARGE)
        places = ((8.0, TUNING_SEEDS[0]),) if self._quick else ((8.0, TUNING_SEEDS[0]), (4.0, TUNING_SEEDS[1]))
        return [
            Cell(case, variant, (speed,), seed, self._responses((speed,), _TUNING_S, 0.0), 0.02)
            for speed, seed in places
        ]

    def table_2(self, model: str = _LARGE) -> None:
        for seed in self._seeds:
            for system in TABLE_2:
                for speed in (8.0,) if self._quick else reversed(SPEEDS_TOKENS_PER_S):
                    self._cell(model, system, (speed,), seed, memory=True)

    def mixed(self, *, memory: bool) -> None:
        for system in MIXED_SYSTEMS[:2] if self._quick else MIXED_SYSTEMS:
            for seed in self._seeds:
                self._cell(_LARGE, system, SPEEDS_TOKENS_PER_S, seed, memory=memory)

    def table_1(self) -> None:
        """Late rounds by class at a fixed number of devices, with their causes (Figure 8)."""
        case = case_of(_LARGE, memory=False)
        for system in TABLE_1[:1] if self._quick else TABLE_1:
            for seed in self._seeds:
                key = f"table 1 | {system.name} | seed {seed}"
                if key in self._record:
                    continue
                cell = Cell(case, system.variant, SPEEDS_TOKENS_PER_S, seed, self._responses(SPEEDS_TOKENS_PER_S))
                found = run(replace(cell, tuning=self._tuning(system)), TABLE_1_DEVICES)
                classes = found.by_class()
                self._record.put(
                    key,
                    {
                        "late_rounds": [one.round_violation_rate for one in classes],
                        "queue": [one.late_queue_rounds for one in classes],
                        "compute": [one.late_compute_rounds for one in classes],
                        "goodput_tokens_per_s": found.goodput_tokens_per_s,
                    },
                )

    def repairs(self) -> None:
        """Capacity at 8 tokens/s of what may be done with a doomed block, and of each change of ``wisp_fair``."""
        for variant in (*REPAIRS[1:], Variant.PREDICTOR, Variant.KV):
            for seed in self._seeds:
                self._cell(_LARGE, System(variant.value, variant), (8.0,), seed, memory=True)

    def _cell(self, model: str, system: System, speeds: tuple[float, ...], seed: int, *, memory: bool) -> None:
        case = case_of(model, memory=memory)
        cell = Cell(case, system.variant, speeds, seed, self._responses(speeds), 0.05 if self._quick else 0.02)
        key = key_of(model, system.name, speeds, seed, memory=memory)
        others = (self._record.get(key_of(model, system.name, speeds, one, memory=memory)) for one in SEEDS)
        guess = next((int(one["devices"]) for one in others if one), 0)
        if not guess and len(speeds) == 1 and model == _LARGE:
            guess = self._near.get((system.searched, speeds[0]), 0)
        faster = self._record.get(key_of(model, system.name, (speeds[0] + 2.0,), seed, memory=memory))
        if not guess and faster and len(speeds) == 1:
            guess = int(_SLOWER * faster["devices"])
        self._capacity(key, replace(cell, tuning=self._tuning(system), guess=guess))

    def _capacity(self, key: str, cell: Cell) -> Mapping[str, Any]:
        if key not in self._record:
            found = run_cell(cell)
            self._record.put(
                key,
                {
                    "devices": found.devices,
                    "devices_apart": found.devices_apart,
                    "refused_share": found.refused_share,
                    "goodput_tokens_per_s": found.goodput_tokens_per_s,
                    "apart_tokens_per_s": found.apart_tokens_per_s,
                    "late": found.violation_rates,
                    "first_token_p99_s": found.first_token_p99_s,
                    "evictions": found.evictions,
                    "tried": found.tried,
                    "bounded": found.bounded,
                },
            )
        return self._record[key]

    def _tuning(self, system: System) -> Tuning | None:
        return self._tuned[system.searched] if system.searched else None

    def _responses(
        self, speeds: Sequence[float], measured_s: float = _MEASURED_S, least: float = _LEAST_RESPONSES
    ) -> float:
        """Return the measured time in responses of mean length at the slowest speed."""
        each_s = preset("wisp_table_2").output_tokens / min(speeds)
        return 8.0 / each_s if self._quick else max(least, measured_s / each_s)


def key_of(model: str, system: str, speeds: Sequence[float], seed: int, *, memory: bool) -> str:
    named = MIXED if len(speeds) > 1 else f"{speeds[0]:g}"
    return f"{model} | {'limited' if memory else 'free'} | {system} | {named} | seed {seed}"


def _speeds(cell: Cell) -> str:
    return MIXED if len(cell.speeds_tokens_per_s) > 1 else f"{cell.speeds_tokens_per_s[0]:g}"
