"""The tables of ``outrider bench engines``, and its comparisons of arms."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.reports.tables import show_table
from lab.bench.engines.servers import CENTRAL, OUTRIDER, VLLM, outrider_arm
from lab.bench.harness.prompts import KINDS
from lab.bench.harness.statistics import ArmFigures, Estimate, Sample, figures, ratio

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


_COLUMNS = {
    "tokens/s": "tokens_per_s",
    "of one request": "client_tokens_per_s",
    "TTFT ms": "ttft_ms",
    "TPOT ms": "tpot_ms",
    "acceptance": "acceptance",
    "unanswered": "unanswered",
}


def show_served(samples: Sequence[Sample]) -> None:
    found = sorted(figures(samples), key=lambda one: one.clients)
    title = "service, output tokens per second: median [smallest-largest] over turns"
    rows = [(one.arm, one.clients, *(_shown(one, name) for name in _COLUMNS.values())) for one in found]
    show_table(title, ("arm", "clients", *_COLUMNS), rows)
    _show_kinds(found)
    for arm, failure in {one.arm: one.failure for one in found if one.failure}.items():
        print(f"  FAILED {arm}: {failure}")


def _show_kinds(found: Sequence[ArmFigures]) -> None:
    kinds = [kind for kind in KINDS if any(_of(kind) in one.values for one in found)]
    if kinds:
        rows = [(one.arm, one.clients, *(_shown(one, _of(kind)) for kind in kinds)) for one in found]
        title = "tokens per second of one request, by kind of prompt: median [smallest-largest] over turns"
        show_table(title, ("arm", "clients", *kinds), rows)


def _of(kind: str) -> str:
    return f"{kind}_tokens_per_s"


def show_compared(samples: Sequence[Sample], windows: Sequence[int | None]) -> None:
    """Print the service's aims: tokens per second of one arm over those of another, turn by turn."""
    found = compared(samples, windows)
    rows = [(one.arm, one.rival, one.clients, one.turns, one.ratio) for one in found]
    show_table(
        "output tokens per second over those of the best rival [95 %]",
        ("arm", "rival", "clients", "turns", "ratio"),
        rows,
    )


def _shown(one: ArmFigures, name: str) -> str:
    if name not in one.values:
        return "-"
    return f"{one.values[name].median:.2f}" if name == "acceptance" else str(one.values[name])
