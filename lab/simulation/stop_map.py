"""Map where early stopping of drafts pays: stop rules over cost models, promises, acceptances and drafting speeds.

All rules in a cell serve the same devices, first come, first served, with resident KV and without a memory limit, so
that only the time of verifier and devices is short. A promise is a share of the speed that one device alone gets with
its best draft, so that it can be kept in every cell. A *slow* promise loads the verifier until its time decides; a
*fast* one leaves it to few devices, for whom each second of a round counts.

Each rule's capacity is searched (WISP eq. 20). Each is also run with two numbers of devices, the same for all rules: a
quarter and all of the best fixed window's capacity. Rules are compared with the target alone and with the fixed window
that is best in these runs, chosen for capacity and for each of the two loads separately.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import product

from lab.simulation.acceptance_models import SimPredictor
from lab.simulation.capacity import Capacity, capacity
from lab.simulation.experiment import FLASH, CostCase, unkept_rate
from lab.simulation.planning import DraftSetting, Outlook, best_draft, chains, fastest_draft, target_alone
from lab.simulation.published import TABLE_12
from lab.simulation.results import SimulationResults
from lab.simulation.roofline import HARDWARE, MODELS, RooflineCostModel
from lab.simulation.run import simulate
from lab.simulation.scenario import DeviceGroup, VerifierModel
from lab.simulation.settings import (
    WITHOUT_LIMIT,
    Variant,
    group_of,
    preset,
    scenario_of,
    verifier_of,
)
from lab.simulation.stopping import UNCHANGED, Calibrated, SimStopSetting
from outrider.contracts.cost import DEFAULT_COST_MODEL
from outrider.contracts.slo import SloClass
from outrider.drafting.stops import SendAndStop, StopBefore

_NEAR = (1, -1, 2, -2)  # steps to neighbours, the likeliest improvement first


@dataclass(frozen=True, slots=True)
class PromiseSearch:
    """When a promise is kept and how finely its capacity is searched: arguments of ``capacity``."""

    violation_rate: Callable[[SimulationResults], float]
    epsilon: float
    most_devices: int
    resolution: float


class Runs:
    """Runs of one way of drafting with different numbers of devices; each is made once and kept."""

    def __init__(self, window: int, promise: PromiseSearch, simulated: Callable[[int], SimulationResults]) -> None:
        """Create runs with drafts of at most ``window`` tokens; ``simulated`` runs a number of devices."""
        self.window = window
        self._promise, self._simulated = promise, simulated
        self._runs: dict[int, SimulationResults] = {}
        self._capacity: Capacity | None = None

    def __getitem__(self, devices: int) -> SimulationResults:
        if devices not in self._runs:
            self._runs[devices] = self._simulated(devices)
        return self._runs[devices]

    def capacity(self, guess: int) -> Capacity:
        """Return the largest number of devices whose promise is kept; the first call searches it from ``guess``.

        If the guess is too large, one device is tried next: some ways of drafting cannot keep even its promise.
        """
        if self._capacity is None:
            promise, guess = self._promise, max(1, min(guess, self._promise.most_devices))
            most = promise.most_devices if self._keeps(guess) or self._keeps(1) else 1
            self._capacity = capacity(self._rate, promise.epsilon, most, guess, promise.resolution)
        return self._capacity

    def serves_more_than(self, devices: int) -> bool:
        """Return whether the capacity exceeds ``devices`` by the search's resolution.

        One run with that number decides in most cases; only if it keeps the promise, the capacity is searched.
        """
        promise = self._promise
        count = min(devices + max(1, int(promise.resolution * devices)), promise.most_devices)
        return count > devices and self._keeps(count) and self.capacity(count).devices > devices

    def _keeps(self, devices: int) -> bool:
        return self._rate(devices) <= self._promise.epsilon

    def _rate(self, devices: int) -> float:
        return self._promise.violation_rate(self[devices])


class Windows:
    """Runs of every fixed window in one cell; the best is found by hill climbing from a closed form's choice.

    Capacity and tokens per second have a single maximum over windows: short drafts waste rounds, long ones waste rows
    and drafting steps. Chance puts dents into the curve, so neighbours up to two windows away are tried.
    """

    def __init__(self, longest: int, runs_of: Callable[[int], Runs]) -> None:
        """Create windows from 0 (target alone) to ``longest``; ``runs_of`` is called once for each, when needed."""
        self._drafting, self._runs_of = range(1, longest + 1), runs_of
        self._windows: dict[int, Runs] = {}

    def __getitem__(self, window: int) -> Runs:
        if window not in self._windows:
            self._windows[window] = self._runs_of(window)
        return self._windows[window]

    def serving_most(self, start: int, guess: int) -> Runs:
        """Return the window above 0 that serves most devices; of equal ones, the first found."""
        return self._climbed(start, lambda one, than: one.serves_more_than(than.capacity(guess).devices))

    def bringing_most(self, start: int, devices: int) -> Runs:
        """Return the window above 0 with the highest goodput at this number of devices."""
        return self._climbed(
            start, lambda one, than: one[devices].goodput_tokens_per_s > than[devices].goodput_tokens_per_s
        )

    def _climbed(self, start: int, better: Callable[[Runs, Runs], bool]) -> Runs:
        here: int | None = start
        while here is not None:
            top, near = here, (here + away for away in _NEAR if here + away in self._drafting)
            here = next((window for window in near if better(self[window], self[top])), None)
        return self[top]


_MOST_DEVICES = 1024
_A100, _MODEL = HARDWARE["a100-80gb"], MODELS["qwen3-32b"]
_RELOADABLE = 0.25
_EMBEDDED_WINDOW = 8


class DraftEnding(StrEnum):
    ALONE = "target alone"  # a window of 0
    WINDOW = "whole window"
    BEST = "best window"  # above 0; chosen for each figure separately
    BEFORE = "stop before"  # WISP eq. 25, at its own recall
    SENT = "send and stop"
    PRICED = "while it pays"


FIXED = (DraftEnding.ALONE, DraftEnding.BEST)
STOPPING = (DraftEnding.BEFORE, DraftEnding.SENT, DraftEnding.PRICED)


@dataclass(frozen=True, slots=True)
class MapCell:
    case: CostCase  # with the cell's acceptance and drafting speed
    promise: float  # share of the speed of one device alone
    auc: float  # of the predictor
    seed: int = 0
    responses: float = 0.5  # of each device, after the warm-up; all together at least ``least_responses``
    least_responses: int = 150
    resolution: float = 0.03

    @property
    def tokens_per_s(self) -> float:
        return self.promise * fastest_draft(self._group(1.0), self.verifier, self._chains).tokens_per_s_alone

    @property
    def verifier(self) -> VerifierModel:
        return verifier_of(self.case.settings, self.case.costs)

    @property
    def _chains(self) -> Sequence[DraftSetting]:
        return chains(self.case.settings.window)

    def _group(self, tokens_per_s: float) -> DeviceGroup:
        return group_of(self.case.settings, SloClass("promised", tokens_per_s), 1)

    def best_chain(self, tokens_per_s: float) -> Outlook:
        """Return the chain with which most devices keep a speed, by closed forms."""
        return best_draft(self._group(tokens_per_s), self.verifier, tokens_per_s, self._chains)

    def autoregressive_devices(self, tokens_per_s: float) -> int:
        """Return how many responses keep a speed without drafts, by closed forms."""
        return int(target_alone(self._group(tokens_per_s), self.verifier, tokens_per_s).devices)


@dataclass(frozen=True, slots=True)
class LoadFigures:
    devices: int
    window: int  # at most drafted
    goodput_tokens_per_s: float
    tokens_per_s: float  # of a response, mean
    late_share: float  # of responses
    round_p50_s: float
    round_p99_s: float
    sent_tokens: float  # of a round, mean
    accepted_fraction: float  # accepted over verified tokens
    busy_share: float  # of the verifier's time


@dataclass(frozen=True, slots=True)
class EndingResult:
    ending: DraftEnding
    window: int  # most drafted tokens, in the runs for capacity
    devices: int  # capacity
    bounded: bool  # whether the search ended at its limit, so that there may be more
    light: LoadFigures
    full: LoadFigures


@dataclass(frozen=True, slots=True)
class PlaceResult:
    case: str
    promise: float
    tokens_per_s: float  # promised
    acceptance: float
    draft_tokens_per_s: float
    auc: float
    closed_form: int  # the window above 0 that serves most by closed forms
    endings: tuple[EndingResult, ...]

    def of(self, ending: DraftEnding) -> EndingResult:
        return next(one for one in self.endings if one.ending is ending)

    def over(self, ending: DraftEnding, base: Sequence[DraftEnding]) -> float | None:
        """Return a rule's capacity over the best of ``base``; None if these serve nobody."""
        most = max(self.of(one).devices for one in base)
        return self.of(ending).devices / most if most else None

    def goodput_over(self, ending: DraftEnding, base: Sequence[DraftEnding], *, full: bool) -> float:
        """Return a rule's goodput over the best of ``base``, at equal numbers of devices."""
        ours, *others = (self.load(one, full=full) for one in (ending, *base))
        return ours.goodput_tokens_per_s / max(one.goodput_tokens_per_s for one in others)

    def load(self, ending: DraftEnding, *, full: bool) -> LoadFigures:
        """Return one rule's run at the best window's capacity (``full``), or at a quarter of it."""
        return self.of(ending).full if full else self.of(ending).light


COSTS = ("table 12", "flash", "embedded", "roofline")


def cost_cases() -> tuple[CostCase, ...]:
    """Return the cost models that are compared; KV memory has no limit."""
    wisp = replace(preset("wisp_table_2"), kv_tokens=WITHOUT_LIMIT)
    embedded = replace(preset("embedded"), kv_tokens=WITHOUT_LIMIT, window=_EMBEDDED_WINDOW, epsilon=wisp.epsilon)
    source = "the built-in model of the embedded pair on one CPU core"
    return (
        CostCase("table 12", "WISP Table 12: Qwen3-32B on one A100, its authors' engine", wisp, TABLE_12),
        CostCase("flash", "Table 12 with cached tokens read at the card's bandwidth", wisp, FLASH),
        CostCase("embedded", source, embedded, DEFAULT_COST_MODEL),
        CostCase("roofline", "Qwen3-32B on one A100, from data sheets", wisp, RooflineCostModel(_MODEL, _A100)),
    )


@dataclass(frozen=True, slots=True)
class Grid:
    """Axes of the map beside cost models."""

    promises: Sequence[float] = (0.6, 0.3)
    acceptances: Sequence[float] = (0.5, 0.7, 0.875)
    draft_speeds: Sequence[float] = (10.0, 20.0, 50.0)  # tokens/s
    auc: float = 0.767  # of a signal of which WISP's operating point is one
    resolution: float = 0.03


QUICK = Grid(promises=(0.6,), acceptances=(0.6, 0.875), draft_speeds=(15.0, 50.0), resolution=0.06)


def places(cases: Sequence[CostCase], grid: Grid, seed: int) -> Iterator[MapCell]:
    """Yield the map's cells by case. Responses are half as long as in the settings, which is a quarter of the work."""
    for case, promise, acceptance, speed in product(cases, grid.promises, grid.acceptances, grid.draft_speeds):
        settings = replace(
            case.settings,
            token_acceptance=acceptance,
            draft_tokens_per_s=speed,
            prompt_tokens=case.settings.prompt_tokens // 2,
            output_tokens=case.settings.output_tokens // 2,
        )
        yield MapCell(replace(case, settings=settings), promise, grid.auc, seed, resolution=grid.resolution)


def run_place(place: MapCell) -> PlaceResult:
    speed, settings, chain = place.tokens_per_s, place.case.settings, place.best_chain(place.tokens_per_s)
    closed_form, longest, guess = chain.draft.window, settings.window, int(chain.devices)
    windows = windows_of(place, speed)
    best = windows.serving_most(closed_form, guess)
    full = best.capacity(guess).devices
    whole = windows[longest]
    if whole.capacity(full).devices > full:
        best, full = whole, whole.capacity(full).devices
    loads = max(1, round(_RELOADABLE * full)), max(1, full)
    most_brought = [windows.bringing_most(best.window, devices) for devices in loads]
    ways = {
        DraftEnding.ALONE: (windows[0],) * 3,
        DraftEnding.WINDOW: (whole,) * 3,
        DraftEnding.BEST: (best, *most_brought),
    }
    ways |= {ending: (_runs(place, speed, longest, ending),) * 3 for ending in STOPPING}
    autoregressive_devices = place.autoregressive_devices(speed)
    return PlaceResult(
        case=place.case.name,
        promise=place.promise,
        tokens_per_s=speed,
        acceptance=settings.token_acceptance,
        draft_tokens_per_s=settings.draft_tokens_per_s,
        auc=place.auc,
        closed_form=closed_form,
        endings=tuple(
            _result(ending, way, loads, autoregressive_devices if ending is DraftEnding.ALONE else full)
            for ending, way in ways.items()
        ),
    )


def windows_of(place: MapCell, tokens_per_s: float) -> Windows:
    return Windows(place.case.settings.window, lambda window: _runs(place, tokens_per_s, window))


def _runs(place: MapCell, tokens_per_s: float, window: int, ending: DraftEnding = DraftEnding.WINDOW) -> Runs:
    """Return runs with drafts of at most ``window`` tokens, ended by a rule."""
    case = place.case
    violation_rate = partial(unkept_rate, first_token_s=case.settings.first_token_s)
    stopping = _stopping(place, ending)

    def simulated(devices: int) -> SimulationResults:
        responses = max(place.responses, place.least_responses / devices)
        made = scenario_of(case.settings, case.costs, Variant.KV, (tokens_per_s,), devices, place.seed, responses)
        groups = tuple(replace(group, window=window, stopping=stopping) for group in made.groups)
        return simulate(replace(made, groups=groups, plans_late=False))

    return Runs(
        window, PromiseSearch(violation_rate, case.settings.epsilon, _MOST_DEVICES, place.resolution), simulated
    )


def _stopping(place: MapCell, ending: DraftEnding) -> SimStopSetting | None:
    if ending not in STOPPING:
        return None
    predictor = Calibrated(place.auc)
    if ending is DraftEnding.PRICED:
        return SimStopSetting(predictor)
    rule = StopBefore if ending is DraftEnding.BEFORE else SendAndStop
    threshold = predictor.threshold(place.case.settings.token_acceptance, SimPredictor().recall)
    return SimStopSetting(predictor, rule(UNCHANGED, threshold))


def _result(ending: DraftEnding, ways: tuple[Runs, ...], loads: tuple[int, int], guess: int) -> EndingResult:
    """Combine a rule's figures; ``ways`` of drafting are those for capacity and for each of the two loads."""
    served = ways[0].capacity(guess)
    light, full = (_figures(way, devices) for way, devices in zip(ways[1:], loads, strict=True))
    return EndingResult(ending, ways[0].window, served.devices, served.bounded, light, full)


def _figures(runs: Runs, devices: int) -> LoadFigures:
    found = runs[devices]
    promised, rounds = found.promised, max(found.promised.rounds, 1)
    return LoadFigures(
        devices=devices,
        window=runs.window,
        goodput_tokens_per_s=found.goodput_tokens_per_s,
        tokens_per_s=promised.achieved_tokens_per_s or 0.0,
        late_share=promised.response_violation_rate,
        round_p50_s=found.round_times.p50_s,
        round_p99_s=found.round_times.p99_s,
        sent_tokens=promised.drafted_tokens / rounds,
        accepted_fraction=promised.accepted_tokens / max(promised.drafted_tokens, 1),
        busy_share=found.busy_share,
    )
