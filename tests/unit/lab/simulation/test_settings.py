from dataclasses import replace

import pytest

from lab.simulation.planning import chains
from lab.simulation.published import TABLE_12
from lab.simulation.scenario import System
from lab.simulation.settings import WISP_CHANGES, Settings, Variant, preset, scenario_of
from outrider.scheduling.ledger import DeadlineRule
from outrider.scheduling.wisp import Doomed, Wisp

COSTS = TABLE_12


def test_the_frozen_settings_accept_what_the_paper_measured() -> None:
    settings = preset("wisp_table_2")
    assert 0.31 <= settings.accepted_fraction <= 0.53  # Table 5, drafters of 0.6B to 8B, predictor off
    assert settings.kv_tokens == int(16e9 / (256 * 1024))


@pytest.mark.parametrize("name", ["wisp_table_2", "embedded"])
def test_presets_are_settings(name: str) -> None:
    assert isinstance(preset(name), Settings)


def test_accepted_fraction_is_of_drafted_tokens() -> None:
    settings = replace(preset("embedded"), window=2, token_acceptance=0.5)
    assert settings.accepted_fraction == pytest.approx((0.5 + 0.25) / 2)


def test_devices_are_spread_over_the_classes() -> None:
    scenario = scenario_of(preset("wisp_table_2"), COSTS, Variant.KV, (2.0, 4.0, 8.0), 8)
    assert [group.count for group in scenario.groups] == [3, 3, 2]
    assert [group.slo.tokens_per_s for group in scenario.groups] == [2.0, 4.0, 8.0]
    few = scenario_of(preset("wisp_table_2"), COSTS, Variant.KV, (2.0, 4.0, 8.0), 2)
    assert [group.slo.tokens_per_s for group in few.groups] == [2.0, 4.0]


def test_each_rung_changes_what_its_name_says() -> None:
    settings = preset("wisp_table_2")

    def made(variant: Variant) -> tuple[System, int, tuple[int, ...], bool]:
        scenario = scenario_of(settings, COSTS, variant, (8.0,), 4)
        group = scenario.groups[0]
        return scenario.system, group.window, group.expansion, group.predictor is not None

    fixed = settings.window
    assert made(Variant.SLED) == (System.SLED, fixed, (), False)
    assert made(Variant.KV) == (System.SLED_KV, fixed, (), False)
    assert made(Variant.SCHEDULER) == (System.OUTRIDER, fixed, (), False)
    assert made(Variant.WISP) == (System.WISP, fixed, (), True)
    assert made(Variant.CENTRALIZED)[0] is System.CENTRALIZED
    assert made(Variant.CHAINS)[1] in {draft.window for draft in chains()}


def test_each_change_of_wisp_stands_by_itself() -> None:
    settings = preset("wisp_table_2")
    found = {}
    for variant in WISP_CHANGES:
        made = scenario_of(settings, COSTS, variant, (8.0,), 4)
        assert made.scheduling is not None
        policy, predictor = made.scheduling.policy, made.groups[0].predictor
        assert made.scheduling.deadlines is DeadlineRule.ROUND
        assert isinstance(policy, Wisp)
        assert predictor is not None
        found[variant] = policy.doomed, policy.marginal, predictor.sends_flagged
    assert found == {
        Variant.WISP: (Doomed.BINDS_NOBODY, False, True),
        Variant.WISP_ALONE: (Doomed.ALONE, False, True),
        Variant.WISP_LAST: (Doomed.LAST, False, True),
        Variant.WISP_MARGINAL: (Doomed.BINDS_NOBODY, True, True),
        Variant.WISP_WITHHELD: (Doomed.BINDS_NOBODY, False, False),
        Variant.WISP_FAIR: (Doomed.LAST, True, False),
    }
