"""Search settings of WISP and of ours by coordinate descent, with no more settings tried for ours.

WISP leaves open the guard time of eq. 17, the threshold of its predictor, when a first token is due, the longest
window and how utilities are told apart; the rest of what is searched is what our own repair of Algorithm 1 and the
paper's own variants leave open. Of ours, what a service can set or a policy's constants are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from lab.simulation.acceptance_models import SimPredictor
from lab.simulation.settings import Tuning
from outrider.scheduling.slo_aware import SloAware
from outrider.scheduling.wisp import Doomed, Wisp

_NORMAL = NormalDist()
_PRINTED = SimPredictor()


def predictor_at(recall: float, *, sends_flagged: bool = True) -> SimPredictor | None:
    """Return WISP's predictor at another threshold, on the binormal curve through its printed point; None at 1."""
    if recall >= 1.0:
        return None
    apart = _NORMAL.inv_cdf(_PRINTED.recall) - _NORMAL.inv_cdf(_PRINTED.false_positive_rate)
    return SimPredictor(recall, _NORMAL.cdf(_NORMAL.inv_cdf(recall) - apart), sends_flagged=sends_flagged)


@dataclass(frozen=True, slots=True)
class Change:
    """One setting to try; those of the same ``axis`` exclude each other."""

    axis: str
    value: float | str | bool
    of: Callable[[Tuning], Tuning]

    def __str__(self) -> str:
        return f"{self.axis} {self.value}"


def _wisp(axis: str, value: float | str | bool, policy: Callable[[Wisp], Wisp]) -> Change:
    def of(tuning: Tuning) -> Tuning:
        assert isinstance(tuning.policy, Wisp)
        return replace(tuning, policy=policy(tuning.policy))

    return Change(axis, value, of)


def _ours(axis: str, value: float, policy: Callable[[SloAware], SloAware]) -> Change:
    def of(tuning: Tuning) -> Tuning:
        assert isinstance(tuning.policy, SloAware)
        return replace(tuning, policy=policy(tuning.policy))

    return Change(axis, value, of)


def _recall(value: float) -> Change:
    return Change("recall", value, lambda tuning: replace(tuning, predictor=predictor_at(value)))


def _window(value: int) -> Change:
    return Change("window", value, lambda tuning: replace(tuning, window=value))


def _first(value: float) -> Change:
    return Change("first token", value, lambda tuning: replace(tuning, first_token_s=value))


WISP_START = Tuning(Wisp(), 10, _PRINTED)
WISP_CHANGES: Sequence[Change] = (
    _recall(0.9),
    _recall(0.97),
    _recall(1.0),
    _first(2.0),
    _first(3.0),
    _first(4.0),
    _wisp("guard", 0.05, lambda policy: replace(policy, guard_s=0.05)),
    _wisp("utility", "marginal", lambda policy: replace(policy, marginal=True)),
    _wisp("doomed", Doomed.LAST.value, lambda policy: replace(policy, doomed=Doomed.LAST)),
    _window(13),
    _window(16),
)
OUR_START = Tuning(SloAware(), 10)
OUR_CHANGES: Sequence[Change] = (
    _window(13),
    _window(16),
    Change("draft share", 0.3, lambda tuning: replace(tuning, draft_share=0.3)),
    _first(2.0),
    _first(3.0),
    _first(4.0),
    _ours("evicted", 0.4, lambda policy: replace(policy, evicted_share=0.4)),
    _ours("evicted", 1.5, lambda policy: replace(policy, evicted_share=1.5)),
    _ours("forgiven", 2.0, lambda policy: replace(policy, forgiven_s=2.0)),
)


@dataclass(frozen=True, slots=True)
class Tuned:
    tuning: Tuning
    chosen: dict[str, float | str | bool]  # by axis; what is not named is as at the start
    score: float
    start_score: float
    tried: tuple[tuple[str, float], ...]


def search(start: Tuning, changes: Sequence[Change], score: Callable[[str, Tuning], float]) -> Tuned:
    """Try each change once, on top of those kept so far, and keep it if the score rises."""
    best, chosen = start, dict[str, float | str | bool]()
    first = highest = score("start", start)
    tried = [("start", first)]
    for change in changes:
        tuning = change.of(best)
        if tuning == best:
            continue
        found = score(" ".join((*(f"{axis}={value}" for axis, value in chosen.items()), str(change))), tuning)
        tried.append((str(change), found))
        if found > highest:
            best, highest = tuning, found
            chosen[change.axis] = change.value
    return Tuned(best, chosen, highest, first, tuple(tried))
