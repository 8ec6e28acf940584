"""``outrider simulate capacity``: how many devices each system serves at a promised speed (WISP's Tables 1, 2 and 3).

The settings WISP leaves open were found on two columns of its Table 2 (``--fit`` does it again) and are frozen; every
system is run with exactly these. Beside WISP's coefficients stand a roofline and this machine's: multiples depend on
the cost model more than on the system, and are printed for each. Violations are counted per response unless said
otherwise. Figures, their explanations and plots (``--plots``) can be written (``--json``).
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from bench.json_file import write_json
from bench.simulate import require_matplotlib
from bench.simulate_cases import TABLE_2, Case, capacity_cells, cases, mixed_cells
from bench.simulate_explained import Found, explain, lengths_of
from bench.simulate_fit import fit, freeze, starts
from bench.simulate_output import spread
from bench.simulate_sensitivity import Sensitivity, sensitivity_cells, told
from bench.simulate_tables import show_aims, show_capacities, show_goodput, show_loads, show_mixed, show_sensitivity
from outrider.simulation.experiment import Cell, CellResult, LoadResult, run_cell, run_load
from outrider.simulation.settings import preset

_LOAD_STEPS = (0.5, 0.65, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.8)  # of what first come first served can take


def main(argv: Sequence[str]) -> None:
    """Run the experiment, or find its settings anew.

    Raises:
        ConfigError: a profile cannot be read.
        ParameterError: plots are asked for without matplotlib.
    """
    args = _parser().parse_args(argv)
    require_matplotlib(args.plots)
    if args.fit is not None:
        costs = cases(None, quick=True)[0].costs
        freeze(args.fit, fit(starts(preset(TABLE_2)), costs, args.seed, args.workers))
        return
    began_at_s = time.monotonic()
    chosen = cases(args.profile, quick=args.quick)
    found = _capacities(chosen, args)
    for case in chosen:
        print(f"\n{case.name}: {case.source}\n  {lengths_of(case.settings)}")
        show_capacities(case, found)
        show_aims(case, found)
    show_goodput(chosen[0], found)
    mixed, loads = _mixed(chosen[0], args)
    show_mixed(mixed)
    show_loads(loads)
    sensitivity = [] if args.skip_sensitivity else _sensitivity(chosen[0], args)
    show_sensitivity(sensitivity)
    texts = explain(chosen, found)
    print("Why these figures are what they are\n" + "\n".join(f"- {text}" for text in texts))
    took_s = time.monotonic() - began_at_s
    print(f"\n{took_s:.0f} s with {args.workers} worker(s), seed {args.seed}")
    if args.json is not None:
        content = {
            "seed": args.seed,
            "quick": args.quick,
            "settings": {case.name: case.settings for case in chosen},
            "sources": {case.name: case.source for case in chosen},
            "capacity": list(found.values()),
            "mixed": mixed,
            "loads": [replace(load, plane=()) for load in loads],
            "sensitivity": sensitivity,
            "explanations": texts,
        }
        write_json(args.json, content)
    if args.plots is not None:
        import_module("bench.simulate_plots").plot_capacity(args.plots, chosen[0], found, loads, sensitivity)


def _capacities(chosen: Sequence[Case], args: argparse.Namespace) -> Found:
    cells = [cell for case in chosen for cell in capacity_cells(case, args.seed, quick=args.quick)]
    results = spread(run_cell, cells, args.workers, "capacities")
    return {(one.costs_name, one.rung, one.speeds_tokens_per_s[0]): one for one in results}


def _mixed(case: Case, args: argparse.Namespace) -> tuple[dict[str, list[CellResult]], list[LoadResult]]:
    limited = mixed_cells(case, args.seed, quick=args.quick, memory=True)
    free = mixed_cells(case, args.seed, quick=args.quick, memory=False)
    results = list(spread(run_cell, [*limited, *free], args.workers, "mixed classes"))
    mixed = {"with the memory limit": results[: len(limited)], "without it": results[len(limited) :]}
    most = max(4, results[len(limited)].devices)
    counts = sorted({round(most * step) for step in _LOAD_STEPS[:: 2 if args.quick else 1]})
    work: list[tuple[Cell, int]] = [(cell, count) for cell in free for count in counts]
    return mixed, list(spread(run_load, work, args.workers, "violations over devices"))


def _sensitivity(case: Case, args: argparse.Namespace) -> list[Sensitivity]:
    points = sensitivity_cells(case, args.seed, quick=args.quick)
    results = spread(run_cell, [cell for _, _, cell in points], args.workers, "sensitivity")
    return [told(setting, value, one) for (setting, value, _), one in zip(points, results, strict=True)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider simulate capacity", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="8 tokens/s only, shorter runs: a look, no result")
    add("--seed", type=int, default=0)
    add("--workers", type=int, default=1, help="processes")
    add("--profile", type=Path, default=None, metavar="FILE", help="of `outrider profile`, for the embedded pair")
    add("--skip-sensitivity", action="store_true", help="leave out jitter, drafting speed and its spread")
    add("--json", type=Path, default=None, metavar="FILE", help="write every figure and explanation")
    add("--plots", type=Path, default=None, metavar="DIR", help="draw capacities, violation rates and the plane")
    add("--fit", type=Path, default=None, metavar="FILE", help="search the open settings, write them there, and stop")
    return parser
