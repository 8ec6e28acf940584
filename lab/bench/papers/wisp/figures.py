"""What the papers' page shows of the cells, for each seed: figures by name, those of a table by promised speed.

A seed that lacks cells has fewer figures, or shorter ones.
"""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from lab.bench.papers.wisp.tables import (
    ADMITTING,
    MIXED_SYSTEMS,
    OURS,
    OURS_TUNED,
    SEEDS,
    TABLE_1,
    TABLE_2,
    TUNED,
    key_of,
)
from lab.simulation.published import SPEEDS_TOKENS_PER_S

Cells = Mapping[str, Any]
Figures = dict[str, list[float]]

_LARGE = "qwen3-32b"
_MODELS = (_LARGE, "qwen3-14b")


def table_2(cells: Cells) -> list[Figures]:
    """Devices by model, system and speed, and how many times as many ours serves; with admission refusals apart."""

    def of(seed: int) -> Figures:
        found: Figures = {}
        for model, speed in product(_MODELS, SPEEDS_TOKENS_PER_S):
            place = f"{model}, {speed:g}/s"
            for system in TABLE_2:
                one = cells.get(key_of(model, system.name, (speed,), seed, memory=True))
                if one and system is ADMITTING:
                    found[f"{place}, {system.name}, refusals count"] = [float(one["devices"])]
                    found[f"{place}, refused %"] = [100.0 * one["refused_share"]]
                if one:
                    found[f"{place}, {system.name}"] = [float(one["devices_apart"])]
            found |= _leads(found, place)
        return found

    return _of_seeds(of)


def _of_seeds(of: Callable[[int], Figures]) -> list[Figures]:
    return [found for seed in SEEDS if (found := of(seed))]


def _leads(found: Figures, place: str) -> Figures:
    pairs = (("lead", OURS.name), ("lead with admission", ADMITTING.name), ("lead, searched", OURS_TUNED.name))
    theirs = found.get(f"{place}, {TUNED.name}")
    named = {name: found.get(f"{place}, {ours}") for name, ours in pairs}
    return {f"{place}, {name}": [ours[0] / theirs[0]] for name, ours in named.items() if ours and theirs}


def table_3(cells: Cells) -> list[Figures]:
    """Tokens/s of each system at its capacity at the fastest speed, the one that Table 2 shows."""

    def of(seed: int) -> Figures:
        found: Figures = {}
        for system in TABLE_2:
            one = cells.get(key_of(_LARGE, system.name, SPEEDS_TOKENS_PER_S[-1:], seed, memory=True))
            if one:
                found[system.name] = [one["apart_tokens_per_s" if system is ADMITTING else "goodput_tokens_per_s"]]
        return found

    return _of_seeds(of)


def figure_7(cells: Cells) -> list[Figures]:
    """Devices with all classes at once, evenly many of each, with memory for everybody and with the limit."""

    def of(seed: int) -> Figures:
        found: Figures = {}
        for kv in ("free", "limited"):
            for system in MIXED_SYSTEMS:
                one = cells.get(key_of(_LARGE, system.name, SPEEDS_TOKENS_PER_S, seed, memory=kv == "limited"))
                if one:
                    found[f"{kv}, {system.name}"] = [float(one["devices"])]
                if one and system is ADMITTING:
                    found[f"{kv}, {system.name}, refusals apart"] = [float(one["devices_apart"])]
            found |= _leads(found, kv)
        return found

    return _of_seeds(of)


def table_1(cells: Cells) -> list[Figures]:
    """Late rounds in % by class, the slowest first, and the share of them whose cause is the queue (Figure 8)."""

    def of(seed: int) -> Figures:
        found: Figures = {}
        for system in TABLE_1:
            one = cells.get(f"table 1 | {system.name} | seed {seed}")
            if one:
                found[system.name] = [100.0 * rate for rate in one["late_rounds"]]
                late = sum(one["queue"]) + sum(one["compute"])
                found[f"queue, {system.name}"] = [100.0 * sum(one["queue"]) / late if late else 0.0]
        return found

    return _of_seeds(of)


def settings(cells: Cells) -> list[Figures]:
    """Scores of the searched settings over those at the start; the settings themselves are among the cells."""
    found: Figures = {}
    for name in ("wisp", "ours"):
        one = cells.get(f"settings | {name}")
        if one is None:
            continue
        found[f"{name}, gain"] = [one["score"] / one["printed"]]
        found[f"{name}, tried"] = [float(len(one["tried"]))]
    return [found]
