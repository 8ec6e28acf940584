"""What a cell's figures are of: its settings, and what the code does today.

Code counts by its behaviour, not its text: short runs of a system, loaded lightly and beyond what it can keep, with KV
short and not, are digested batch by batch. So a cell outlives what leaves batches as they were, such as a faster
simulator or a commit that is picked onto another branch, and nothing else. Numbers are rounded, as machines differ in
a float's last digits.
"""

import subprocess
from contextlib import suppress
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from lab.simulation.capacity import capacity
from lab.simulation.experiment import NEAR_STEP, Cell, unkept_rate, unkept_rate_apart
from lab.simulation.published import SPEEDS_TOKENS_PER_S, TABLE_12
from lab.simulation.run import simulate
from lab.simulation.settings import Variant, preset, scenario_of

_PROBED = replace(preset("wisp_table_2"), output_tokens=64, kv_tokens=30_000)
_DEVICES, _WARMUP_S, _DURATION_S = 240, 4.0, 24.0  # three quarters of the time in which all devices come
_CHECKOUT = Path(__file__).parents[4]
_GIT_DEADLINE_S = 5.0


def provenance(cell: Cell) -> str:
    return _digest(repr(cell), behaviour(cell.variant))


@cache
def behaviour(variant: Variant) -> str:
    """Return a digest of what a system does, and of how its capacity is judged and searched."""
    scenario = scenario_of(_PROBED, TABLE_12, variant, SPEEDS_TOKENS_PER_S, _DEVICES)
    found = simulate(replace(scenario, warmup_s=_WARMUP_S, duration_s=_DURATION_S, keep_batch_log=True))
    batches = [(f"{one.ends_at_s:.9g}", one.members) for one in found.batch_log]
    rates = [f"{rate(found, limit_s):.9g}" for rate in (unkept_rate, unkept_rate_apart) for limit_s in (1.0, 1e6)]
    search = capacity(lambda devices: float(devices > 137), 0.1, 1024, 97, 0.02)
    return _digest(repr(batches), repr(rates), repr(search), repr(NEAR_STEP))


def code_commit() -> str | None:
    """Return the last commit of the code that cells depend on, ``-dirty`` if it was changed since; None without git."""
    with suppress(OSError, subprocess.SubprocessError):
        dirty = _git("status", "--porcelain", "--untracked-files=no")
        return _git("log", "-1", "--format=%h", "--abbrev=12") + ("-dirty" if dirty else "")
    return None


def _git(*asked: str) -> str:
    command = ["git", "-C", str(_CHECKOUT), *asked, "--", "lab", "outrider"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_DEADLINE_S, check=True)
    return done.stdout.strip()


def _digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()[:12]
