"""Run a fleet scenario on a virtual clock; the progress bar shows virtual time."""

import gc
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from lab.reports.fleet import show_fleet
from lab.reports.json_file import write_json
from lab.simulation.fleet.run import simulate_fleet
from lab.simulation.reading import ReadFleet

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
    """Run the cyclic garbage collector less often: a fleet is some million objects, and hardly any are garbage."""
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTED)
    try:
        yield
    finally:
        gc.set_threshold(*before)
