"""Cells of WISP's tables: which systems, at which promised speeds, of which model, and under which settings.

Qwen3-14B has no printed coefficients: Table 12 is scaled by what a term's time follows from, the weights for a position
and a pass, the heads for an interaction, the KV for a cached position; memory by what the weights leave of the card.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Any

from lab.bench.papers.wisp.provenance import provenance
from lab.bench.papers.wisp.record import Record
from lab.bench.papers.wisp.tuning import OUR_CHANGES, OUR_START, WISP_CHANGES, WISP_START, Change, Tuned, search
from lab.simulation.experiment import Case, Cell, run, run_cell
from lab.simulation.published import SPEEDS_TOKENS_PER_S, TABLE_12
from lab.simulation.roofline import HARDWARE, MODELS, RooflineCostModel
from lab.simulation.settings import WITHOUT_LIMIT, Tuning, Variant, preset
from outrider.contracts.cost import LinearCostModel

SEEDS = (3, 4, 5)  # none on which our policy's rules were tried: 0, 1, 2, 10
TUNING_SEEDS = (10, 11)  # of no table
_TUNING_S = 32.0  # measured time of a search's runs
_WORSE = 0.95  # of the largest capacity at a tuning place: clearly no gain
_SPEEDS = (2.0, 4.0, 8.0, 6.0)  # those that are tuned for and the slowest before the one between
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
LEADING = (TUNED, OURS, OURS_TUNED)
TABLE_2 = (*LEADING, ADMITTING, WISP, CENTRALIZED, SLED)
MIXED_SYSTEMS = (*LEADING, ADMITTING, WISP, FCFS)
TABLE_1 = (FCFS, WISP, TUNED, OURS)
_SEARCHES: Mapping[str, tuple[Variant, Tuning, Sequence[Change]]] = MappingProxyType(
    {"wisp": (Variant.WISP, WISP_START, WISP_CHANGES), "ours": (Variant.SCHEDULER, OUR_START, OUR_CHANGES)}
)


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


class NotRecordedError(Exception):
    """A cell is not kept, and nothing is to be run."""


class Tables:
    """Runs cells that the record lacks, the most telling first. All capacities are searched by one rule.

    A search begins at closed forms, in the same steps for every system; only where a system's settings are searched it
    begins at the last capacity there. Settings are searched when a cell first needs them.
    """

    def __init__(self, record: Record, *, quick: bool = False, runs: bool = True) -> None:
        """``quick`` cells are short, of one seed and one speed. Unless it ``runs``, it leaves out what is not kept."""
        self._record, self._quick, self._runs = record, quick, runs
        self._seeds = SEEDS[:1] if quick else SEEDS
        self._tuned: dict[str, Tuning] = {}

    def settings(self) -> None:
        for name in _SEARCHES:
            with suppress(NotRecordedError):
                self._searched(name)

    def _searched(self, name: str) -> Tuning:
        """Search a system's settings at 8 and 4 tokens/s, each on a tuning seed."""
        if name not in self._tuned:
            variant, start, changes = _SEARCHES[name]
            found = self._search(name, variant, start, changes[:1] if self._quick else changes)
            self._tuned[name] = found.tuning
            self._record.current[f"settings | {name}"] = {
                "chosen": found.chosen,
                "score": found.score,
                "printed": found.start_score,
                "tried": found.tried,
            }
        return self._tuned[name]

    def _search(self, name: str, variant: Variant, start: Tuning, changes: Sequence[Change]) -> Tuned:
        last, best = dict[tuple[float, ...], int](), dict[tuple[float, ...], int]()

        def score(label: str, tuning: Tuning) -> float:
            found = list[int]()
            for cell in self._tuning_cells(variant):
                speeds = cell.speeds_tokens_per_s
                key = f"search | {name} | {label} | {_named(speeds)} | seed {cell.seed}"
                devices = int(self._capacity(key, replace(cell, tuning=tuning, guess=last.get(speeds, 0)))["devices"])
                last[speeds] = devices
                if devices < _WORSE * best.get(speeds, 0):
                    return 0.0  # the other place is not tried
                best[speeds] = max(devices, best.get(speeds, 0))
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
        """Run the systems whose ratio is the lead first, then the others."""
        for systems in (LEADING, tuple(system for system in TABLE_2 if system not in LEADING)):
            for seed in self._seeds:
                for speed in (8.0,) if self._quick else _SPEEDS:
                    for system in systems:
                        self._cell(model, system, (speed,), seed, memory=True)

    def mixed(self, *, memory: bool) -> None:
        for seed in self._seeds:
            for system in LEADING if self._quick else MIXED_SYSTEMS:
                self._cell(_LARGE, system, SPEEDS_TOKENS_PER_S, seed, memory=memory)

    def table_1(self) -> None:
        """Late rounds by class at a fixed number of devices, with their causes (Figure 8)."""
        for seed in self._seeds:
            for system in TABLE_1[:1] if self._quick else TABLE_1:
                with suppress(NotRecordedError):
                    self._load(system, seed)

    def _load(self, system: System, seed: int) -> None:
        cell = self.cell(_LARGE, system, SPEEDS_TOKENS_PER_S, seed, memory=False)

        def load() -> Mapping[str, object]:
            found = run(cell, TABLE_1_DEVICES)
            classes = found.by_class()
            return {
                "late_rounds": [one.round_violation_rate for one in classes],
                "queue": [one.late_queue_rounds for one in classes],
                "compute": [one.late_compute_rounds for one in classes],
            }

        self._kept(f"table 1 | {system.name} | seed {seed}", cell, load)

    def _cell(self, model: str, system: System, speeds: tuple[float, ...], seed: int, *, memory: bool) -> None:
        with suppress(NotRecordedError):
            cell = self.cell(model, system, speeds, seed, memory=memory)
            self._capacity(key_of(model, system.name, speeds, seed, memory=memory), cell)

    def cell(self, model: str, system: System, speeds: tuple[float, ...], seed: int, *, memory: bool) -> Cell:
        """Return a cell of the tables, with settings that are searched first.

        Raises:
            NotRecordedError: that search is not kept, and nothing is to be run.
        """
        case, resolution = case_of(model, memory=memory), 0.05 if self._quick else 0.02
        tuning = self._searched(system.searched) if system.searched else None
        return Cell(case, system.variant, speeds, seed, self._responses(speeds), resolution, tuning)

    def _capacity(self, name: str, cell: Cell) -> Mapping[str, Any]:
        def searched() -> Mapping[str, object]:
            found = run_cell(cell)
            return {
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
            }

        return self._kept(name, cell, searched)

    def _kept(self, name: str, cell: Cell, figures: Callable[[], Mapping[str, object]]) -> Mapping[str, Any]:
        """Return a cell of the record, which is run if it is not there.

        Raises:
            NotRecordedError: it is not, and nothing is to be run.
        """
        of = provenance(cell)
        found = self._record.get(name, of)
        if found is None and not self._runs:
            raise NotRecordedError(name)
        return self._record.put(name, of, figures()) if found is None else found

    def _responses(
        self, speeds: Sequence[float], measured_s: float = _MEASURED_S, least: float = _LEAST_RESPONSES
    ) -> float:
        """Return the measured time in responses of mean length at the slowest speed."""
        each_s = preset("wisp_table_2").output_tokens / min(speeds)
        return 8.0 / each_s if self._quick else max(least, measured_s / each_s)


def key_of(model: str, system: str, speeds: Sequence[float], seed: int, *, memory: bool) -> str:
    return f"{model} | {'limited' if memory else 'free'} | {system} | {_named(speeds)} | seed {seed}"


def _named(speeds: Sequence[float]) -> str:
    return MIXED if len(speeds) > 1 else f"{speeds[0]:g}"
