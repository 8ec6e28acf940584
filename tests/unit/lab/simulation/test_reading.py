from pathlib import Path

import pytest

from lab.simulation.acceptance_models import SimPredictor
from lab.simulation.lengths import Lengths
from lab.simulation.published import TABLE_12
from lab.simulation.reading import load_scenario, parse_scenario
from lab.simulation.roofline import HARDWARE, MODELS, RooflineCostModel
from lab.simulation.scenario import HostMemory, System, rules_of
from outrider.contracts.cost import BatchWork
from outrider.contracts.errors import ConfigError, ParameterError
from outrider.scheduling.ledger import DeadlineRule
from outrider.scheduling.registry import SCHEDULING, Scheduling
from outrider.scheduling.residency import SwapPrices
from outrider.scheduling.slo_aware import SloAware

DEVICE = """
  - name: jetson
    count: 3
    draft_tokens_per_s: 40
    acceptance: [0.8, 0.7]
    prompt: {least: 10, most: 20}
    output: {median: 50, sigma: 0.5, most: 90}
"""
SERVER = """
server:
  cost: {coefficients: {per_token_s: 1e-5, per_interaction_s: 0, per_cached_token_s: 1e-6, per_batch_s: 0.01}}
"""
FILE = f"devices:{DEVICE}{SERVER}"
SCENARIOS = Path(__file__).parents[4] / "lab" / "scenarios"


def test_a_file_becomes_a_scenario() -> None:
    found = parse_scenario(f"systems: [sled, outrider]\nseed: 4\npolicy: fcfs\n{FILE}", "test")
    assert [scenario.system for scenario in found.scenarios] == [System.SLED, System.OUTRIDER]
    assert [scenario.seed for scenario in found.scenarios] == [4, 4]
    assert found.scenarios[1].scheduling is SCHEDULING["fcfs"]
    group = found.groups[0]
    assert (group.count, group.step_s) == (3, 0.025)
    assert group.acceptance == (0.8, 0.7)
    assert group.prompt == Lengths(least=10, most=20)
    assert group.output == Lengths(median=50, sigma=0.5, most=90)
    assert group.slo.tokens_per_s == 0.0
    assert found.measured
    assert found.verifier.limits.max_memory_blocks is None


def test_a_policy_brings_its_own_deadlines() -> None:
    text = FILE.replace("    count: 3\n", "    count: 3\n    slo: speed_8\n")
    scenarios = [
        parse_scenario(f"policy: {policy}\nduration_s: 30\n{text}", "test").scenarios[0] for policy in SCHEDULING
    ]
    assert [rules_of(one).scheduling for one in scenarios] == list(SCHEDULING.values())
    wisp = parse_scenario(f"policy: wisp\n{text}", "test").scenarios[0]
    assert rules_of(wisp).scheduling.deadlines is DeadlineRule.ROUND


def test_a_policy_in_the_registry_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    hurried = Scheduling(SloAware(longest_s=0.1))
    monkeypatch.setitem(SCHEDULING, "hurried", hurried)
    assert parse_scenario(f"policy: hurried\n{FILE}", "test").scenarios[0].scheduling is hurried
    with pytest.raises(
        ConfigError,
        match=r"policy needs one of slo_aware, wisp, wisp_alone, wisp_fair, fcfs, hurried or null, found 'late'",
    ):
        parse_scenario(f"policy: late\n{FILE}", "test")


def test_a_seed_given_replaces_the_files() -> None:
    assert parse_scenario(FILE, "test", seed=9).scenarios[0].seed == 9
    with pytest.raises(ParameterError, match="seed needs a number of at least 0, found -1"):
        parse_scenario(FILE, "test", seed=-1)


def test_classes_links_and_predictors_are_read() -> None:
    text = FILE.replace(
        "    count: 3\n",
        "    count: 3\n    slo: fast\n    link: {profile: wifi_20m}\n"
        "    predictor: {recall: 0.9, sends_flagged: false}\n",
    ).replace("{least: 10, most: 20}", "{tokens: 12}")
    group = parse_scenario(f"slo_classes: [{{name: fast, tokens_per_s: 8}}]\n{text}", "test").groups[0]
    assert group.slo.tokens_per_s == 8.0
    assert group.link is not None
    assert group.predictor == SimPredictor(0.9, 0.425, sends_flagged=False)
    assert group.prompt == Lengths(tokens=12)


def test_costs_come_from_a_profile_or_a_roofline() -> None:
    coefficients = SERVER.split("cost: ")[1].strip()
    published = parse_scenario(FILE.replace(coefficients, "{profile: wisp_table_12}"), "test")
    assert published.verifier.cost_model == TABLE_12
    roofline = parse_scenario(FILE.replace(coefficients, "{roofline: {model: qwen3-14b, gpu: h100}}"), "test")
    assert roofline.verifier.cost_model == RooflineCostModel(MODELS["qwen3-14b"], HARDWARE["h100"])
    assert not roofline.measured
    assert "roofline" in roofline.cost_source
    fits = roofline.verifier.cost_model.kv_tokens() // 16
    assert roofline.verifier.limits.max_memory_blocks == fits


def test_host_memory_copies_at_its_rate_and_computing_is_the_cost_models() -> None:
    """2,048 bytes a position in blocks of 16, a million bytes a second each way."""
    told = "server:\n  host: {tokens: 1000, kv_bytes_per_token: 2048, bytes_per_s: 1000000}"
    verifier = parse_scenario(FILE.replace("server:", told), "test").verifier
    assert verifier.host is not None
    alone_s, model = verifier.cost_model.predict_work_s(BatchWork()), verifier.cost_model
    computed_s = model.predict_work_s(BatchWork(16, 256)) - alone_s
    assert verifier.host == HostMemory(62, SwapPrices(0.032768, 0.032768, computed_s))
    assert parse_scenario(FILE, "test").verifier.host is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count: 3", "count: 0", r"devices\[0\]\.count needs an integer in \[1, "),
        ("count: 3", "cuont: 3", "did you mean count"),
        ("acceptance: [0.8, 0.7]", "acceptance: [1.8]", r"devices\[0\]\.acceptance\[0\] needs a number in"),
        ("acceptance: [0.8, 0.7]", "acceptance: []", r"devices\[0\]\.acceptance"),
        ("{least: 10, most: 20}", "{least: 10}", "tokens alone, least and most, or median and sigma"),
        ("{least: 10, most: 20}", "{least: 30, most: 20}", r"most needs a number of at least 30"),
        ("count: 3", "count: 3\n    slo: swift", r"devices\[0\]\.slo needs one of .*speed_8.*found 'swift'"),
        ("count: 3", "count: 3\n    link: {profile: moon}", "profile needs one of wifi_2m"),
        ("count: 3", "count: 3\n    expansion: [2]\n    predictor: {}", "predictor needs to be left out"),
        ("count: 3", "count: 3\n    expansion: [2]\n    protocol: dssd", "expansion needs a protocol of trees"),
        ("server:", "warmup_s: 500\nserver:", r"warmup_s needs a number below duration_s \(120\), found 500"),
        ("server:", "systems: [colocated]\nserver:", r"systems\[0\]"),
        ("cost: {", "cost: {profile: nowhere, ", "exactly one of coefficients, profile and roofline"),
        ("count: 3", "count: 3\n    count: 4", "count is given twice"),
    ],
)
def test_a_mistake_is_named_with_field_and_range(old: str, new: str, message: str) -> None:
    assert old in FILE
    with pytest.raises(ConfigError, match=message):
        parse_scenario(FILE.replace(old, new, 1), "test.yaml")


def test_a_model_too_large_for_its_gpu_is_refused() -> None:
    coefficients = SERVER.split("cost: ")[1].strip()
    with pytest.raises(ConfigError, match="a GPU whose memory holds the model's weights"):
        parse_scenario(FILE.replace(coefficients, "{roofline: {model: qwen3-32b, gpu: l4}}"), "test")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load_scenario(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("name", sorted(file.name for file in SCENARIOS.glob("*.yaml")))
def test_the_examples_are_valid(name: str) -> None:
    found = load_scenario(SCENARIOS / name)
    assert found.scenarios
    assert all(group.slo.tokens_per_s > 0.0 for group in found.groups)


def test_a_bad_file_is_told_a_line_for_each_mistake() -> None:
    text = FILE.replace("count: 3", "count: 0").replace("acceptance: [", "acceptence: [")
    with pytest.raises(ConfigError) as caught:
        parse_scenario(text.replace("per_batch_s: 0.01", "per_batch_s: dear"), "test")
    count, unknown, cost = str(caught.value).splitlines()
    assert count.startswith("devices[0].count needs an integer in [1, ")
    assert "did you mean acceptance?), found 'acceptence'" in unknown
    assert cost.startswith("server.cost.coefficients.per_batch_s needs a number in [0, 1000], found 'dear'")
