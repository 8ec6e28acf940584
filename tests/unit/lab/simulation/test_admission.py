"""The service's own admission under the event loop: overload keeps what fits, and best effort pays for promises."""

from dataclasses import replace

import pytest

from lab.simulation.results import SimulationResults
from lab.simulation.run import simulate
from lab.simulation.scenario import DeviceGroup, Scenario, System, VerifierModel
from outrider.admission.rules import AdmissionRules
from outrider.contracts.cost import LinearCostModel
from outrider.contracts.slo import BEST_EFFORT
from outrider.scheduling.policy import BatchLimits
from tests.unit.lab.simulation.scenarios import TABLE_12, WIDE, crowd

TOKEN_S, INTERACTION_S, READ_S, _ = TABLE_12.slopes
SLOW = LinearCostModel(20.0 * TOKEN_S, 20.0 * INTERACTION_S, 20.0 * READ_S, 0.02)
RULES = AdmissionRules(max_active=64, max_waiting=16, max_wait_s=4.0)


def run(*groups: DeviceGroup, rules: AdmissionRules | None = RULES, limits: BatchLimits = WIDE) -> SimulationResults:
    verifier = VerifierModel(cost_model=SLOW, limits=limits, kv_block_tokens=16)
    fields = {"duration_s": 90.0, "warmup_s": 15.0, "seed": 3, "admission": rules}
    return simulate(Scenario(name="test", system=System.OUTRIDER, groups=groups, verifier=verifier, **fields))  # type: ignore[arg-type]


def mixed(count: int) -> tuple[DeviceGroup, ...]:
    return tuple(crowd(count, speed) for speed in (2.0, 4.0, 8.0))


def kept_per_s(results: SimulationResults) -> float:
    return sum(d.responses - d.late_responses for d in results.devices) / results.measured_s


def test_under_overload_more_promises_are_kept_than_if_all_are_let_in() -> None:
    admitting, crowded = run(*mixed(20)), run(*mixed(20), rules=None)
    assert kept_per_s(admitting) > 2.0 * kept_per_s(crowded)
    late = admitting.promised
    assert late.late_responses < 0.15 * late.responses
    report = admitting.admission
    assert report is not None
    assert report.load <= 1.1 * report.limit
    assert all(one.refused > 0 for one in report.classes.values())
    assert crowded.admission is None


def test_what_fits_is_let_in_at_once() -> None:
    found = run(*mixed(1))
    assert found.promised.refused == 0
    assert found.promised.late_responses == 0
    alone = run(*mixed(1), rules=None)
    response = 1.0 / found.measured_s
    assert kept_per_s(found) == pytest.approx(kept_per_s(alone), abs=1.5 * response), "but for the end of the time"


def test_refusals_fall_on_the_classes_alike() -> None:
    report = run(*mixed(20)).admission
    assert report is not None
    shares = [one.refused / one.asked for one in report.classes.values()]
    assert max(shares) - min(shares) < 0.3, "of some sixty each; without taking turns the fastest one had 0.4 more"


def test_the_same_scenario_gives_the_same_decisions() -> None:
    assert run(*mixed(10)) == run(*mixed(10))


def test_every_device_is_served_refused_or_waits() -> None:
    found = run(*mixed(20))
    assert found.admission is not None
    for one in found.admission.classes.values():
        assert one.asked == one.admitted + one.refused + one.waiting
        assert one.admitted == one.kept + one.late + one.active


@pytest.mark.parametrize("floor", [0.05, 0.25])
def test_best_effort_has_its_floor_and_promises_start_as_if_it_were_not_there(floor: float) -> None:
    rules = replace(RULES, max_active=8, best_effort_floor=floor, max_load=1.0)
    free = replace(crowd(12), name="free", slo=BEST_EFFORT, pause_s=0.0)
    beside, without = run(crowd(8, 2.0), free, rules=rules), run(crowd(8, 2.0), rules=replace(rules, max_active=8))
    assert beside.admission is not None
    assert without.admission is not None
    best_effort = beside.admission.classes["best_effort"]
    assert best_effort.kept > 0, "it gets on"
    promised, alone = beside.admission.classes["speed_2"], without.admission.classes["speed_2"]
    assert promised.admitted >= (1.0 - floor - 1.5 / 8) * alone.admitted


def test_memory_is_not_overrun() -> None:
    little = replace(WIDE, max_memory_blocks=400)
    slow = [replace(one, output=one.output, slo=BEST_EFFORT) for one in mixed(12)]
    admitting, crowded = run(*slow, limits=little), run(*slow, rules=None, limits=little)
    assert admitting.evictions < 0.5 * crowded.evictions
    assert admitting.goodput_tokens_per_s > crowded.goodput_tokens_per_s
