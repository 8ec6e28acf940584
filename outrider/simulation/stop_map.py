"""Where it pays to stop drafting early: rules side by side over cost models, promises, acceptances and devices.

All rules of a place serve the same devices: first come first served with resident KV and memory for everybody, so that
nothing but the verifier's time and the devices' own is short. A promise is a share of what one device alone gets with
the draft that suits it best, so that it can be kept everywhere: a *slow* one loads the verifier until its time is all
that counts, a *fast* one leaves it to few devices, for whom every second of a round counts.

Each rule is asked for its capacity (WISP eq. 20), and run with two numbers of devices that are the same for all: a
quarter, and all of what the better fixed window can serve.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import product
from pathlib import Path

from outrider.contracts.cost import DEFAULT_COST_MODEL, LinearCostModel
from outrider.contracts.slo import SloClass
from outrider.costs.profiles import read_profile
from outrider.drafting.stops import SendAndStop, StopBefore
from outrider.simulation.acceptance_models import Predictor
from outrider.simulation.capacity import capacity
from outrider.simulation.experiment import Measure, worst_rate
from outrider.simulation.planning import Draft, best_draft, chains, fastest_draft, target_alone
from outrider.simulation.published import TABLE_12
from outrider.simulation.results import SimulationResults
from outrider.simulation.roofline import HARDWARE, MEMORY_SHARE, MODELS, RooflineCostModel
from outrider.simulation.run import simulate
from outrider.simulation.scenario import DeviceGroup, Scenario, VerifierModel
from outrider.simulation.settings import Costs, Settings, Variant, group_of, preset, scenario_of, verifier_of
from outrider.simulation.stopping import AS_TOLD, Calibrated, Stopping

_MOST_DEVICES = 1024
_WITHOUT_LIMIT = 100_000_000
_A100, _MODEL = HARDWARE["a100-80gb"], MODELS["qwen3-32b"]
_LIGHT = 0.25
_EMBEDDED_WINDOW = 8
_LEAST_RESPONSES = 150  # of a run: with fewer a rate of violations says little

# Table 12, but for what its authors' engine takes to read a cached token: here the card's own bandwidth.
FLASH = replace(TABLE_12, seconds_per_cached_token=_MODEL.kv_bytes_per_token / (MEMORY_SHARE * _A100.bytes_per_s))


class Ending(StrEnum):
    """What ends a draft."""

    WINDOW = "whole window"
    BEST = "best window"  # the closed form's choice for that promise
    BEFORE = "stop before"  # WISP eq. 25, at its own recall
    SENT = "send and stop"
    PRICED = "while it pays"


FIXED = (Ending.WINDOW, Ending.BEST)
STOPPING = (Ending.BEFORE, Ending.SENT, Ending.PRICED)


@dataclass(frozen=True, slots=True)
class CostCase:
    """A cost model with the settings it is run with."""

    name: str
    source: str  # where its figures come from, for the reader
    settings: Settings
    costs: Costs


@dataclass(frozen=True, slots=True)
class Place:
    """One cell of the map."""

    case: CostCase  # its settings' acceptance and draft speed are the place's
    promise: float  # share of the speed of one device alone
    auc: float  # of the predictor
    seed: int = 0
    responses: float = 1.0
    resolution: float = 0.02

    @property
    def tokens_per_s(self) -> float:
        """Promised."""
        return self.promise * fastest_draft(self._group(1.0), self.verifier, self._chains).tokens_per_s_alone

    @property
    def verifier(self) -> VerifierModel:
        """That all share."""
        return verifier_of(self.case.settings, self.case.costs)

    @property
    def _chains(self) -> Sequence[Draft]:
        return chains(self.case.settings.window)

    def _group(self, tokens_per_s: float) -> DeviceGroup:
        return group_of(self.case.settings, SloClass("promised", tokens_per_s), 1)

    def best_window(self, tokens_per_s: float) -> int:
        """The chain with which most devices keep a speed, by the closed form."""
        return best_draft(self._group(tokens_per_s), self.verifier, tokens_per_s, self._chains).draft.window

    def alone(self, tokens_per_s: float) -> int:
        """Responses that keep a speed without any drafts, by the closed form."""
        return int(target_alone(self._group(tokens_per_s), self.verifier, tokens_per_s).devices)

    def guess(self, tokens_per_s: float) -> int:
        """Where to begin looking for a capacity."""
        best = best_draft(self._group(tokens_per_s), self.verifier, tokens_per_s, self._chains)
        return max(1, min(int(best.devices), _MOST_DEVICES))


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """One run."""

    devices: int
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
    """One rule in one place."""

    ending: Ending
    window: int  # at most drafted
    devices: int  # capacity
    bounded: bool  # as many as were tried: there may be more
    light: LoadFigures
    full: LoadFigures


@dataclass(frozen=True, slots=True)
class PlaceResult:
    """All rules in one place."""

    case: str
    promise: float
    tokens_per_s: float  # promised
    acceptance: float
    draft_tokens_per_s: float
    auc: float
    alone: int  # responses kept without drafts
    endings: tuple[EndingResult, ...]

    def of(self, ending: Ending) -> EndingResult:
        """One rule's."""
        return next(one for one in self.endings if one.ending is ending)

    def over(self, ending: Ending, base: Sequence[Ending]) -> float | None:
        """A rule's capacity over the best of others'; None where these serve nobody."""
        most = max(self.of(one).devices for one in base)
        return self.of(ending).devices / most if most else None

    def goodput_over(self, ending: Ending, base: Sequence[Ending], *, full: bool) -> float:
        """The same of goodput, with equally many devices."""
        ours, *others = ((one.full if full else one.light) for one in map(self.of, (ending, *base)))
        return ours.goodput_tokens_per_s / max(one.goodput_tokens_per_s for one in others)


COSTS = ("table 12", "flash", "embedded", "roofline")


def cost_cases(profile: Path | None) -> tuple[CostCase, ...]:
    """The cost models put side by side. KV memory is free."""
    wisp = replace(preset("wisp_table_2"), kv_tokens=_WITHOUT_LIMIT)
    embedded = replace(preset("embedded"), kv_tokens=_WITHOUT_LIMIT, window=_EMBEDDED_WINDOW, epsilon=wisp.epsilon)
    own, source = DEFAULT_COST_MODEL, "the built-in model of the embedded pair on one CPU core"
    if profile is not None:
        own, source = read_profile(profile).model, f"measured here: {profile.name}"
    return (
        CostCase("table 12", "WISP Table 12: Qwen3-32B on one A100, its authors' engine", wisp, _alike(TABLE_12)),
        CostCase("flash", "Table 12 with cached tokens read at the card's bandwidth", wisp, _alike(FLASH)),
        CostCase("embedded", source, embedded, _alike(own)),
        CostCase("roofline", "Qwen3-32B on one A100, from data sheets", wisp, _roofline()),
    )


def places(cases: Sequence[CostCase], seed: int, *, quick: bool) -> Iterator[Place]:
    """The map's cells, case by case. WISP's operating point is one of a signal whose AUC is 0.767."""
    acceptances: Sequence[float] = (0.6, 0.875) if quick else (0.5, 0.7, 0.875)
    speeds: Sequence[float] = (15.0, 50.0) if quick else (10.0, 20.0, 50.0)
    promises: Sequence[float] = (0.6,) if quick else (0.3, 0.7)
    aucs: Sequence[float] = (0.767,) if quick else (0.767, 0.9)
    place = partial(Place, seed=seed, responses=0.5 if quick else 1.5, resolution=0.06 if quick else 0.015)
    for case, auc, promise, acceptance, speed in product(cases, aucs, promises, acceptances, speeds):
        settings = replace(case.settings, token_acceptance=acceptance, draft_tokens_per_s=speed)
        if quick:  # half as long: a quarter of the work
            halves = (settings.prompt_tokens // 2, settings.output_tokens // 2)
            settings = replace(settings, prompt_tokens=halves[0], output_tokens=halves[1])
        yield place(replace(case, settings=settings), promise, auc)


def run_place(place: Place) -> PlaceResult:
    """All rules; a pure function of the place."""
    speed, settings = place.tokens_per_s, place.case.settings
    searches = {ending: _Search(place, ending, speed) for ending in Ending}
    guess, found = place.guess(speed), dict[Ending, tuple[int, bool]]()
    for ending, search in searches.items():
        served = capacity(search.rate, settings.epsilon, _MOST_DEVICES, guess, place.resolution)
        found[ending] = served.devices, served.bounded
        guess = served.devices or guess
    full = max(1, *(found[ending][0] for ending in FIXED))
    light = max(1, round(_LIGHT * full))
    return PlaceResult(
        case=place.case.name,
        promise=place.promise,
        tokens_per_s=speed,
        acceptance=settings.token_acceptance,
        draft_tokens_per_s=settings.draft_tokens_per_s,
        auc=place.auc,
        alone=place.alone(speed),
        endings=tuple(
            EndingResult(ending, search.group.window, *found[ending], search.figures(light), search.figures(full))
            for ending, search in searches.items()
        ),
    )


class _Search:
    """Runs of one rule in one place, each made once."""

    def __init__(self, place: Place, ending: Ending, tokens_per_s: float) -> None:
        self._place, self._ending, self._speed = place, ending, tokens_per_s
        self._best = place.best_window(tokens_per_s) if ending is Ending.BEST else 0
        self._runs: dict[int, SimulationResults] = {}

    @property
    def group(self) -> DeviceGroup:
        """The devices."""
        return self._scenario(1).groups[0]

    def rate(self, devices: int) -> float:
        """Of violations: 1 where a first token takes too long."""
        found = self._run(devices)
        slow_start = found.first_token_times.p99_s > self._place.case.settings.first_token_s
        return 1.0 if slow_start else worst_rate(found, Measure.RESPONSE)

    def figures(self, devices: int) -> LoadFigures:
        """Of a run with so many."""
        found = self._run(devices)
        promised, rounds = found.promised, max(found.promised.rounds, 1)
        return LoadFigures(
            devices=devices,
            goodput_tokens_per_s=found.goodput_tokens_per_s,
            tokens_per_s=promised.achieved_tokens_per_s or 0.0,
            late_share=promised.response_violation_rate,
            round_p50_s=found.round_times.p50_s,
            round_p99_s=found.round_times.p99_s,
            sent_tokens=promised.drafted_tokens / rounds,
            accepted_fraction=promised.accepted_tokens / max(promised.drafted_tokens, 1),
            busy_share=found.busy_share,
        )

    def _run(self, devices: int) -> SimulationResults:
        if devices not in self._runs:
            self._runs[devices] = simulate(self._scenario(devices))
        return self._runs[devices]

    def _scenario(self, devices: int) -> Scenario:
        case, place = self._place.case, self._place
        responses = max(place.responses, _LEAST_RESPONSES / devices)
        made = scenario_of(case.settings, case.costs, Variant.KV, (self._speed,), devices, place.seed, responses)
        return replace(made, groups=tuple(self._ended(group) for group in made.groups))

    def _ended(self, group: DeviceGroup) -> DeviceGroup:
        ending, predictor = self._ending, Calibrated(self._place.auc)
        if ending is Ending.WINDOW:
            return group
        if ending is Ending.BEST:
            return replace(group, window=self._best)
        if ending is Ending.PRICED:
            return replace(group, stopping=Stopping(predictor))
        rule = StopBefore if ending is Ending.BEFORE else SendAndStop
        threshold = predictor.threshold(self._place.case.settings.token_acceptance, Predictor().recall)
        return replace(group, stopping=Stopping(predictor, rule(AS_TOLD, threshold)))


def _alike(model: LinearCostModel) -> Costs:
    """Nothing is drafted on the server."""
    return Costs(model, model)


def _roofline() -> Costs:
    model = RooflineCostModel(_MODEL, _A100)
    return Costs(model, model)
