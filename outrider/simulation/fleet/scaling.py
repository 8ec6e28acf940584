"""Scaling by promises beside scaling by requests: what each costs over the same traffic, for as many promises kept."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from outrider.contracts.errors import ParameterError
from outrider.scaling.policy import ScalingRules
from outrider.simulation.fleet.results import FleetResults
from outrider.simulation.fleet.run import simulate_fleet
from outrider.simulation.fleet.scenario import FleetScenario, RequestCount

LOADS = (0.5, 0.6, 0.7, 0.8, 0.9)
REQUESTS = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
LOOK_BACK_S = 5.0
PROMISE, BY_REQUESTS = "promise", "requests"


@dataclass(frozen=True, slots=True)
class ScalingRun:
    """One policy at one target: a share of what is allowed, or requests under way at each."""

    by: str
    target: float
    scenario: FleetScenario


@dataclass(frozen=True, slots=True)
class ScalingResult:
    """What came of it."""

    by: str
    target: float
    found: FleetResults

    @property
    def kept(self) -> float:
        return self.found.promised_kept

    @property
    def verifier_h(self) -> float:
        return self.found.verifier_s / 3600.0


def scaling_runs(
    scenario: FleetScenario,
    loads: Sequence[float] = LOADS,
    requests: Sequence[float] = REQUESTS,
    look_back_s: float = LOOK_BACK_S,
) -> tuple[ScalingRun, ...]:
    """Each policy at each of its targets, with the same floor, ceiling and delay before there are fewer.

    The one by requests looks back for ``look_back_s`` and adds at once: Serve's own delays would cost it promises.

    Raises:
        ParameterError: the scenario does not scale by promises.
    """
    scaling = scenario.scaling
    if scaling is None or not isinstance(scaling.by, ScalingRules):
        raise ParameterError("scaling.by", "promise", "something else")
    ours = [
        ScalingRun(PROMISE, load, replace(scenario, scaling=replace(scaling, by=replace(scaling.by, target_load=load))))
        for load in loads
    ]
    by = scaling.by
    request_count = RequestCount(
        least=by.least,
        most=by.most,
        target=1.0,
        look_back_s=look_back_s,
        up_after_s=0.0,
        down_after_s=by.down_after_s,
    )
    theirs = [
        ScalingRun(
            BY_REQUESTS, count, replace(scenario, scaling=replace(scaling, by=replace(request_count, target=count)))
        )
        for count in requests
    ]
    return (*ours, *theirs)


def run_scaling(run: ScalingRun) -> ScalingResult:
    return ScalingResult(run.by, run.target, simulate_fleet(run.scenario))


def cost_at(results: Iterable[ScalingResult], kept: float) -> float | None:
    """The least verifier hours that keep such a share of promises, by any target or between two; None if none does.

    Between two targets cost is taken to be linear in what is kept, which flatters neither.
    """
    found = sorted((one.kept, one.verifier_h) for one in results)
    costs = [hours for share, hours in found if share >= kept]
    for (below, cheap), (above, dear) in pairwise(found):
        if below < kept < above:
            costs.append(cheap + (dear - cheap) * (kept - below) / (above - below))
    return min(costs, default=None)
