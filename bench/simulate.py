"""``outrider simulate``: a scenario file, or ``outrider simulate capacity``: WISP's tables beside ours.

A scenario names devices, links, promised speeds, a server and the systems to compare on them (examples:
``bench/scenarios``). Time is virtual; policies, ledger and link are the product's own. What comes out is as good as the
cost model that goes in: the header says which one it was.
"""

import argparse
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bench.json_file import write_json
from bench.simulate_output import percent, show_table, spread
from outrider.contracts.errors import ParameterError
from outrider.simulation.reading import ReadScenario, load_scenario
from outrider.simulation.results import SimulationResults
from outrider.simulation.run import simulate

_HEADER = ("system", "class", "promised", "devices", "achieved", "late devices", "late responses", "late rounds")
_TOTALS = ("system", "goodput", "rounds/s", "round p50", "p99", "queue p99", "first token p99", "blocks", "busy")


def main(argv: Sequence[str]) -> None:
    """Simulate every system of a file and print what each class got.

    Raises:
        ConfigError: the file is none, or has mistakes.
        ParameterError: plots are asked for without matplotlib.
    """
    if argv[:1] == ["capacity"]:
        import_module("bench.simulate_capacity").main(argv[1:])
        return
    args = _parser().parse_args(argv)
    require_matplotlib(args.plots)
    scenario = load_scenario(args.file, args.seed)
    print(f"{scenario.name}: {sum(group.count for group in scenario.groups)} devices; costs: {scenario.cost_source}")
    results = list(spread(simulate, scenario.scenarios, args.workers, "systems"))
    _show(scenario, results)
    if args.json is not None:
        write_json(args.json, {"scenario": scenario.name, "costs": scenario.cost_source, "results": results})
    if args.plots is not None:
        import_module("bench.simulate_plots").plot_scenario(args.plots, results)


def require_matplotlib(plots: Path | None) -> None:
    """Say at once, not after minutes, that plots need a package.

    Raises:
        ParameterError: it is missing.
    """
    if plots is not None and find_spec("matplotlib") is None:
        raise ParameterError("--plots", "matplotlib (pip install 'outrider[bench]')", "no such package")


def _show(scenario: ReadScenario, results: Sequence[SimulationResults]) -> None:
    rows = []
    for found in results:
        for one in found.by_class():
            achieved = "-" if one.achieved_tokens_per_s is None else f"{one.achieved_tokens_per_s:.2f}"
            rates = (one.device_violation_rate, one.response_violation_rate, one.round_violation_rate)
            rows.append(
                (found.system, one.slo.name, f"{one.slo.tokens_per_s:g}", one.devices, achieved, *map(percent, rates))
            )
    show_table("tokens per second by class, and who was late", _HEADER, rows)
    totals = [
        (
            found.system,
            f"{found.goodput_tokens_per_s:.1f}",
            f"{found.rounds / found.measured_s:.1f}",
            *(f"{1e3 * seconds:.0f} ms" for seconds in (found.round_times.p50_s, found.round_times.p99_s)),
            *(f"{1e3 * seconds:.0f} ms" for seconds in (found.queue_times.p99_s, found.first_token_times.p99_s)),
            f"{found.mean_batch_blocks:.1f}",
            percent(found.busy_share),
        )
        for found in results
    ]
    note = "" if scenario.measured else "A roofline was asked, not a machine: compare systems, trust no time."
    show_table("the server", _TOTALS, totals, note)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider simulate", description=__doc__)
    add = parser.add_argument
    add("file", type=Path, metavar="FILE.yaml", help="the scenario; or `capacity`, which has options of its own")
    add("--seed", type=int, default=None, help="in place of the file's")
    add("--workers", type=int, default=1, help="processes")
    add("--json", type=Path, default=None, metavar="FILE", help="write everything")
    add("--plots", type=Path, default=None, metavar="DIR", help="draw speeds, lateness and the queue-compute plane")
    return parser
