"""Rules: Prometheus takes them, each alert fires where it should and only there, and the runbook says what to do."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.monitoring.files import FOLDER
from lab.dashboards.alerts import ALERTS
from lab.dashboards.drawn import as_dict
from serve_app.metrics import ALL
from tests.unit.cluster.monitoring.promtool import names_in, promtool

RUNBOOK = (Path(__file__).parents[4] / "docs" / "how-to" / "runbook.md").read_text(encoding="utf-8")
AT = 'ray_io_cluster="c"'
PROCESS = f'{AT}, WorkerId="w"'
RULES = [rule for group in as_dict()["groups"] for rule in group["rules"]]


@dataclass(frozen=True)
class Case:
    """An alert, what makes it fire, and what is nearly that and must not.

    ``firing`` and ``quiet`` are series in promtool's notation, a value a minute; both are looked at ``after`` so long.
    """

    alert: str
    labels: dict[str, str]
    firing: dict[str, str]
    quiet: dict[str, str]
    after: str = "60m"


def _promised(kept: str, broken: str) -> dict[str, str]:
    name = f'ray_outrider_slo_responses_total{{{PROCESS}, slo_class="speed_2", kept='
    return {f'{name}"yes"}}': kept, f'{name}"no"}}': broken}


def _drafters(ready: int, suspect: int) -> dict[str, str]:
    name = f'ray_outrider_drafters{{{PROCESS}, group="g", state='
    return {f'{name}"ready"}}': f"{ready}+0x600", f'{name}"suspect"}}': f"{suspect}+0x600"}


def _ready(devices: str) -> dict[str, str]:
    return {f'ray_outrider_drafters{{{PROCESS}, group="g", state="ready"}}': devices}


def _gateways(running: str) -> dict[str, str]:
    """Of two that are wanted."""
    name = f"ray_outrider_gateways{{{PROCESS}, state="
    return {f'{name}"wanted"}}': "2+0x200", f'{name}"running"}}': running}


def _regime(draft: str, lookup_draft: str, ready: int) -> dict[str, str]:
    name = f"ray_outrider_regime_loss_ratio{{{PROCESS}, arm="
    losses = {f'{name}"draft"}}': draft, f'{name}"lookup_draft"}}': lookup_draft, f'{name}"lookup"}}': "0+0x600"}
    return losses | _drafters(ready, 0)


def _passes(predicted: str, measured: str) -> dict[str, str]:
    name = "ray_outrider_verify_{}_seconds_total"
    return {f"{name.format('predicted')}{{{PROCESS}}}": predicted, f"{name.format('measured')}{{{PROCESS}}}": measured}


def _places(queued: str, running: str) -> dict[str, str]:
    name = f"ray_outrider_generations{{{PROCESS}, state="
    return {f'{name}"queued"}}': queued, f'{name}"running"}}': running}


def _ended(failed: str, complete: str) -> dict[str, str]:
    name = f"ray_outrider_responses_total{{{PROCESS}, end="
    return {f'{name}"failed"}}': failed, f'{name}"stop"}}': complete}


def _asked(begun: str | None, refused: str) -> dict[str, str]:
    of = f'{PROCESS}, slo_class="speed_8"'
    begun_series = {} if begun is None else {f"ray_outrider_responses_admitted_total{{{of}}}": begun}
    return begun_series | {f'ray_outrider_responses_not_admitted_total{{{of}, reason="load"}}': refused}


def _again(recomputed: str) -> dict[str, str]:
    names = {"kv_recomputed": recomputed, "prompt": "0+500x600", "generation": "0+500x600"}
    return {f"ray_outrider_{name}_tokens_total{{{PROCESS}}}": values for name, values in names.items()}


def _replicas(*healthy: int) -> dict[str, str]:
    """Of three coordinators that Serve wants; each number is a replica's."""
    of = f'{AT}, application="outrider", deployment="Coordinator"'
    found = {
        f'ray_serve_deployment_replica_healthy{{{of}, replica="{i}"}}': f"{one}+0x99" for i, one in enumerate(healthy)
    }
    return found | {f"ray_serve_autoscaling_target_replicas{{{of}}}": "3+0x99"}


def _tokens(name: str, bound: str, within: str, all_of_them: str) -> dict[str, str]:
    name = f"ray_outrider_{name}_seconds"
    return {f'{name}_bucket{{{PROCESS}, le="{bound}"}}': within, f"{name}_count{{{PROCESS}}}": all_of_them}


def _first(within: str) -> dict[str, str]:
    return _tokens("time_to_first_token", "5.0", within, "0+100x600")


def _between(within: str) -> dict[str, str]:
    return _tokens("inter_token_latency", "0.5", within, "0+100x600")


_SCRAPED = f'up{{{AT}, instance="i"}}'
_UP = f"ray_outrider_verifier_ready{{{PROCESS}}}"
_LOST = f"ray_outrider_drafter_losses_total{{{PROCESS}}}"
_DRIFTED = f'ray_outrider_decision_head_drifted{{{PROCESS}, model="m"}}'
_REFUSED = f'ray_outrider_settings_refused{{{PROCESS}, deployment="coordinator"}}'
_KEYS_REFUSED = f"ray_outrider_keys_refused{{{PROCESS}}}"
_KEYS_AGE = f"ray_outrider_keys_age_seconds{{{PROCESS}}}"
_FAULTS = f'ray_outrider_pass_faults_total{{{PROCESS}, kind="memory"}}'
_C, _W = {"ray_io_cluster": "c"}, {"ray_io_cluster": "c", "WorkerId": "w"}
_PROMISE = {"ray_io_cluster": "c", "slo_class": "speed_2"}

_OUT = _promised("0+10x600", "0+9x60 540+0x600")
_FEW = _promised("0+0x600", "0+0.2x600")
_SELDOM = _promised("0+99x600", "0+1x600")

CASES = (
    Case("OutriderVerifierDown", _W, {_UP: "1+0x50 0+0x50"}, {_UP: "1+0x57 0+0x50"}),
    Case("OutriderNothingExported", {}, {"up": "1+0x100"}, {_UP: "0+0x100"}),
    # one of three whose series is gone with its process, and none left at all
    Case("OutriderReplicasMissing", {**_C, "deployment": "Coordinator"}, _replicas(1, 1), _replicas(1, 1, 1), "20m"),
    Case("OutriderReplicasMissing", {**_C, "deployment": "Coordinator"}, _replicas(), _replicas(0, 1, 1, 1), "20m"),
    Case(
        "OutriderNotScraped",
        _C,
        {_SCRAPED: "1+0x50 0+0x99"},
        {_SCRAPED: "1+0x99"},
    ),
    Case("OutriderNotScraped", _C, {_SCRAPED: "0+0x99"}, {'up{instance="of others"}': "0+0x99"}, "20m"),
    Case("OutriderFirstTokensLate", _C, _first("0+10x600"), _first("0+70x600"), "20m"),
    Case("OutriderFirstTokensLate", _C, _first("0+60x600"), _first("0+99x600"), "20m"),
    Case("OutriderTokensLate", _C, _between("0+10x600"), _between("0+70x600"), "20m"),
    Case("OutriderTokensLate", _C, _between("0+60x600"), _between("0+99x600"), "20m"),
    Case("OutriderResponsesFail", _C, _ended("0+2x600", "0+98x600"), _ended("0+1x600", "0+199x600")),
    Case("OutriderPromisesBurnFast", _PROMISE, _promised("0+1x600", "0+9x600"), _promised("0+9x600", "0+1x600"), "70m"),
    # six hours of every second promise broken, and a fire that is out by now
    Case("OutriderPromisesBurnFast", _PROMISE, _promised("0+5x600", "0+5x600"), _OUT, "2h"),
    # so few that they prove nothing
    Case("OutriderPromisesBurnFast", _PROMISE, _promised("0+1x600", "0+9x600"), _FEW, "70m"),
    Case("OutriderPromisesBurnSlowly", _PROMISE, _promised("0+9x600", "0+1x600"), _SELDOM, "2h"),
    Case("OutriderDraftingNetLoss", _W, _regime("0.3+0x600", "0.2+0x600", 2), _regime("0.3+0x600", "-0.1+0x600", 2)),
    Case("OutriderDraftingNetLoss", _W, _regime("0.3+0x600", "0.2+0x600", 2), _regime("0.3+0x600", "0.2+0x600", 0)),
    Case("OutriderCostModelOff", _W, _passes("0+10x600", "0+20x600"), _passes("0+10x600", "0+12x600")),
    Case("OutriderCostModelOff", _W, _passes("0+10x600", "0+4x600"), _passes("0+10x600", "0+8x600")),
    Case("OutriderDraftersMissing", {**_C, "group": "g"}, _drafters(0, 3), _drafters(9, 1)),
    Case("OutriderDevicesGone", {**_C, "group": "g"}, _ready("9+0x40 4+0x60"), _ready("9+0x40 5+0x60")),
    Case("OutriderDevicesGone", {**_C, "group": "g"}, _ready("4+0x40 0+0x60"), _ready("3+0x40 0+0x60")),
    Case("OutriderDevicesGone", {**_C, "group": "g"}, _ready("9+0x40 _x60"), _ready("3+0x40 _x60")),  # a new fleet
    Case("OutriderGatewaysMissing", _C, _gateways("2+0x50 1+0x99"), _gateways("2+0x57 1+0x99")),
    Case("OutriderGatewaysMissing", _C, _gateways("0+0x99"), _gateways("2+0x99")),
    Case("OutriderDraftersLost", _C, {_LOST: "_x54 1 4 9+0x99"}, {_LOST: "1+0x10 9+0x99"}),
    Case("OutriderDraftersLost", _C, {_LOST: "_x54 5+0x99"}, {_LOST: "_x54 2+0x99"}),  # the first there ever were
    Case("OutriderPassesFail", {**_C, "kind": "memory"}, {_FAULTS: "_x54 3+0x99"}, {_FAULTS: "9+0x40 11+0x99"}),
    Case("OutriderQueueGrows", _C, _places("0+2x600", "32+0x600"), _places("100+0x600", "32+0x600")),
    Case("OutriderQueueGrows", _C, _places("0+2x600", "32+0x600"), _places("0+0.2x600", "32+0x600")),
    Case("OutriderResponsesRefused", _C, _asked("0+8x600", "0+2x600"), _asked("0+98x600", "0+2x600")),
    Case("OutriderResponsesRefused", _C, _asked(None, "0+2x600"), _asked("0+2x600", "0+0x600")),
    Case("OutriderKvPressure", _C, _again("0+200x600"), _again("0+20x600")),
    Case("OutriderHeadDrifted", {**_C, "model": "m"}, {_DRIFTED: "0+0x40 1+0x99"}, {_DRIFTED: "0+0x600"}),
    # once refused, and then others taken
    Case(
        "OutriderSettingsRefused",
        {**_C, "deployment": "coordinator"},
        {_REFUSED: "0+0x50 1+0x99"},
        {_REFUSED: "1+0x50 0+0x99"},
    ),
    # a file that was mended, and one that is read every 300 s
    Case("OutriderKeysRefused", _C, {_KEYS_REFUSED: "0+0x50 1+0x99"}, {_KEYS_REFUSED: "1+0x50 0+0x99"}),
    Case("OutriderKeysRefused", _C, {_KEYS_AGE: "5+0x40 0+60x99"}, {_KEYS_AGE: "300+0x600"}),
)


def test_the_files_are_taken_by_prometheus() -> None:
    promtool("check", "rules", "rules.yaml", folder=FOLDER)
    promtool("check", "config", "prometheus.yaml", folder=FOLDER)


def test_every_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == {alert.name for alert in ALERTS}


def test_alerts_fire_and_do_not(tmp_path: Path) -> None:
    """All of them in one run of promtool, with a world of its own for each."""
    (tmp_path / "rules.yaml").write_text(_without_annotations(), encoding="utf-8")
    tests = [_world(case, fires=fires) for case in CASES for fires in (True, False)]
    tried = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tried, width=100_000), encoding="utf-8")
    promtool("test", "rules", "tests.yaml", folder=tmp_path)


def test_promtool_finds_an_alert_that_does_not_fire(tmp_path: Path) -> None:
    """Else the test above could not fail."""
    (tmp_path / "rules.yaml").write_text(_without_annotations(), encoding="utf-8")
    case = CASES[0]
    wrong = Case(case.alert, case.labels, case.quiet, case.quiet, case.after)
    tried = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [_world(wrong, fires=True)]}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tried, width=100_000), encoding="utf-8")
    with pytest.raises(AssertionError, match=case.alert):
        promtool("test", "rules", "tests.yaml", folder=tmp_path)


def _without_annotations() -> str:
    """The rules, but for texts that would have to be told in full to be expected."""
    rules = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    return yaml.safe_dump(rules, width=100_000)


def _world(case: Case, *, fires: bool) -> dict[str, Any]:
    (alert,) = [alert for alert in ALERTS if alert.name == case.alert]
    expected = [{"exp_labels": {"severity": alert.severity, **case.labels}}] if fires else []
    series = case.firing if fires else case.quiet
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": case.after, "alertname": case.alert, "exp_alerts": expected}],
    }


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_says_what_to_do(alert: Any) -> None:
    assert f"\n## {alert.name}\n\n*{alert.severity.capitalize()}. " in RUNBOOK
    assert alert.summary.endswith(".")
    assert (FOLDER / f"dashboards/{alert.board}.json").exists()


def test_the_runbook_has_no_entry_without_an_alert() -> None:
    assert re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE) == [alert.name for alert in ALERTS]


def test_rules_are_made_of_metrics_and_of_rules() -> None:
    known = {metric.name for metric in ALL} | {rule["record"] for rule in RULES if "record" in rule}
    assert {name for rule in RULES for name in names_in(rule["expr"])} <= known


def test_what_vllm_has_is_recorded_under_its_name() -> None:
    recorded = {name for rule in RULES if "record" in rule for name in names_in(rule["record"] + " ")}
    documented = set(
        re.findall(r"`(vllm:[a-z0-9_]+)`", (Path(__file__).parents[4] / "docs/reference/metrics.md").read_text("utf-8"))
    )
    assert {name for name in recorded if name.startswith("vllm:")} == documented
