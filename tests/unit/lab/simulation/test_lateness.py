"""Who counts as late, and that nobody drops out."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lab.simulation.lengths import Lengths
from lab.simulation.results import SimulationResults
from lab.simulation.run import simulate
from lab.simulation.scenario import DeviceGroup, System
from outrider.contracts.cost import CostModel
from outrider.contracts.slo import BEST_EFFORT, SloClass
from outrider.scheduling.attribution import ViolationCause
from outrider.scheduling.policy import (
    NOTHING_PROMISED,
    BatchLimits,
    BatchPlan,
    PendingVerification,
    Promised,
    StopReason,
)
from outrider.scheduling.registry import Scheduling
from tests.unit.lab.simulation.scenarios import TABLE_12, WIDE, crowd, group, scenario, verifier

ROUND_S = 3 * 0.05 + 0.1
SPEED = 4 / ROUND_S  # of a lone device


def promised(tokens_per_s: float, **changes: object) -> DeviceGroup:
    return group(slo=SloClass("promised", tokens_per_s), **changes)


class NeverTheSecond:
    """Serves others as long as there are any."""

    def plan(
        self,
        pending: Sequence[PendingVerification],
        now_s: float,  # noqa: ARG002
        limits: BatchLimits,  # noqa: ARG002
        cost_model: CostModel,  # noqa: ARG002
        promised: Promised = NOTHING_PROMISED,  # noqa: ARG002
    ) -> BatchPlan:
        """Everybody but one device, which is served when nobody else waits."""
        others = tuple(block for block in pending if block.generation != "device_000001") or tuple(pending)
        return BatchPlan(others, tuple(block for block in pending if block not in others), StopReason.LENGTH)


def test_a_promise_just_kept_and_one_just_broken() -> None:
    kept = simulate(scenario(promised(0.99 * SPEED))).devices[0]
    assert (kept.late, kept.late_responses, kept.late_rounds) == (False, 0, 0)
    broken = simulate(scenario(promised(1.01 * SPEED))).devices[0]
    assert (broken.late, broken.late_responses, broken.late_rounds) == (True, 1, 2)
    assert broken.achieved_tokens_per_s == pytest.approx(SPEED)
    nothing = simulate(scenario(group())).devices[0]
    assert (nothing.late, nothing.promised, nothing.late_responses, nothing.late_rounds) == (False, False, 0, 0)


def starving(**changes: object) -> SimulationResults:
    """Two devices of which the second gets no first token."""
    endless = promised(2.0, count=2, output=Lengths(tokens=100_000), window=0)
    fields = {"system": System.CENTRALIZED, "scheduling": Scheduling(NeverTheSecond()), "duration_s": 60.0} | changes
    return simulate(scenario(endless, **fields))


@pytest.mark.parametrize("warmup_s", [0.0, 10.0])
def test_a_device_that_gets_nothing_is_late_for_the_time_it_waits(warmup_s: float) -> None:
    served, starved = starving(warmup_s=warmup_s).devices
    assert (served.late, served.starved, served.late_responses) == (False, False, 0)
    assert (starved.late, starved.starved, starved.late_responses, starved.responses) == (True, True, 1, 1)
    assert (starved.timed_tokens, starved.timed_s) == (0, 60.0 - warmup_s - 5.0)
    assert (starved.rounds, starved.late_queue_rounds) == (1, 1)


def test_a_device_starved_in_the_middle_is_late_too() -> None:
    # Served first while nobody else asks, then never again.
    early = promised(2.0, output=Lengths(tokens=100_000), window=0, name="early")
    late = promised(2.0, output=Lengths(tokens=100_000), window=0, name="late", stagger_s=20.0)
    first, second = simulate(
        scenario(
            late, early, system=System.CENTRALIZED, scheduling=Scheduling(NeverTheSecond()), duration_s=200.0, seed=2
        )
    ).devices
    assert not first.late
    assert second.timed_tokens > 0
    assert (second.late, second.starved, second.late_responses) == (True, True, 1)
    assert second.timed_s == pytest.approx(199.9)  # from its first token to the end


def test_what_is_under_way_at_the_end_is_not_late_yet() -> None:
    results = simulate(scenario(promised(0.9 * SPEED), duration_s=0.1 + ROUND_S + 0.2))
    device = results.devices[0]
    assert (device.unfinished, device.starved, device.late, device.responses) == (True, False, False, 1)
    assert device.timed_tokens == 4
    assert device.timed_s == pytest.approx(ROUND_S)


def test_causes_by_the_queue_and_by_the_pass() -> None:
    crowd = promised(8.0, count=12, window=0, output=Lengths(tokens=40))
    crowded = simulate(scenario(crowd, verifier=verifier(limits=replace(WIDE, max_blocks=8))))
    assert crowded.promised.late_queue_rounds > 0
    spiky = simulate(scenario(promised(1.2 * SPEED, output=Lengths(tokens=4000)), verifier=verifier(noise=0.5)))
    assert spiky.promised.late_compute_rounds > 0
    assert {point.cause for point in spiky.plane} == {None, *ViolationCause}


def test_classes_add_up() -> None:
    served = verifier(cost_model=TABLE_12)
    results = simulate(
        scenario(crowd(5, 8.0), crowd(7, 2.0), crowd(3, 0.0, slo=BEST_EFFORT), verifier=served, responses_per_device=2)
    )
    classes = results.by_class()
    assert [(each.slo.tokens_per_s, each.devices) for each in classes] == [(0.0, 3), (2.0, 7), (8.0, 5)]
    assert results.promised.devices == 12
    assert sum(each.rounds for each in classes) == results.rounds
    assert sum(each.committed_tokens for each in classes) == pytest.approx(
        results.goodput_tokens_per_s * results.measured_s
    )
    assert all(0.0 <= each.round_violation_rate <= 1.0 for each in classes)
    assert classes[0].response_violation_rate == classes[0].device_violation_rate == 0.0


def test_the_plane_is_a_bounded_sample_of_the_whole_run() -> None:
    results = simulate(scenario(group(output=Lengths(tokens=30_000), window=0), duration_s=1e6))
    assert results.rounds == 29_999
    assert 2048 < len(results.plane) <= 4096
