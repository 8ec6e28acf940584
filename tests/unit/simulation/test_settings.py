import pytest

from outrider.contracts.errors import ConfigError
from outrider.simulation.planning import chains, trees
from outrider.simulation.published import ACCEPTED_FRACTIONS, TABLE_12
from outrider.simulation.roofline import HARDWARE, MODELS, RooflineCostModel
from outrider.simulation.scenario import System
from outrider.simulation.settings import Costs, Settings, Variant, parse_settings, preset, scenario_of

COSTS = Costs(TABLE_12, RooflineCostModel(MODELS["qwen3-0.6b"], HARDWARE["a100-80gb"]))


def test_the_frozen_settings_accept_what_the_paper_measured() -> None:
    settings = preset("wisp_table_2")
    assert min(ACCEPTED_FRACTIONS) <= settings.accepted_fraction <= max(ACCEPTED_FRACTIONS)
    assert settings.kv_tokens == int(16e9 / (256 * 1024))


@pytest.mark.parametrize("name", ["wisp_table_2", "embedded"])
def test_presets_are_settings(name: str) -> None:
    assert isinstance(preset(name), Settings)


def test_accepted_fraction_is_of_drafted_tokens() -> None:
    text = """{draft_tokens_per_s: 50, window: 2, token_acceptance: 0.5, prompt_tokens: 9, output_tokens: 9, rtt_s: 0,
    rate_bps: 1e6, epsilon: 0.1, kv_tokens: 100}"""
    assert parse_settings(text, "test").accepted_fraction == pytest.approx((0.5 + 0.25) / 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [("windwo: 3", "did you mean window"), ("window: 0", "window needs an integer in"), ("rtt_s: -1", "rtt_s needs")],
)
def test_a_mistake_is_named(change: str, message: str) -> None:
    fields = dict.fromkeys(
        ["draft_tokens_per_s", "window", "prompt_tokens", "output_tokens", "rate_bps", "kv_tokens"], "1"
    ) | dict.fromkeys(["token_acceptance", "rtt_s", "epsilon"], "0.5")
    name, _, value = change.partition(": ")
    text = "\n".join(f"{field}: {given}" for field, given in (fields | {name: value}).items())
    with pytest.raises(ConfigError, match=message):
        parse_settings(text, "test")


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
    assert made(Variant.COLOCATED)[0] is System.COLOCATED
    assert made(Variant.CHAINS)[1] in {draft.window for draft in chains()}
    assert made(Variant.TREES)[2] in {draft.expansion for draft in trees()}
