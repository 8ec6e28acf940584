"""What docs/how-to/operations.md tells an operator is there: metrics, settings, and sums that are right."""

import math
import re

import pytest
import yaml

from lab.scenarios import scenario_file
from lab.simulation.reading import load_scenario
from outrider.config.reading import load_config
from outrider.config.reloadable import COUNTS, RELOADABLE, with_reloadable
from serve_app.metrics import ALL
from tests.unit.deployment.manifests import ROOT

PAGE = (ROOT / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")


def test_every_metric_exists() -> None:
    named = set(re.findall(r"ray_(outrider_\w+)", PAGE))
    assert len(named) > 8
    assert named <= {metric.name for metric in ALL}


def test_every_label_exists() -> None:
    labels = {metric.name: set(metric.labels) for metric in ALL}
    for name, label in re.findall(r"ray_(outrider_\w+)\{(\w+)=", PAGE):
        assert label in labels[name], name


def test_every_setting_exists() -> None:
    defaults = yaml.safe_load((ROOT / "outrider" / "config" / "default.yaml").read_text(encoding="utf-8"))
    named = re.findall(r"`(admission|limits|verifiers|auth|ingress)\.(\w+)`", PAGE)
    assert len(named) > 4
    for section, field in named:
        assert field in defaults[section], f"{section}.{field}"


def test_the_table_of_light_settings_is_the_codes() -> None:
    _, _, section = PAGE.partition("\n### Reloadable settings\n")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    told = [name for row in rows for name in re.findall(r"`(\w+\.\w+)`", row.split(" | ")[0])]
    assert sorted(told) == sorted(f"{section}.{name}" for section, names in RELOADABLE.items() for name in names)
    counts = {f"{section}.count" for section in COUNTS}
    assert counts == set(
        re.findall(r"`(\w+\.count)`", next(row for row in PAGE.splitlines() if "`autoscaling` of" in row))
    )
    assert set(COUNTS.values()) == {("count", "autoscaling")}


def test_the_example_of_light_settings_is_taken() -> None:
    _, _, section = PAGE.partition("\n### Reloadable settings\n")
    (example,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)[:1]
    deployments = yaml.safe_load(example)["deployments"]
    assert [one["name"] for one in deployments] == ["Ingress", "Coordinator"]
    assert len({str(one["user_config"]) for one in deployments}) == 1
    assert with_reloadable(load_config(), deployments[0]["user_config"]) != load_config()


def figures(row: str) -> list[float]:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {row}")]
    return [float(one.replace(",", "")) for one in re.findall(r"\d[\d,]*\.?\d*", line.removeprefix(f"| {row}"))]


def test_the_example_is_reckoned_right() -> None:
    scenario = load_scenario(scenario_file("a100_mixed"), 0)
    counts = [group.count for group in scenario.groups]
    assert len(set(counts)) == 1, "a quarter each"
    users, price, mean = 1000, 2.0, 5.0
    million_an_hour = users * mean * 3600 / 1e6
    assert million_an_hour == pytest.approx(18)
    served = figures("users a server serves")
    servers = figures("servers for 1,000")
    assert servers == [math.ceil(users / one) for one in served]
    hourly = [price * one for one in servers]
    assert figures("at 2.00 USD an A100-hour") == pytest.approx(hourly, abs=0.005)
    plain = [one / million_an_hour for one in hourly]
    assert figures("for 18 million tokens an hour") == pytest.approx(plain, abs=0.005)
    power = users * 10 / 1000 * 0.30
    bought = users * 600 / (3 * 365 * 24) + power
    for row, extra in (
        ("devices that are there anyway: 10 W at 0.30 USD/kWh, 3.00 USD/h", power),
        ("devices bought for it: 600 USD over three years, and their power, 25.83 USD/h", bought),
    ):
        assert figures(row) == pytest.approx([(hourly[0] + extra) / million_an_hour, plain[1]], abs=0.005)
    assert bought == pytest.approx(25.83, abs=0.005)
