"""Verifiers that come with a cold start and go once drained; what is paid for; and Serve's policy by requests."""

from dataclasses import replace
from typing import Any

import pytest

from lab.simulation.fleet.request_count import RequestCounting
from lab.simulation.fleet.results import FleetResults
from lab.simulation.fleet.run import simulate_fleet
from lab.simulation.fleet.scaling import BY_REQUESTS, PROMISE, ScalingResult, cost_at, scaling_runs
from lab.simulation.fleet.scenario import Bursts, RequestCount, Scaling
from lab.simulation.reading import parse_fleet
from outrider.admission.rules import AdmissionRules
from outrider.contracts.errors import ConfigError, ParameterError
from outrider.contracts.slo import SloClass
from outrider.scaling.policy import ScalingRules
from tests.unit.lab.simulation.fleet.fleets import fleet, traffic
from tests.unit.lab.simulation.fleet.test_fleet_reading import SMALL

BURSTS = Bursts(every_s=20.0, lasts_s=5.0, times=8.0)
ASKING = traffic(users=0, conversations_per_s=2.0, bursts=BURSTS, slo=SloClass("fast", 8.0), retries=0)
BY_PROMISE = ScalingRules(1, 6, down_after_s=5.0, cold_start_s=2.0, trend_s=4.0)


def scaled(**changes: Any) -> FleetResults:
    """One verifier at first, few places each, and a burst in the middle."""
    fields: dict[str, Any] = {
        "verifiers": 1,
        "traffic": (ASKING,),
        "duration_s": 40.0,
        "admission": AdmissionRules(max_active=12, max_waiting=24),
        "scaling": Scaling(by=BY_PROMISE, cold_start_s=2.0),
    }
    return simulate_fleet(fleet(**(fields | changes)))


def ended_once(found: FleetResults) -> bool:
    """Everybody who asked is exactly one of these."""
    return all(one.asked == one.kept + one.late + one.refused + one.unfinished for one in found.traffic)


def test_verifiers_come_for_a_burst_and_go_behind_it() -> None:
    found = scaled()
    assert found.most_verifiers > 1
    assert found.verifiers_started > 0
    assert found.verifier_s < 40.0 * found.most_verifiers, "they did not stay"
    assert sum(one.responses > 0 for one in found.replicas) > 1, "those added took traffic"
    assert ended_once(found)
    assert found.traffic[0].unfinished <= 12 * found.most_verifiers


def test_a_burst_costs_a_fleet_that_cannot_grow_its_promises() -> None:
    fixed, grown = scaled(scaling=None), scaled()
    assert fixed.verifier_s == pytest.approx(40.0, abs=0.1)
    assert grown.traffic[0].kept > fixed.traffic[0].kept
    assert grown.promised_kept > fixed.promised_kept


def test_a_start_is_paid_for_and_takes_no_traffic() -> None:
    found = scaled(scaling=Scaling(by=BY_PROMISE, cold_start_s=1000.0))
    assert found.verifiers_started == 0
    assert len(found.replicas) == 1
    assert found.verifier_s > 40.0


def test_the_same_seed_gives_the_same() -> None:
    assert scaled() == scaled()


def test_by_requests_as_serve_does() -> None:
    rules = RequestCount(least=1, most=10, target=4.0, look_back_s=2.0, up_after_s=3.0, down_after_s=5.0)
    counting, wanted, found = RequestCounting(rules), 1, list[int]()
    for now_s in range(30):
        requests = 20 if now_s < 10 else 0
        wanted = counting.decide(float(now_s), wanted, wanted, requests)
        found.append(wanted)
    assert found[:4] == [1, 1, 1, 5], "20 / 4, once that was wanted for 3 s"
    fewer_at = next(now_s for now_s, count in enumerate(found) if now_s > 4 and count < 5)
    assert fewer_at >= 15
    assert found[-1] == 1


def test_cost_between_two_targets() -> None:
    def result(kept: int, hours: float) -> ScalingResult:
        found = scaled(duration_s=0.5, scaling=None)
        one = found.traffic[0]
        changed = replace(one, asked=100, kept=kept, late=100 - kept, refused=0, unfinished=0)
        return ScalingResult(BY_REQUESTS, 1.0, replace(found, traffic=(changed,), verifier_s=3600 * hours))

    results = [result(80, 1.0), result(90, 2.0)]
    assert cost_at(results, 0.85) == pytest.approx(1.5)
    assert cost_at(results, 0.9) == pytest.approx(2.0)
    assert cost_at(results, 0.7) == pytest.approx(1.0)
    assert cost_at(results, 0.95) is None


def test_both_policies_have_the_same_bounds_and_delays() -> None:
    scenario = fleet(scaling=Scaling(by=BY_PROMISE, cold_start_s=2.0))
    runs = scaling_runs(scenario, (0.7,), (3.0, 4.0), look_back_s=40.0)
    assert [(run.by, run.target) for run in runs] == [(PROMISE, 0.7), (BY_REQUESTS, 3.0), (BY_REQUESTS, 4.0)]
    for run in runs:
        scaling = run.scenario.scaling
        assert scaling is not None
        assert (scaling.by.least, scaling.by.most, scaling.by.down_after_s) == (1, 6, 5.0)
        assert isinstance(scaling.by, ScalingRules) or scaling.by.look_back_s == 40.0
    with pytest.raises(ParameterError, match="promise"):
        scaling_runs(fleet(), (0.7,), ())


STEADY = SMALL.replace("  lost_every_s: 600\n", "")


def test_a_file_says_how_verifiers_are_scaled() -> None:
    by_promise = parse_fleet(STEADY + "scaling: {min: 2, max: 5, cold_start_s: 30}", "small.yaml").scenario.scaling
    assert by_promise == Scaling(by=ScalingRules(2, 5, cold_start_s=30.0), cold_start_s=30.0)
    asked = "scaling: {min: 2, max: 5, by: requests, target_requests: 7}"
    by_requests = parse_fleet(STEADY + asked, "small.yaml").scenario.scaling
    assert by_requests is not None
    assert isinstance(by_requests.by, RequestCount)
    assert by_requests.by.target == 7.0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (STEADY + "scaling: {min: 3, max: 2}", "scaling.max needs at least min (3), found 2"),
        (STEADY + "scaling: {min: 4, max: 5}", "verifiers.count needs scaling.min (4) to scaling.max (5), found 3"),
        (SMALL + "scaling: {min: 1, max: 5}", "lost_every_s needs to be left out beside scaling"),
        (STEADY + "admission: {enabled: false}\nscaling: {min: 1, max: 5}", "admission.enabled needs true"),
    ],
)
def test_a_mistake_is_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_fleet(text, "small.yaml")
    assert problem in str(raised.value)


def test_what_a_drained_verifier_has_left_goes_on_elsewhere() -> None:
    stays, depart = (scaled(scaling=Scaling(by=BY_PROMISE, cold_start_s=2.0, drain_s=s)) for s in (None, 0.0))
    assert stays.responses_resumed == 0
    assert depart.responses_resumed > 0
    assert ended_once(depart)
