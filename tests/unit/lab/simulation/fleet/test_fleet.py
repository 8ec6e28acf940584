"""What holds for every fleet, and what each thing that is modelled does to it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.simulation.fleet.results import FleetResults
from lab.simulation.fleet.run import FleetSimulation, simulate_fleet
from lab.simulation.fleet.scenario import Bursts, DailyCycle, FleetScenario, RouterRules
from lab.simulation.lengths import Lengths
from lab.simulation.run import simulate
from lab.simulation.scenario import System
from outrider.admission.rules import AdmissionRules
from outrider.contracts.errors import ParameterError
from outrider.contracts.slo import SloClass
from tests.unit.lab.simulation.fleet.fleets import LIMITS, drafters, fleet, talks, traffic
from tests.unit.lab.simulation.scenarios import LINK, TABLE_12, group, scenario, verifier

CHANGING = {"lost_every_s": 15.0, "reload_s": 2.0, "coordinator_round_s": 2e-4}
COMING_AND_GOING = drafters(present_s=3.0, away_s=1.0, prefill_tokens_per_s=2000.0, speed_spread=0.3)


def ended(found: FleetResults) -> int:
    return sum(one.kept + one.late for one in found.traffic)


def test_the_same_seed_gives_the_same_fleet_and_another_one_another() -> None:
    of = fleet(drafters=(COMING_AND_GOING,), admission=AdmissionRules(), **CHANGING)
    first = simulate_fleet(of)
    assert simulate_fleet(of) == first
    assert simulate_fleet(of, lambda _: None) == first, "who watches changes nothing"
    assert simulate_fleet(replace(of, seed=1)) != first


def test_what_is_committed_behind_the_warm_up_counts_whoever_asked_before_it() -> None:
    of = fleet(duration_s=20.0, warmup_s=0.0)
    whole, early, late = (
        sum(round(one.goodput_tokens_per_s * found.measured_s) for one in found.traffic)
        for found in map(simulate_fleet, (of, replace(of, duration_s=8.0), replace(of, warmup_s=8.0)))
    )
    assert early > 0
    assert late == whole - early


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    verifiers=st.integers(1, 4),
    devices=st.integers(1, 6),
    places=st.integers(1, 6) | st.none(),
    rate=st.floats(0.0, 6.0),
    lost_every_s=st.sampled_from([2.0, 10.0, 1e9]),
    present_s=st.sampled_from([0.5, 5.0, None]),
)
def test_every_response_ends_once(
    seed: int,
    verifiers: int,
    devices: int,
    places: int | None,
    rate: float,
    lost_every_s: float,
    present_s: float | None,
) -> None:
    rules = None if places is None else AdmissionRules(max_active=places, max_waiting=2, max_wait_s=1.0)
    comes_and_goes = drafters(count=devices, present_s=present_s, away_s=1.0, acceptance_spread=0.5)
    of = fleet(
        seed=seed,
        verifiers=verifiers,
        drafters=(comes_and_goes,),
        traffic=(talks(users=4), traffic(name="open", users=0, conversations_per_s=rate + 0.1, slo=SloClass("none"))),
        admission=rules,
        router=RouterRules(ingresses=2),
        lost_every_s=lost_every_s,
        reload_s=1.0,
        duration_s=8.0,
    )
    run = FleetSimulation(of)
    run.run()
    found = run.results()
    for one in found.traffic:
        assert min(one.kept, one.late, one.refused, one.unfinished) >= 0
        assert one.asked == one.kept + one.late + one.refused + one.unfinished
        assert 0 <= one.hit_tokens <= one.prompt_tokens
    under_way = run.under_way()
    assert sum(one.unfinished for one in found.traffic) == len(under_way)
    assert len({conversation.number for conversation in under_way}) == len(under_way)


def test_one_verifier_and_a_closed_loop_are_the_simulation_of_one_verifier() -> None:
    """Each user has a device of its own, so who drafts for whom makes no difference."""
    slo = SloClass("steady", 4.0)
    lengths = {"prompt": Lengths(least=50, most=150), "output": Lengths(least=10, most=40), "pause_s": 0.0}
    model = verifier(cost_model=TABLE_12, limits=LIMITS, dispatch_s=0.002)
    alone = simulate(
        scenario(
            group(count=12, step_s=0.02, acceptance=(0.8,), window=4, link=LINK, slo=slo, **lengths),
            system=System.OUTRIDER,
            verifier=model,
            duration_s=20.0,
            responses_per_device=None,
            plans_late=True,
            plans_once=True,
            admission=AdmissionRules(max_active=8),
        )
    )
    of = fleet(
        verifiers=1,
        verifier=model,
        drafters=(drafters(count=12, max_generations=1),),
        traffic=(traffic(users=12, slo=slo, retries=1000, **lengths),),
        admission=AdmissionRules(max_active=8),
    )
    together = simulate_fleet(of)
    (replica,), (users,) = together.replicas, together.traffic
    assert together.rounds == alone.simulated_rounds
    assert replica.steps == alone.batches
    assert replica.busy_share * together.measured_s >= alone.busy_s
    assert replica.busy_share == pytest.approx(alone.busy_share, abs=0.01)  # the last step may end behind the end
    assert users.goodput_tokens_per_s == pytest.approx(alone.goodput_tokens_per_s)
    assert users.kept + users.late == sum(len(one.speeds_tokens_per_s) for one in alone.devices)


def test_a_lost_verifier_loses_no_response() -> None:
    """Few enough are asked for that all of them end, whatever was lost on the way."""
    asked = fleet(traffic=(traffic(users=0, conversations_per_s=2.0, bursts=None),), duration_s=60.0, reload_s=3.0)
    quiet, losing = simulate_fleet(asked), simulate_fleet(replace(asked, lost_every_s=9.0))
    assert quiet.verifiers_lost == quiet.responses_resumed == 0
    assert losing.verifiers_lost > 5
    assert losing.responses_resumed > 2
    (before,), (after,) = quiet.traffic, losing.traffic
    assert after.asked == before.asked
    assert after.refused == 0
    assert after.unfinished <= 4 + before.unfinished
    assert sum(one.recomputed_tokens for one in losing.replicas) > 0


def test_the_router_finds_what_conversations_and_system_prompts_left() -> None:
    of = fleet(verifiers=4, duration_s=30.0)
    forgetful = simulate_fleet(replace(of, router=RouterRules(max_blocks=16)))
    assert simulate_fleet(of).hit_share > max(0.8, forgetful.hit_share)
    said_anew = simulate_fleet(replace(of, traffic=(talks(system_prompts=None, turns=Lengths(tokens=1)),)))
    assert said_anew.hit_share == 0.0


def test_where_memory_is_short_what_was_kept_goes() -> None:
    short = verifier(cost_model=TABLE_12, limits=replace(LIMITS, max_memory_blocks=80), dispatch_s=0.002)
    of = fleet(verifiers=1, traffic=(talks(users=16, max_context_tokens=1000),), duration_s=30.0)
    wide, narrow = simulate_fleet(of), simulate_fleet(replace(of, verifier=short))
    assert sum(one.evictions for one in wide.replicas) == 0
    assert sum(one.evictions for one in narrow.replicas) > 0
    assert narrow.hit_share < wide.hit_share


def one_device(**changes: int) -> FleetScenario:
    return fleet(
        verifiers=1,
        drafters=(drafters(count=1, link=None, step_s=0.05),),
        traffic=(traffic(pause_s=0.0, slo=SloClass("none"), **changes),),
        duration_s=40.0,
    )


def test_several_responses_on_a_device_wait_for_each_other() -> None:
    alone, four = simulate_fleet(one_device(users=1)), simulate_fleet(one_device(users=4))
    (one,), (together,) = alone.traffic, four.traffic
    assert one.goodput_tokens_per_s < together.goodput_tokens_per_s < 2.5 * one.goodput_tokens_per_s
    assert four.round_p50_s > 2.0 * alone.round_p50_s


def test_who_has_no_device_is_verified_alone() -> None:
    found = simulate_fleet(one_device(users=5))  # of which four have a place on the device
    assert 0 < found.drafted_rounds < found.rounds
    nobody = simulate_fleet(fleet(drafters=(drafters(window=0),)))
    assert nobody.drafted_rounds == 0
    assert ended(nobody) > 0


def test_a_device_computes_the_prompt_before_it_drafts() -> None:
    of = fleet(traffic=(traffic(),))
    at_once = simulate_fleet(of)
    later = simulate_fleet(replace(of, drafters=(drafters(prefill_tokens_per_s=100.0),)))
    share = [one.drafted_rounds / one.rounds for one in (at_once, later)]
    assert share[1] < share[0] - 0.1


def test_devices_that_leave_cost_drafts_and_no_response() -> None:
    of = fleet(traffic=(traffic(users=0, conversations_per_s=2.0),), duration_s=60.0)
    staying, leaving = (simulate_fleet(replace(of, drafters=(one,))) for one in (drafters(), COMING_AND_GOING))
    assert staying.drafters_lost == staying.drafts_lost == 0
    assert leaving.drafters_lost > 20
    assert leaving.drafts_lost > 5
    assert leaving.traffic[0].asked == staying.traffic[0].asked
    assert ended(leaving) >= ended(staying) - 4


def test_a_coordinator_s_core_can_be_what_is_short() -> None:
    of = fleet(verifiers=1, traffic=(traffic(users=32),), drafters=(drafters(count=32),), duration_s=20.0)
    light, heavy = (simulate_fleet(replace(of, coordinator_round_s=cost_s)) for cost_s in (1e-4, 1e-2))
    assert light.replicas[0].coordinator_share < 0.1
    assert heavy.replicas[0].coordinator_share > 0.9
    assert heavy.goodput_tokens_per_s < 0.8 * light.goodput_tokens_per_s
    half = simulate_fleet(replace(of, coordinator_round_s=1e-4, traffic=(traffic(users=8),)))
    assert half.replicas[0].coordinator_share < light.replicas[0].coordinator_share


def test_speeds_and_acceptances_spread_from_device_to_device() -> None:
    of = fleet(drafters=(drafters(count=200, speed_spread=0.3, acceptance_spread=0.5),))
    pool = FleetSimulation(of).pool
    made = [pool.drafter(number) for number in range(200)]
    speeds, passes = sorted(one.step_s for one in made), sorted(one.passes[0] for one in made)
    assert speeds[100] == pytest.approx(0.02, rel=0.1)
    assert speeds[168] / speeds[100] == pytest.approx(1.35, rel=0.15)  # a deviation above: e^0.3
    assert passes[0] < 0.7 < passes[100] < 0.85 < passes[-1]
    assert len(set(passes)) > 10


def test_open_arrivals_follow_the_day_and_its_bursts() -> None:
    flat = traffic(users=0, conversations_per_s=20.0, output=Lengths(tokens=1))
    day = replace(flat, day=DailyCycle(100.0, 0.8))
    bursts = replace(flat, bursts=Bursts(10.0, 2.0, 5.0))
    assert [round(day.rate_at(at_s), 3) for at_s in (0.0, 25.0, 75.0)] == [20.0, 36.0, 4.0]
    assert [bursts.rate_at(at_s) for at_s in (0.0, 7.9, 8.0, 9.9, 10.0)] == [20.0, 20.0, 100.0, 100.0, 20.0]
    asked = [simulate_fleet(fleet(traffic=(one,), duration_s=50.0)).traffic[0].asked for one in (flat, day, bursts)]
    assert asked[0] == pytest.approx(1000, rel=0.1)
    assert asked[1] > 1.4 * asked[0]  # the first half of its day has the peak
    assert asked[2] == pytest.approx(1.8 * asked[0], rel=0.1)


def test_a_conversation_that_fits_no_verifier_is_refused_at_once() -> None:
    with pytest.raises(ParameterError, match="kv_tokens needs at least 64016, as responses are long, found 64000"):
        simulate_fleet(fleet(traffic=(talks(max_context_tokens=64_000),)))
