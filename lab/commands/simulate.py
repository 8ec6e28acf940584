"""Run scenarios on a virtual clock: a file's, or one of ``capacity`` and ``stops``.

A scenario names devices, links, promised speeds, a server and the systems to compare on them. Time is virtual;
policies, ledger and link are the product's own. Results are as good as the cost model, which the header names.

A file with ``verifiers``, ``drafters`` and ``traffic`` describes a whole fleet: many verifiers behind the product's
router, devices that come and go, conversations that come back. ``city_fleet`` is one to begin with.

``capacity`` computes how many devices each system serves at a promised speed (WISP's Tables 1, 2 and 3). The settings
that WISP leaves open were fitted to two columns of its Table 2 and are frozen; every system runs with exactly these.
Results for a roofline and for this machine stand beside those for WISP's coefficients: ratios depend on the cost model
more than on the system. Violations are counted per response unless said otherwise.

``stops`` maps where it pays that devices stop drafting early: WISP's controller and others against fixed windows, over
cost models, acceptances and device speeds.
"""

import argparse
import gc
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from cluster.option_types import natural, number, positive, positive_int, share
from cluster.options import check_plots
from lab.options import add_output_options
from lab.reports.capacity import show_capacity
from lab.reports.columns import Columns, decimals, ms, percent, show_columns
from lab.reports.fleet import show_fleet
from lab.reports.json_file import write_json
from lab.reports.stop_map import show_stops
from lab.scenarios import FLEETS, SCENARIOS, scenario_file
from lab.simulation.experiment import (
    CapacityFigures,
    Case,
    Cell,
    CellResult,
    LoadResult,
    capacity_cells,
    cases,
    loaded,
    mixed_cases,
    mixed_cells,
    run_cell,
    run_load,
)
from lab.simulation.fleet.run import simulate_fleet
from lab.simulation.reading import ReadFleet, ReadScenario, load_simulation
from lab.simulation.results import ClassResults, SimulationResults
from lab.simulation.run import simulate
from lab.simulation.settings import Variant
from lab.simulation.stop_map import COSTS, QUICK, Grid, PlaceResult, cost_cases, places, run_place
from outrider.contracts.errors import ParameterError

_MIB = 2**20 if sys.platform == "darwin" else 2**10  # units of ru_maxrss per MiB: bytes on macOS, KiB elsewhere

_COLLECTED = (100_000, 50, 1000)


def run_fleet(fleet: ReadFleet, json: Path | None) -> None:
    scenario = fleet.scenario
    drafters = sum(group.count for group in scenario.drafters)
    print(f"{scenario.name}: {drafters:,} drafters, {scenario.verifiers:,} verifiers; costs: {fleet.cost_source}")
    began_at_s, cpu_began_at_s = time.monotonic(), time.process_time()
    with (
        _collected_seldom(),
        tqdm(total=scenario.duration_s, unit="virtual s", desc="fleet", disable=None) as bar,
    ):

        def progress(now_s: float) -> None:
            bar.update(now_s - bar.n)

        found = simulate_fleet(scenario, progress)
        progress(scenario.duration_s)
    wall_s, cpu_s = time.monotonic() - began_at_s, time.process_time() - cpu_began_at_s
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MIB
    note = "" if fleet.measured else "A roofline was asked, not a machine: compare settings, trust no time."
    show_fleet(found, note, wall_s, cpu_s, peak_mib)
    if json is not None:
        took = {"wall_s": wall_s, "cpu_s": cpu_s, "peak_mib": peak_mib, "rounds_per_s": found.rounds / wall_s}
        write_json(json, {"scenario": scenario.name, "costs": fleet.cost_source, "results": found, "simulation": took})


@contextmanager
def _collected_seldom() -> Iterator[None]:
    """Run the cyclic garbage collector less often: hardly any of a run's objects are garbage."""
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTED)
    try:
        yield
    finally:
        gc.set_threshold(*before)


_CAPACITY = "capacity"
_STOPS = "stops"
_PARTS = (*(case.name for case in cases(quick=False)), "mixed", "loads")
_LOAD_STEPS = (0.5, 0.65, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.8)  # of the devices that first come first served can serve
_CLASSES: Columns[tuple[SimulationResults, ClassResults]] = (
    ("system", lambda row: row[0].system),
    ("class", lambda row: row[1].slo.name),
    ("promised", lambda row: f"{row[1].slo.tokens_per_s:g}"),
    ("devices", lambda row: row[1].devices),
    ("achieved", lambda row: decimals(row[1].achieved_tokens_per_s, 2)),
    ("late devices", lambda row: percent(row[1].device_violation_rate)),
    ("late responses", lambda row: percent(row[1].response_violation_rate)),
    ("late rounds", lambda row: percent(row[1].round_violation_rate)),
)
_TOTALS: Columns[SimulationResults] = (
    ("system", lambda found: found.system),
    ("goodput", lambda found: f"{found.goodput_tokens_per_s:.1f}"),
    ("rounds/s", lambda found: f"{found.rounds / found.measured_s:.1f}"),
    ("round p50", lambda found: ms(found.round_times.p50_s)),
    ("p99", lambda found: ms(found.round_times.p99_s)),
    ("queue p99", lambda found: ms(found.queue_times.p99_s)),
    ("first token p99", lambda found: ms(found.first_token_times.p99_s)),
    ("blocks", lambda found: f"{found.mean_batch_blocks:.1f}"),
    ("busy", lambda found: percent(found.busy_share)),
)

Work = TypeVar("Work")
Result = TypeVar("Result")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    add = parser.add_argument
    add(
        "file",
        metavar="SCENARIO",
        help=f"a YAML file, {', '.join((*SCENARIOS, *FLEETS))}; {_CAPACITY} or {_STOPS}",
    )
    add("--seed", type=natural, default=None, help="overrides the file's (default without a file: 0)")
    add("--workers", type=positive_int, default=1, help="number of processes")
    add_output_options(parser, f"{_CAPACITY} and {_STOPS}: draw capacities, lateness and the queue-compute plane")
    add("--quick", action="store_true", help="without a file: fewer cells and shorter runs, for a preview")
    add("--costs", nargs="+", choices=COSTS, default=COSTS, help=f"{_STOPS}: cost models (default: all)")
    add("--promises", nargs="+", type=positive, help=f"{_STOPS}: as shares of one device's speed with its best chain")
    add("--acceptances", nargs="+", type=share, help=f"{_STOPS}: token acceptances")
    add("--draft-speeds", nargs="+", type=positive, help=f"{_STOPS}: of a device, tokens/s")
    add("--auc", type=number(0.5, 1.0), help=f"{_STOPS}: of the predictor (default: {Grid().auc:g}, WISP's)")
    add("--parts", nargs="+", choices=_PARTS, default=_PARTS, help=f"{_CAPACITY}: tables to compute (default: all)")


def run(arguments: argparse.Namespace) -> None:
    check_plots(arguments.plots)
    of_its_own = {_CAPACITY: _run_capacity, _STOPS: _run_stops}.get(arguments.file)
    if of_its_own is not None:
        with _collected_seldom():
            of_its_own(arguments)
        return
    if arguments.quick or arguments.plots is not None:
        raise ParameterError("--quick and --plots", f"`outrider simulate {_CAPACITY}` or `{_STOPS}`", arguments.file)
    simulation = load_simulation(scenario_file(arguments.file), arguments.seed)
    if isinstance(simulation, ReadFleet):
        run_fleet(simulation, arguments.json)
    else:
        _run_scenario(simulation, arguments)


def _run_scenario(scenario: ReadScenario, arguments: argparse.Namespace) -> None:
    print(f"{scenario.name}: {sum(group.count for group in scenario.groups)} devices; costs: {scenario.cost_source}")
    results = list(_each(simulate, scenario.scenarios, arguments.workers, "systems"))
    _show(scenario, results)
    if arguments.json is not None:
        write_json(arguments.json, {"scenario": scenario.name, "costs": scenario.cost_source, "results": results})


def _each(function: Callable[[Work], Result], work: Sequence[Work], workers: int, label: str) -> Iterator[Result]:
    """Yield results in the order of the work, under a progress bar; several workers are separate processes."""
    if workers == 1:
        yield from map(function, tqdm(work, desc=label, disable=None))
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from tqdm(pool.map(function, work), desc=label, total=len(work), disable=None)


def _show(scenario: ReadScenario, results: Sequence[SimulationResults]) -> None:
    by_class = [(found, one) for found in results for one in found.by_class()]
    show_columns("tokens per second and lateness by class", _CLASSES, by_class)
    note = "" if scenario.measured else "A roofline was asked, not a machine: compare systems, trust no time."
    show_columns("the server", _TOTALS, results, note)


def _run_capacity(arguments: argparse.Namespace) -> None:
    began_at_s = time.monotonic()
    seed, all_cases = arguments.seed or 0, cases(quick=arguments.quick)
    chosen = [case for case in all_cases if case.name in arguments.parts]
    content: dict[str, Any] = {
        "seed": seed,
        "quick": arguments.quick,
        "settings": {case.name: case.settings for case in chosen},
        "sources": {case.name: case.source for case in chosen},
        "mixed": {},
        "loads": [],
    }

    def keep(name: str, results: object) -> None:  # after each cell: all of them take most of an hour
        content[name] = results
        if arguments.json is not None:
            write_json(arguments.json, content)

    cells = [cell for case in chosen for cell in capacity_cells(case, seed, quick=arguments.quick)]
    found: dict[tuple[str, Variant, float], CellResult] = {}
    for one in _each(run_cell, cells, arguments.workers, "capacities"):
        found[one.costs_name, one.variant, one.speeds_tokens_per_s[0]] = one
        keep("capacity", list(found.values()))
    mixed = _mixed(all_cases, seed, arguments, keep) if "mixed" in arguments.parts else {}
    loads = _loads(all_cases[0], mixed, seed, arguments, keep) if "loads" in arguments.parts else ()
    figures = CapacityFigures(tuple(chosen), found, mixed, tuple(loads))
    show_capacity(figures)
    print(f"\n{time.monotonic() - began_at_s:.0f} s with {arguments.workers} worker(s), seed {seed}")
    if arguments.plots is not None:
        from lab.reports.simulation_plots import plot_capacity

        plot_capacity(arguments.plots, figures)


def _run_stops(arguments: argparse.Namespace) -> None:
    began_at_s = time.monotonic()
    seed = arguments.seed or 0
    chosen = [case for case in cost_cases() if case.name in arguments.costs]
    axes = {name: getattr(arguments, name) for name in ("promises", "acceptances", "draft_speeds", "auc")}
    grid = replace(QUICK if arguments.quick else Grid(), **{name: axis for name, axis in axes.items() if axis})
    cells = tuple(places(chosen, grid, seed))
    sources = {case.name: case.source for case in chosen}
    settings = {cell.case.name: cell.case.settings for cell in cells}
    found = list[PlaceResult]()
    for one in _each(run_place, cells, arguments.workers, "places"):
        found.append(one)
        if arguments.json is not None:  # after each place: a map takes an hour
            content = {"seed": seed, "grid": grid, "sources": sources, "settings": settings, "places": found}
            write_json(arguments.json, content)
    show_stops(chosen, found)
    print(f"\n{time.monotonic() - began_at_s:.0f} s with {arguments.workers} worker(s), seed {seed}")
    if arguments.plots is not None:
        from lab.reports.simulation_plots import plot_stops

        plot_stops(arguments.plots, found)


def _mixed(
    chosen: Sequence[Case], seed: int, arguments: argparse.Namespace, keep: Callable[[str, object], None]
) -> dict[str, list[CellResult]]:
    """Capacity with all classes at once, with and without the limit of KV memory."""
    tables = {
        f"{case.name}, {'limited' if memory else 'free'}": mixed_cells(case, seed, quick=arguments.quick, memory=memory)
        for case in mixed_cases(chosen)
        for memory in (True, False)
    }
    found: dict[str, list[CellResult]] = {name: [] for name in tables}
    names = [name for name, table in tables.items() for _ in table]
    work = [cell for table in tables.values() for cell in table]
    for name, one in zip(names, _each(run_cell, work, arguments.workers, "mixed classes"), strict=True):
        found[name].append(one)
        keep("mixed", found)
    return found


def _loads(
    case: Case,
    mixed: Mapping[str, Sequence[CellResult]],
    seed: int,
    arguments: argparse.Namespace,
    keep: Callable[[str, object], None],
) -> list[LoadResult]:
    """Violations over devices with all classes at once, without the limit of KV memory."""
    free = loaded(mixed_cells(case, seed, quick=arguments.quick, memory=False))
    found = next((one.devices for one in mixed.get(f"{case.name}, free", ()) if one.variant is Variant.KV), None)
    most = max(4, run_cell(free[0]).devices if found is None else found)
    counts = sorted({round(most * step) for step in _LOAD_STEPS[:: 2 if arguments.quick else 1]})
    loads: list[tuple[Cell, int]] = [(cell, count) for cell in free for count in counts]
    results = list[LoadResult]()
    for one in _each(run_load, loads, arguments.workers, "violations over devices"):
        results.append(one)
        keep("loads", [replace(load, plane=()) for load in results])
    return results
