"""Comparisons of arms of ``outrider bench engines``. No I/O, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass

from lab.bench.engines.servers import CENTRAL, OUTRIDER, VLLM, outrider_arm
from lab.bench.harness.samples import Sample
from lab.bench.harness.statistics import Estimate, ratio

_GOODPUT = "tokens_per_s"


@dataclass(frozen=True, slots=True)
class Compared:
    """One arm against the fastest of its rivals."""

    clients: int
    arm: str
    rival: str
    turns: int  # number of turns in which both were measured
    ratio: Estimate  # of their tokens per second over these


def compared(samples: Sequence[Sample], windows: Sequence[int | None]) -> list[Compared]:
    """By number of clients: own choice against no drafts and against the best window; prompt lookup against none.

    And all of these against the better of vLLM alone, and own choices against the best of vLLM's ways.
    """
    found: list[Compared] = []
    for clients in dict.fromkeys(sample.clients for sample in samples):
        made = _made([sample for sample in samples if sample.clients == clients])
        for arm, rivals in _contests(made, windows):
            known = [rival for rival in rivals if made.get(rival, {}).keys() & made[arm].keys()]
            if not known:
                continue
            best = max(known, key=lambda rival: _mean(made[rival]))
            if any((one.clients, one.arm, one.rival) == (clients, arm, best) for one in found):
                continue  # the best window is no drafts
            turns = sorted(made[arm].keys() & made[best].keys())
            over = ratio([made[arm][turn] for turn in turns], [made[best][turn] for turn in turns])
            found.append(Compared(clients, arm, best, len(turns), over))
    return found


def _made(samples: Sequence[Sample]) -> dict[str, dict[int, float]]:
    """Tokens per second by arm and turn, where measured."""
    made: dict[str, dict[int, float]] = {}
    for sample in samples:
        if not sample.failure and _GOODPUT in sample.values:
            made.setdefault(sample.arm, {})[sample.turn] = sample.values[_GOODPUT]
    return made


def _mean(by_turn: dict[int, float]) -> float:
    return sum(by_turn.values()) / len(by_turn)


def _contests(made: dict[str, dict[int, float]], windows: Sequence[int | None]) -> list[tuple[str, list[str]]]:
    central, any_vllm = ([arm for arm in made if arm.startswith(name)] for name in (CENTRAL, VLLM))
    engines = dict.fromkeys(arm.split(", ")[1] for arm in made if arm.startswith(f"{OUTRIDER}, "))
    contests = []
    for engine in engines:
        own, undrafted = outrider_arm(engine, None), outrider_arm(engine, 0)
        fixed = [outrider_arm(engine, window) for window in windows if window is not None]
        looking = [arm for arm in made if arm.startswith(f"{own}, lookup ")]
        contests += [(own, [undrafted]), *([(own, fixed)] if len(fixed) > 1 else []), (undrafted, central)]
        contests += [(arm, [own]) for arm in looking]
        contests += [(arm, rivals) for arm in (own, *looking) for rivals in (central, any_vllm)]
    return [(arm, rivals) for arm, rivals in contests if arm in made]
