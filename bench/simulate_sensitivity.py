"""How far capacity depends on what differs from one network and device to another: jitter, drafting speed, its spread.

Each sweep changes one setting and leaves the others frozen; drafts are chosen anew for every drafting speed. Jitter is
cut to half a round trip by the link's emulation (a message cannot arrive before it was sent), so that sweep is made at
a round trip of 200 ms: 50 ms have two standard deviations of room, 100 ms one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from bench.simulate_cases import Case
from outrider.simulation.experiment import Cell, CellResult
from outrider.simulation.settings import Rung, Settings

_SPEED_TOKENS_PER_S = 8.0
_JITTER_RTT_S = 0.2

SWEEPS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "jitter_ms": (0.0, 5.0, 20.0, 50.0, 100.0),
        "draft_tokens_per_s": (10.0, 20.0, 35.0, 50.0, 75.0, 100.0),
        "step_spread": (0.0, 0.1, 0.2, 0.4),
    }
)
RUNGS = (Rung.SLED, Rung.WISP, Rung.CHAINS)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Devices served at 8 tokens/s with one setting changed."""

    setting: str
    value: float
    rung: Rung
    devices: int
    draft: str


def sensitivity_cells(case: Case, seed: int, *, quick: bool) -> list[tuple[str, float, Cell]]:
    """Every value of every sweep for every system compared."""
    cells = []
    for setting, values in SWEEPS.items():
        for value in values[:: 2 if quick else 1]:
            settings = _changed(case.settings, setting, value)
            for rung in RUNGS:
                cell = Cell(
                    case.name,
                    settings,
                    case.costs,
                    rung,
                    (_SPEED_TOKENS_PER_S,),
                    seed=seed,
                    responses=1.0 if quick else 1.5,
                    resolution=0.05 if quick else 0.03,
                )
                cells.append((setting, value, cell))
    return cells


def told(setting: str, value: float, found: CellResult) -> Sensitivity:
    """A search's result as a point of its sweep."""
    return Sensitivity(setting, value, found.rung, found.devices, found.draft)


def _changed(settings: Settings, setting: str, value: float) -> Settings:
    if setting == "jitter_ms":
        return replace(settings, jitter_s=value / 1e3, rtt_s=_JITTER_RTT_S)
    if setting == "draft_tokens_per_s":
        return replace(settings, draft_tokens_per_s=value)
    return replace(settings, step_spread=value)
