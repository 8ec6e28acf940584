"""Find the settings WISP leaves open: on the SLED and centralized columns of its Table 2, and on no other.

One run per cell of the table (Qwen3-32B), with as many devices as it prints: the speed that all but eps of responses
reach there should be the speed promised. The loss is the mean square of the logarithms of the two speeds' ratios; near
saturation devices times speed is constant, so it is also about that of the devices. Coordinate descent over a grid from
several starts, all on the same seed; accepted over drafted tokens must lie where WISP's Table 5 has them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import TypeAdapter

from bench.simulate_output import spread
from outrider.simulation.published import ACCEPTED_FRACTIONS, CAPACITY_32B, SPEEDS_TOKENS_PER_S
from outrider.simulation.run import simulate
from outrider.simulation.settings import Costs, Rung, Settings, scenario_of

COLUMNS = (Rung.SLED, Rung.CENTRALIZED)

# What is tried. Memory is what 80 GB leave beside 64 GB of weights, at 256 KiB a token: not open.
GRID: Mapping[str, tuple[float | int, ...]] = MappingProxyType(
    {
        "prompt_tokens": (350, 400, 450, 500, 550),
        "output_tokens": (128, 192, 256, 384),
        "length_spread": (0.0, 0.25, 0.5),
        "window": (4, 6, 8, 10, 12),
        "token_acceptance": (0.6, 0.7, 0.75, 0.8, 0.825, 0.85, 0.875, 0.9),
        "draft_tokens_per_s": (30.0, 50.0, 80.0),  # 50 in WISP's Figure 1
        "rtt_s": (0.01, 0.03, 0.06),
        "epsilon": (0.01, 0.05, 0.1, 0.2),
    }
)


@dataclass(frozen=True, slots=True)
class _Point:
    settings: Settings
    costs: Costs
    rung: Rung
    speed_tokens_per_s: float
    devices: int
    seed: int


@dataclass(frozen=True, slots=True)
class Fit:
    """What was found: ``ratios`` are speeds reached over speeds promised, by system."""

    settings: Settings
    loss: float
    ratios: Mapping[str, tuple[float, ...]]
    tried: int


def plausible(settings: Settings) -> bool:
    """Whether accepted over drafted tokens lie where WISP's Table 5 has them, predictor off."""
    return min(ACCEPTED_FRACTIONS) - 0.005 <= settings.accepted_fraction <= max(ACCEPTED_FRACTIONS) + 0.005


def ratios(settings: Settings, costs: Costs, seed: int, workers: int = 1) -> dict[str, tuple[float, ...]]:
    """Speed that all but eps of the responses reach at the printed number of devices, over the speed promised."""
    points = [
        _Point(settings, costs, rung, speed, devices, seed)
        for rung in COLUMNS
        for speed, devices in zip(SPEEDS_TOKENS_PER_S, CAPACITY_32B[rung.value], strict=True)
    ]
    found = list(spread(_ratio, points, workers, "columns"))
    size = len(SPEEDS_TOKENS_PER_S)
    return {rung.value: tuple(found[index * size : (index + 1) * size]) for index, rung in enumerate(COLUMNS)}


def fit(starts: Sequence[Settings], costs: Costs, seed: int, workers: int, sweeps: int = 2) -> Fit:
    """Coordinate descent from every start; the best of all."""
    losses: dict[Settings, float] = {}

    def evaluate(candidates: Sequence[Settings], label: str) -> None:
        new = [one for one in dict.fromkeys(candidates) if one not in losses and plausible(one)]
        work = [(one, costs, seed) for one in new]
        losses.update(zip(new, spread(_loss, work, workers, label), strict=True))

    evaluate(starts, "starts")
    ends = []
    for number, start in enumerate(sorted(losses, key=losses.__getitem__)[:2]):
        best = start
        for sweep in range(sweeps):
            before = best
            for field, values in GRID.items():
                candidates = [_with(best, field, value) for value in values]
                evaluate(candidates, f"start {number + 1}, sweep {sweep + 1}, {field}")
                best = min((one for one in [*candidates, best] if one in losses), key=losses.__getitem__)
            if best == before:
                break
        ends.append(best)
    found = min(ends, key=losses.__getitem__)
    return Fit(found, losses[found], ratios(found, costs, seed), len(losses))


def starts(first: Settings) -> list[Settings]:
    """A few corners of the grid around a guess."""
    return [
        replace(first, prompt_tokens=prompt, window=window, token_acceptance=acceptance, epsilon=epsilon)
        for prompt in (450, 550)
        for window, acceptance in ((6, 0.75), (8, 0.825), (10, 0.85), (12, 0.875))
        for epsilon in (0.05, 0.1)
    ]


def freeze(file: Path, found: Fit) -> None:
    """Write the settings where ``outrider simulate capacity`` reads them."""
    header = (
        "# Found by `outrider simulate capacity --fit` on the SLED and centralized columns of WISP's Table 2\n"
        f"# (Qwen3-32B) and nothing else: mean square of log ratios {found.loss:.4f}, {found.tried} settings tried.\n"
    )
    plain = TypeAdapter(Settings).dump_python(found.settings)
    file.write_text(header + yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")
    print(f"wrote {file}")


def _with(settings: Settings, field: str, value: float) -> Settings:
    changed: dict[str, Any] = {field: value}
    return replace(settings, **changed)


def _loss(work: tuple[Settings, Costs, int]) -> float:
    settings, costs, seed = work
    logs = [
        log(_ratio(_Point(settings, costs, rung, speed, devices, seed)))
        for rung in COLUMNS
        for speed, devices in zip(SPEEDS_TOKENS_PER_S, CAPACITY_32B[rung.value], strict=True)
    ]
    return sum(value * value for value in logs) / len(logs)


def _ratio(point: _Point) -> float:
    scenario = scenario_of(
        point.settings, point.costs, point.rung, (point.speed_tokens_per_s,), point.devices, point.seed, responses=1.5
    )
    results = simulate(replace(scenario, keep_responses=True))
    speeds: list[float] = []
    for device in results.devices:
        unfinished = () if device.achieved_tokens_per_s is None else (device.achieved_tokens_per_s,)
        speeds += device.speeds_tokens_per_s or unfinished
    return max(sorted(speeds)[int(point.settings.epsilon * len(speeds))], 0.1) / point.speed_tokens_per_s
