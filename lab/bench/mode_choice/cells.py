"""One cell: a closed loop of clients on a virtual clock, under each fixed window and under the tuner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.simulation.lengths import Lengths
from lab.simulation.results import SimulationResults
from lab.simulation.run import simulate
from lab.simulation.scenario import DeviceGroup, Scenario, System, VerifierModel
from outrider.contracts.cost import LinearCostModel
from outrider.link.profiles import LinkProfile
from outrider.scheduling.policy import BatchLimits
from outrider.selection.registry import SELECTION
from outrider.selection.tuning.speculation_tuner import TunerSettings

# Pass times measured on two cores with AMX: torch 46 and 58 ms for one and nine rows in bfloat16, 48 and 108 in
# float32; vLLM by `outrider profile`, and in float32 by rule of thumb.
COSTS: Mapping[str, LinearCostModel] = {
    "torch-bfloat16": LinearCostModel(1.5e-3, 7e-7, 16e-6, 44.5e-3),
    "torch-float32": LinearCostModel(7.5e-3, 7e-7, 16e-6, 40.5e-3),
    "vllm-bfloat16": LinearCostModel(1.28e-3, 0.0, 26e-6, 28.9e-3),
    "vllm-float32": LinearCostModel(2.7e-3, 7e-7, 16e-6, 50e-3),
}
_LINK_BPS = 500e6
_LIMITS = BatchLimits(max_blocks=32, max_new_tokens=512, prefill_chunk_tokens=64)
_EXCHANGE_S = 0.004
_NOISE = 0.05


@dataclass(frozen=True, slots=True)
class Cell:
    """A simulated cell. ``acceptance`` of a draft token, ``step_s`` to draft it; ``policy`` in drafting modes."""

    costs: str
    clients: int
    rtt_s: float
    step_s: float
    acceptance: float
    seconds: float
    seed: int
    policy: str
    modes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tokens of the whole time, which starts cold with all clients at once, and of the part after ``warmup_s``."""

    cell: Cell
    fixed: Mapping[int, int]  # by window
    fixed_warm: Mapping[int, int]
    chosen: int
    chosen_warm: int
    kept: str  # mode, at the end
    probes: int
    probes_lost_s: float

    @property
    def best(self) -> int:
        """The window with the most tokens."""
        return max(self.fixed, key=self.fixed.__getitem__)

    def regret(self, window: int, *, warm: bool) -> float:
        """Share of a fixed window's tokens that the tuner lacks; negative if it has more."""
        fixed, chosen = (self.fixed_warm, self.chosen_warm) if warm else (self.fixed, self.chosen)
        return 1.0 - chosen / fixed[window]


def played(cell: Cell, windows: Sequence[int], warmup_s: float) -> Outcome:
    """Simulate a cell under each window, and under the tuner."""
    fixed, begun = {}, {}
    for window in windows:
        fixed[window], begun[window] = (_tokens(cell, window, end_s) for end_s in (cell.seconds, warmup_s))
    found = simulate(_scenario(cell, None, cell.seconds))
    chosen = _committed(found)
    assert found.tuner is not None
    return Outcome(
        cell,
        fixed,
        {window: fixed[window] - tokens for window, tokens in begun.items()},
        chosen,
        chosen - _tokens(cell, None, warmup_s),
        found.tuner.kept,
        sum(count for _, count in found.tuner.probes),
        found.tuner.probes_lost_s,
    )


def _tokens(cell: Cell, window: int | None, until_s: float) -> int:
    """Tokens committed by ``until_s``: events do not depend on when a run ends."""
    return _committed(simulate(_scenario(cell, window, until_s))) if until_s > 0.0 else 0


def _committed(results: SimulationResults) -> int:
    return sum(device.committed_tokens for device in results.devices)


def _scenario(cell: Cell, window: int | None, until_s: float) -> Scenario:
    group = DeviceGroup(
        name="clients",
        count=cell.clients,
        step_s=cell.step_s,
        acceptance=(cell.acceptance,),
        prompt=Lengths(least=30, most=120),
        output=Lengths(least=60, most=180),
        window=8 if window is None else window,
        link=LinkProfile(_LINK_BPS, _LINK_BPS, cell.rtt_s),
        selection=SELECTION[cell.policy].policy if window is None else None,
        exchange_s=_EXCHANGE_S,
    )
    return Scenario(
        name="mode_choice",
        system=System.OUTRIDER,
        groups=(group,),
        verifier=VerifierModel(COSTS[cell.costs], _LIMITS, dispatch_s=0.002, noise=_NOISE),
        duration_s=until_s,
        seed=cell.seed,
        tuner=TunerSettings() if window is None else None,
        modes=cell.modes,
    )
