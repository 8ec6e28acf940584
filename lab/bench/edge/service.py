"""The embedded service with either draft engine: tokens/s at fixed windows and the service's own choice."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from statistics import mean

from cluster.local import running
from cluster.reports.tables import show_table
from lab.bench.harness.statistics import rotated
from lab.bench.stops.measure import NEVER, Arm, Asking, Figures, measure
from outrider.config.schema import Config


def served(
    config: Config, engines: Sequence[str], windows: Sequence[int], clients: Sequence[int], repeats: int, tokens: int
) -> dict[str, list[Figures]]:
    """Measure a service of each engine in turn, as often as ``repeats`` says; by engine."""
    found: dict[str, list[Figures]] = {engine: [] for engine in engines}
    arms = [Arm("target alone" if not window else f"window {window}", NEVER, {"window": window}) for window in windows]
    arms.append(Arm("own choice", NEVER))
    for repeat in range(repeats):
        for engine in rotated(engines, repeat):
            groups = tuple(replace(group, engine=engine) for group in config.drafters)
            work = replace(config, drafters=groups), arms, clients, repeat, tokens
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # one cluster a process
                found[engine] += pool.submit(_measured, *work).result()
    return found


def show(found: dict[str, list[Figures]]) -> None:
    engines, rows = list(found), []
    cells = dict.fromkeys((one.clients, one.arm) for one in found[engines[0]])
    for cell in cells:
        speeds = [[one.tokens_per_s for one in found[engine] if (one.clients, one.arm) == cell] for engine in engines]
        means = [mean(each) for each in speeds]
        ratios = [one / other for one, other in zip(speeds[-1], speeds[0], strict=True)]
        shown = (f"{each:.1f}" for each in means)
        rows.append((f"{cell[0]}, {cell[1]}", *shown, f"{mean(ratios):.3f}", f"{min(ratios):.3f}-{max(ratios):.3f}"))
    header = ("clients, arm", *(f"{engine}, tokens/s" for engine in engines), f"{engines[-1]} / {engines[0]}", "turns")
    show_table("The embedded service by draft engine", header, rows)


def _measured(config: Config, arms: Sequence[Arm], clients: Sequence[int], repeat: int, tokens: int) -> list[Figures]:
    asking = Asking(config.model.public_name, "token_ids", 0.0, tokens, 2)

    async def all_of(url: str) -> list[Figures]:
        return [await measure(url, arm, asking, count, repeat) for count in clients for arm in arms]

    with running(config) as url:
        return asyncio.run(all_of(url))
