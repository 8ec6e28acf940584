"""What a speculation tuner knows, for ``/status`` and metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.selection.modes import SpeculationMode
from outrider.selection.tuning.canaries import CanaryResult
from outrider.selection.tuning.epoch_samples import are_apart
from outrider.selection.tuning.rewards import Reward, Rewards


@dataclass(frozen=True, slots=True)
class TunerReport:
    """State of a speculation tuner, for ``/status`` and metrics."""

    arm: str  # the mode in use
    kept: str  # the best mode as far as is known; if another one is in use, that is being probed
    rewards: tuple[tuple[str, tuple[Reward, ...]], ...]  # of each mode, by load
    probes: tuple[tuple[str, int], ...]  # number of probes of each mode, by canaries or by all
    probes_lost_s: float  # cost of all probes, in seconds of all generations' time
    active_s: float  # seconds in which any generation was active that follows the tuner
    changes: int  # number of changes of the kept mode
    # for modes measured near the present load: tokens/s of a response, and the share of these that the mode loses
    # against the kept one (negative: gains)
    at_load: tuple[tuple[str, float, float], ...] = ()


def at_load(
    rewards: Rewards,
    modes: Sequence[SpeculationMode],
    kept: SpeculationMode,
    canary_results: Mapping[SpeculationMode, CanaryResult],
    load: float,
) -> tuple[tuple[str, float, float], ...]:
    """Return ``TunerReport.at_load`` from rewards and the last canary result of each mode."""
    found, kept_reward = list[tuple[str, float, float]](), rewards.tokens_per_s(kept.name, load)
    for mode in modes:
        reward, canary_result = rewards.tokens_per_s(mode.name, load), canary_results.get(mode)
        compared = rewards.compare(mode.name, kept.name, load)
        if reward is not None and (mode is kept or compared.known):
            found.append((mode.name, reward, 0.0 if mode is kept else compared.loss))
        elif kept_reward is not None and canary_result is not None and not are_apart(canary_result.load, load):
            found.append((mode.name, canary_result.ratio * kept_reward, 1.0 - canary_result.ratio))
    return tuple(found)
