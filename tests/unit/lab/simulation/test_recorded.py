from dataclasses import replace

import numpy as np
import pytest

from lab.simulation.drafted_rounds import SimDraft, SimResponse
from lab.simulation.recorded import RecordedDevice, WorkloadRecord, compared, measured_times, replay
from outrider.contracts.cost import BatchWork, VerifyCost
from outrider.contracts.link import Direction
from outrider.contracts.slo import SloClass
from outrider.costs.estimator import OnlineEstimator
from outrider.link.emulator import LinkEmulator
from outrider.link.profiles import LinkProfile
from outrider.scheduling.registry import SCHEDULING
from tests.unit.lab.simulation.scenarios import LINK, TENTH, verifier

ROUNDS = (
    SimDraft(3, 3, 2, 0.15, 1.0, (200, 100)),
    SimDraft(0, 0, 0, 0.0, 1.0, None),
    SimDraft(3, 3, 3, 0.2, 1.0, (200, 100)),
)
DEVICE = RecordedDevice(((SimResponse(0.5, 10, 9), ROUNDS),), SloClass("speed_2", 2.0), LINK, 7, 0.001)
RECORD = WorkloadRecord("try", (DEVICE,), (0.28, 0.1, 0.3), (((VerifyCost(10, 0),), 0.25),))


def test_a_device_does_again_what_it_did() -> None:
    results = replay(RECORD, verifier(), SCHEDULING["fcfs"])
    exchange_s = 200 / 2e6 + 100 / 1e6 + 0.02 + 0.001
    assert results.measured_s == pytest.approx(0.5 + 4 * 0.1 + 0.15 + 0.2 + 2 * exchange_s)
    assert [(e.new_tokens, e.cached_tokens) for e in results.batch_log] == [(10, 0), (4, 10), (1, 13), (4, 14)]
    device = results.devices[0]
    assert (device.committed_tokens, device.drafted_tokens, device.accepted_tokens) == (9, 6, 5)
    assert results.round_times.p50_s == pytest.approx(0.15 + exchange_s + 0.1)


def test_the_link_is_the_one_that_was_emulated() -> None:
    rough = LinkProfile(1e6, 1e6, 0.05, 0.1, 0.1, 0.01)
    results = replay(replace(RECORD, devices=(replace(DEVICE, link=rough),)), verifier(), SCHEDULING["fcfs"])
    emulator = LinkEmulator(rough, 7)
    at_s = emulator.deliver(Direction.UP, 100, emulator.deliver(Direction.DOWN, 200, 0.6) + 0.151)
    assert results.batch_log[1].planned_at_s == pytest.approx(at_s)


def test_several_responses_follow_with_their_pauses() -> None:
    device = replace(DEVICE, responses=(*DEVICE.responses, (SimResponse(2.0, 20, 4), ROUNDS[:1])))
    results = replay(replace(RECORD, devices=(device, device)), verifier(), SCHEDULING["fcfs"])
    assert [device.responses for device in results.devices] == [2, 2]
    assert [device.committed_tokens for device in results.devices] == [13, 13]
    assert results == replay(replace(RECORD, devices=(device, device)), verifier(), SCHEDULING["fcfs"])


def test_measured_batches_come_before_the_model() -> None:
    times = measured_times(RECORD, TENTH)
    assert times.predict_s([VerifyCost(10, 0)]) == 0.25
    assert times.predict_work_s(BatchWork(4, 56, 10)) == pytest.approx(0.1)
    assert times.predict_works_s(np.array([[10.0, 100.0, 0.0], [4.0, 56.0, 10.0]])) == pytest.approx([0.25, 0.1])
    assert times.guard_s(1.0) == TENTH.guard_s(1.0)
    log = replay(RECORD, verifier(cost_model=times, planner_cost_model=TENTH), SCHEDULING["fcfs"]).batch_log
    assert [entry.took_s for entry in log] == pytest.approx([0.25, 0.1, 0.1, 0.1])


def test_a_comparison() -> None:
    comparison = compared(RECORD, replay(RECORD, verifier(), SCHEDULING["fcfs"]))
    assert (comparison.rounds, comparison.measured_p50_s) == (3, 0.28)
    assert comparison.p50_error == pytest.approx(0.2712 / 0.28 - 1.0, abs=1e-3)
    assert abs(comparison.p99_error) < 0.1


def test_a_machine_that_slows_down_is_replayed_as_it_was() -> None:
    late = verifier(speed=lambda now_s: 3.0 if now_s > 0.7 else 1.0)
    log = replay(RECORD, late, SCHEDULING["fcfs"]).batch_log
    assert [entry.took_s for entry in log] == pytest.approx([0.1, 0.3, 0.3, 0.3])
    assert [entry.predicted_s for entry in log] == pytest.approx([0.1] * 4)


def test_plans_are_made_with_what_passes_taught() -> None:
    estimator = OnlineEstimator(replace(TENTH, seconds_per_batch=0.2))
    log = replay(RECORD, verifier(estimator=estimator), SCHEDULING["fcfs"]).batch_log
    taught = estimator
    for entry, cost in zip(log, (VerifyCost(10, 0), VerifyCost(4, 10), VerifyCost(1, 13)), strict=False):
        assert entry.predicted_s == taught.model.predict_s([cost])
        taught = taught.observed([cost], 0.1)
    assert log[3].predicted_s == pytest.approx(0.1, rel=0.2)
