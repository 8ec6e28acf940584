from dataclasses import replace

import pytest

from lab.simulation.lengths import Lengths
from lab.simulation.run import simulate
from lab.simulation.scenario import DeviceGroup
from outrider.contracts.cost import LinearCostModel
from outrider.contracts.errors import ParameterError
from outrider.contracts.slo import SloClass
from outrider.selection.cheapest import Cheapest
from outrider.selection.cost_aware import CostAware
from outrider.selection.fixed import Fixed
from outrider.selection.tuning.speculation_tuner import TunerSettings
from tests.unit.lab.simulation.scenarios import TENTH, group, scenario, verifier


def choosing(**changes: object) -> DeviceGroup:
    fields = {
        "selection": Cheapest(), "acceptance": (0.8,), "output": Lengths(tokens=300), "window": 6
    }  # fmt: skip
    return group(**(fields | changes))


def test_a_fast_drafter_drafts_and_a_slow_one_leaves_it_to_the_verifier() -> None:
    fast, slow = (simulate(scenario(choosing(step_s=step_s))).devices[0] for step_s in (0.005, 0.5))
    assert fast.drafted_tokens > 4 * fast.rounds
    assert slow.drafted_tokens < 0.05 * slow.rounds
    assert fast.committed_tokens == slow.committed_tokens == 300


def test_a_fixed_choice_is_the_fixed_window() -> None:
    chosen = simulate(scenario(choosing(selection=Fixed())))
    fixed = simulate(scenario(choosing(selection=None)))
    assert chosen.batch_log == fixed.batch_log


def test_trees_are_chosen_learned_and_committed() -> None:
    trees = choosing(protocol="tslt_tree", step_s=0.02, acceptance=(0.5,), selection=CostAware())
    results = simulate(scenario(replace(trees, slo=SloClass("slow", 1.0))))
    device = results.devices[0]
    assert device.committed_tokens == 300 == device.accepted_tokens + device.rounds + 1
    assert max(entry.new_tokens for entry in results.batch_log[1:]) > 7  # more than a chain of the longest window
    assert not device.late


def test_what_verdicts_show_is_learned() -> None:
    poor = simulate(scenario(choosing(step_s=0.03, acceptance=(0.1,), output=Lengths(tokens=1000))))
    good = simulate(scenario(choosing(step_s=0.03, acceptance=(0.9,), output=Lengths(tokens=1000))))
    drafted = [results.devices[0].drafted_tokens / results.rounds for results in (poor, good)]
    assert drafted[0] < 1.0
    assert drafted[1] > 4.0


class NotLinear:
    """Another model."""

    predict_s, predict_work_s = TENTH.predict_s, TENTH.predict_work_s
    predict_works_s, guard_s = TENTH.predict_works_s, TENTH.guard_s


def test_selection_needs_a_linear_model() -> None:
    with pytest.raises(ParameterError, match="planner_cost_model"):
        simulate(scenario(choosing(), verifier=verifier(planner_cost_model=NotLinear())))


def test_devices_draft_under_a_tuner_only_where_it_pays() -> None:
    """Estimates alone price no draft with what was measured while drafting."""
    rows = verifier(cost_model=LinearCostModel(0.01, 0.0, 0.0, 0.02))  # each is paid for
    for step_s, acceptance, kept in ((0.002, 0.95, "draft"), (0.02, 0.5, "none")):
        devices = choosing(count=4, step_s=step_s, acceptance=(acceptance,), output=Lengths(tokens=1000))
        results = simulate(scenario(devices, verifier=rows, duration_s=40.0, tuner=TunerSettings()))
        assert results.tuner is not None
        assert results.tuner.kept == kept
        drafted = sum(device.drafted_tokens for device in results.devices) / results.rounds
        assert (drafted > 1.0) == (kept == "draft")


def test_windows_of_their_own_are_load_and_nothing_more_to_a_tuner() -> None:
    fixed = choosing(selection=None, count=3, output=Lengths(tokens=60))
    alone, beside = (simulate(scenario(fixed, tuner=tuner)) for tuner in (None, TunerSettings()))
    assert alone.batch_log == beside.batch_log
    assert beside.tuner is not None
    assert dict(beside.tuner.rewards) == {"none": (), "draft": ()}


def test_devices_come_and_go() -> None:
    short = choosing(selection=None, output=Lengths(tokens=9), from_s=5.0, until_s=8.0)
    results = simulate(scenario(short, duration_s=20.0, responses_per_device=None))
    begun = [entry.starts_at_s for entry in results.batch_log]
    assert 5.0 <= begun[0] < 5.2
    assert 8.0 < begun[-1] < 9.0
