"""Fleet files: what they say, and what is wrong with them, a line for each mistake."""

from pathlib import Path

import pytest

from lab.simulation.reading import ReadFleet, ReadScenario, load_simulation, parse_fleet
from outrider.contracts.errors import ConfigError

SCENARIOS = Path(__file__).parents[5] / "lab" / "scenarios"

SMALL = """
verifiers:
  count: 3
  server: {cost: {profile: wisp_table_12}, kv_tokens: 32000}
  lost_every_s: 600
drafters:
  - {name: phones, count: 9, draft_tokens_per_s: 50, acceptance: [0.8], link: {profile: wifi_2m}}
traffic:
  - {name: users, slo: speed_4, users: 6, prompt: {tokens: 100}, output: {tokens: 50}}
router: {ingresses: 2}
coordinator: {round_us: 200}
"""


def test_a_file_says_what_is_simulated() -> None:
    read = parse_fleet(SMALL, "small.yaml", seed=7)
    of = read.scenario
    assert (of.verifiers, of.lost_every_s, of.reload_s, of.seed) == (3, 600.0, 60.0, 7)
    assert of.verifier.limits.max_memory_blocks == 2000
    assert of.drafters[0].step_s == 0.02
    assert of.traffic[0].slo.tokens_per_s == 4.0
    assert of.router.ingresses == 2
    assert of.coordinator_round_s == pytest.approx(2e-4)
    assert of.admission is not None, "as in the service"
    assert read.measured
    assert parse_fleet(SMALL + "admission: {enabled: false}", "small.yaml").scenario.admission is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("count: 3", "count: 0"), "verifiers.count needs an integer in [1, 100000], found 0"),
        (("count: 9", "counts: 9"), "did you mean count?"),
        (("slo: speed_4", "slo: speed_5"), "traffic[0].slo needs one of best_effort, speed_2"),
        (("users: 6", "users: 0"), "traffic[0].users needs a number above 0, or conversations_per_s, found 0"),
        (("users: 6", "users: 6, turns: {tokens: 3}"), "traffic[0].message needs the tokens that each turn adds"),
        (("users: 6", "conversations_per_s: 1, bursts: {every_s: 1, lasts_s: 2, times: 3}"), "at most every_s (1)"),
        (("ingresses: 2", "ingresses: 0"), "router.ingresses needs an integer in [1, 1000], found 0"),
        (("router:", "warmup_s: 200\nrouter:"), "warmup_s needs a number below duration_s (120), found 200"),
    ],
)
def test_a_mistake_is_named(change: tuple[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_fleet(SMALL.replace(*change), "small.yaml")
    assert problem in str(raised.value)


def test_each_mistake_has_a_line() -> None:
    wrong = SMALL.replace("count: 3", "count: 0").replace("round_us: 200", "round_us: -1").replace("[0.8]", "[1.8]")
    with pytest.raises(ConfigError) as raised:
        parse_fleet(wrong, "small.yaml")
    lines = str(raised.value).splitlines()
    assert [line.split(" needs ")[0] for line in lines] == [
        "verifiers.count",
        "drafters[0].acceptance[0]",
        "coordinator.round_us",
    ]
    assert all(line.endswith("(in small.yaml)") for line in lines)


@pytest.mark.parametrize("file", sorted((SCENARIOS / "fleets").glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_fleets_are_read(file: Path) -> None:
    read = load_simulation(file)
    assert isinstance(read, ReadFleet)
    assert read.scenario.verifiers > 1


@pytest.mark.parametrize("file", sorted(SCENARIOS.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_scenario_of_one_verifier_is_no_fleet(file: Path) -> None:
    assert isinstance(load_simulation(file), ReadScenario)
