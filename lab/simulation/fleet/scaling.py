"""Compare scaling by promised load with scaling by requests: verifier hours at equal shares of kept promises."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from lab.simulation.fleet.results import FleetResults
from lab.simulation.fleet.run import simulate_fleet
from lab.simulation.fleet.scenario import FleetScenario, RequestCount
from outrider.contracts.errors import ParameterError
from outrider.scaling.policy import ScalingRules

LOADS = (0.5, 0.6, 0.7, 0.8, 0.9)
REQUESTS = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
LOOK_BACK_S = 5.0
PROMISE, BY_REQUESTS = "promise", "requests"


@dataclass(frozen=True, slots=True)
class ScalingRun:
    """One policy at one target: a share of the allowed load, or requests under way at each verifier."""

    by: str
    target: float
    scenario: FleetScenario


@dataclass(frozen=True, slots=True)
class ScalingResult:
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
    """Build a run of each policy at each of its targets, with equal floor, ceiling and delay of scaling down.

    The policy by requests averages over ``look_back_s`` and scales up at once: Serve's default delay would cost it
    promises.

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
    """Return the least verifier hours at which the share ``kept`` of promises is kept; None if no target keeps it.

    Between two targets, hours are interpolated linearly in the share, for both policies alike.
    """
    found = sorted((one.kept, one.verifier_h) for one in results)
    costs = [hours for share, hours in found if share >= kept]
    for (below, cheap), (above, dear) in pairwise(found):
        if below < kept < above:
            costs.append(cheap + (dear - cheap) * (kept - below) / (above - below))
    return min(costs, default=None)
