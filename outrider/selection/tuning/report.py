"""What a speculation tuner knows, for ``/status`` and metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.selection.modes import SpeculationMode
from outrider.selection.tuning.rewards import Reward, Rewards


@dataclass(frozen=True, slots=True)
class TunerReport:
    """State of a speculation tuner, for ``/status`` and metrics."""

    arm: str  # the mode in use
    kept: str  # the best mode as far as is known; if another one is in use, that is being probed
    rewards: tuple[tuple[str, tuple[Reward, ...]], ...]  # of each mode, by load
    probes: tuple[tuple[str, int], ...]  # number of probes of each mode
    probes_lost_s: float  # cost of all probes, in seconds of all generations' time
    active_s: float  # seconds in which any generation was active that follows the tuner
    changes: int  # number of changes of the kept mode
    # for modes measured near the present load: tokens/s of a response, and the share of these that the mode loses
    # against the kept one (negative: gains)
    at_load: tuple[tuple[str, float, float], ...] = ()


def at_load(
    rewards: Rewards, modes: Sequence[SpeculationMode], kept: SpeculationMode, load: float
) -> tuple[tuple[str, float, float], ...]:
    """Return what ``TunerReport`` tells of modes near a load: speed, and loss against the kept one."""
    found = list[tuple[str, float, float]]()
    for mode in modes:
        reward, compared = rewards.tokens_per_s(mode.name, load), rewards.compare(mode.name, kept.name, load)
        if reward is not None and (mode is kept or compared.known):
            found.append((mode.name, reward, 0.0 if mode is kept else compared.loss))
    return tuple(found)
