"""What an operator is given, over a cluster under load with faults: every panel and rule has an answer."""

import json
import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
from rich.console import Console

from cluster.commands.top import poll
from cluster.local import announce_metrics
from cluster.monitoring.files import CLUSTER_NAME, FOLDER, MonitoringTargets, write
from cluster.monitoring.running import prometheus_over
from cluster.top_view import view
from lab.dashboards.alerts import ALERTS
from lab.dashboards.drawn import as_dict
from serve_app import metrics as m
from serve_app.metrics import Metric
from tests.cluster.served import PLAIN, Service, eventually, free_port
from tests.cluster.streams import streams
from tests.unit.cluster.monitoring.promtool import expressions, filled_in, names_in

_SEEN_WITHIN_S = 60.0
_BACK_WITHIN_S = 180.0
_STEP_S = 2
# Where the picture of the documentation is made; elsewhere it is looked at by nobody, and after less load.
FIGURES = os.environ.get("OUTRIDER_FIGURES")
_SHOWN_S = 150.0

ABSENT: dict[Metric, str] = {
    m.STALLED: "no reader stands still",
    m.CONNECTIONS_CUT: "all clients read, and send what they begin",
    m.KEYS_AGE_S: "there are no keys",
    m.KEYS_REFUSED: "there are no keys",
    m.REFUSED_DIALS: "there is no gateway",
    m.GATEWAYS: "likewise",
    m.DEVICE_STRIKES: "one that dies is started again, and not struck",
    m.KV_SWAPPED_BLOCKS: "nothing is swapped without verifiers.swap_mib",
    m.NOT_ADMITTED: "this cluster lets everybody in",
    m.LOWERED: "likewise",
    m.SUSPENDED: "likewise",
    m.SLO_BROKEN: "no promise need be broken",
    m.SLO_LATE_ROUNDS: "likewise",
    m.SLO_BEHIND: "likewise",
    m.RESUMED: "there is no other coordinator to go on at",
    m.CANDIDATE_FALLBACKS: "an accident of a protocol that is not asked for",
    m.CORRECTIONS_GIVEN_UP: "likewise",
    m.DRAFTS_GIVEN_UP: "likewise",
    m.PASS_FAULTS: "no pass goes wrong",
    m.RESENT_SEGMENTS: "the loopback loses nothing",
    m.UP_RESENT_SEGMENTS: "likewise",
    m.TUNER_PROBES: "no arm need be tried within a minute",
    m.TUNER_CHANGES: "nor left for another",
    m.TUNER_PROBES_LOST_S: "no try need cost anything",
}


_OF_GPUS = r"ray_node_(gpus|gram)_"  # this machine has none


class Prometheus:
    """A running one, and since when."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._since_s = time.time()

    def get(self, path: str, **params: object) -> Any:
        """What it answers."""
        answer = httpx.get(
            f"{self._url}/api/v1/{path}", params={k: str(v) for k, v in params.items()}, timeout=30, verify=PLAIN
        )
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()["data"]

    def matrix(self, expr: str) -> list[dict[str, Any]]:
        """All that an expression has had since the start: each series with its values, by seconds since then."""
        ends = {"start": self._since_s, "end": time.time(), "step": _STEP_S}
        series: list[dict[str, Any]] = self.get("query_range", query=expr, **ends)["result"]
        for each in series:
            each["values"] = [(at_s - self._since_s, value) for at_s, value in each["values"]]
        return series

    def values(self, expr: str) -> list[float]:
        """Likewise, of all series; without what is no number."""
        values = [float(value) for each in self.matrix(expr) for _, value in each["values"]]
        return [value for value in values if math.isfinite(value)]

    def unanswered(self, exprs: list[str]) -> list[str]:
        """Those that never had a value, and have no excuse."""
        excused = {metric.name for metric in ABSENT}
        asked = [expr for expr in exprs if not names_in(expr) & excused and not re.search(_OF_GPUS, expr)]
        return [expr for expr in asked if not self.values(expr)]


@pytest.fixture(scope="module")
def prometheus(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """With an operator's files, but that it looks every second: rates over a minute then have values within seconds."""
    folder, url = tmp_path_factory.mktemp("monitoring"), f"http://127.0.0.1:{free_port()}"
    nodes: Any = ray.nodes
    discovery = announce_metrics(f"http://127.0.0.1:{nodes()[0]['MetricsExportPort']}/metrics", folder)
    write(folder, MonitoringTargets(str(discovery), url))
    configuration = folder / "prometheus.yaml"
    text = configuration.read_text(encoding="utf-8")
    configuration.write_text(text.replace("_interval: 5s", "_interval: 1s").replace("_interval: 10s", "_interval: 1s"))
    with prometheus_over(folder, url):
        eventually(lambda: _answers(url), _SEEN_WITHIN_S)
        running = Prometheus(url)
        _under_load(service, running)
        yield running


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=5, verify=PLAIN).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _under_load(service: Service, prometheus: Prometheus) -> None:
    """Of each kind of request some; meanwhile a drafter dies, then the verifier."""
    drafted = {"outrider": {"window": 4, "slo_class": "speed_2"}}
    streams(service.url)
    streams(service.url, lambda: service.kill("DrafterActor", most=1), options=drafted)
    semantic = {"window": 8, "protocol": "wisv_full", "verification": "semantic"}
    service.complete("Once upon a time", ignore_eos=True, temperature=0, outrider=semantic)
    eventually(lambda: prometheus.values(f"ray_{m.VERIFIER_READY.name} == 1") != [], _SEEN_WITHIN_S)
    streams(service.url, lambda: service.kill("VerifierActor"), options=drafted)
    streams(service.url, clients=1, tokens=20, options=drafted)  # one promise, at least, is kept on any machine


def test_every_panel_has_an_answer(prometheus: Prometheus) -> None:
    exprs = [filled_in(expr) for expr in expressions()]
    left: list[str] = []

    def all_answer() -> bool:
        left[:] = prometheus.unanswered(left or exprs)
        return not left

    try:
        eventually(all_answer, _SEEN_WITHIN_S)
    finally:
        assert left == []


def test_every_rule_is_kept_and_has_an_answer(prometheus: Prometheus) -> None:
    groups = prometheus.get("rules")["groups"]
    assert [rule for group in groups for rule in group["rules"] if rule["health"] != "ok"] == []
    rules = [rule for group in as_dict()["groups"] for rule in group["rules"]]
    excused = {metric.name for metric in ABSENT}
    recorded = {rule["record"]: names_in(rule["expr"]) for rule in rules if "record" in rule}
    assert [name for name, of in recorded.items() if not of & excused and not prometheus.values(name)] == []
    known = set(prometheus.get("label/__name__/values"))
    for alert in ALERTS:
        for name in names_in(alert.expr) - excused:
            assert known & {name, f"ray_{name}", f"ray_{name}_bucket"}, f"{alert.name} asks for {name}"
        for name in re.findall(r"ray_serve_\w+", alert.expr):
            assert name in known, f"{alert.name} asks for {name}, which Ray's version does not export"


def test_everything_is_labelled_with_its_cluster_and_process(prometheus: Prometheus) -> None:
    (found,) = prometheus.get("query", query=f"ray_{m.VERIFIER_READY.name}")["result"]
    assert found["metric"]["ray_io_cluster"] == CLUSTER_NAME
    assert found["metric"]["WorkerId"]


def test_what_died_is_seen_and_nobody_is_woken_for_what_came_back(service: Service, prometheus: Prometheus) -> None:
    assert min(prometheus.values(f"ray_{m.VERIFIER_READY.name}")) == 0
    assert max(prometheus.values(f"sum(ray_{m.VERIFIER_LOSSES.name})")) >= 1
    assert max(prometheus.values(f"sum(ray_{m.DRAFTER_LOSSES.name})")) >= 1
    assert prometheus.values('ALERTS{alertname="OutriderVerifierDown", alertstate="pending"}')
    eventually(lambda: len(service.drafters("ready")) == service.config.drafters[0].count, _BACK_WITHIN_S)
    woken = 'ALERTS{alertname=~"OutriderVerifierDown|OutriderDraftersMissing", alertstate="firing"}'
    assert prometheus.values(woken) == []


@pytest.mark.long
def test_boards_and_top_can_be_shown(service: Service, prometheus: Prometheus, tmp_path: Path) -> None:
    """Most panels of each have something to show; with OUTRIDER_FIGURES, the documentation's picture of ``top``."""
    folder = Path(FIGURES or tmp_path)
    give_up_at_s, pictures = time.monotonic() + (_SHOWN_S if FIGURES else 0), 0
    console = Console(record=True, width=108, file=(tmp_path / "top.txt").open("w", encoding="utf-8"))
    with httpx.Client(timeout=30, verify=PLAIN) as client, console.file:
        before = poll(client, service.url)
        while not pictures or time.monotonic() < give_up_at_s:  # as a service is asked: some at once, of all kinds
            streams(service.url, options={} if pictures % 2 else {"outrider": {"window": 4, "slo_class": "speed_2"}})
            pictures += 1
        now = poll(client, service.url)
        console.print(view(before.status, now.status, now.at_s - before.at_s, "http://127.0.0.1:8000"))
    console.save_svg(str(folder / "top.svg"), title="outrider top")
    assert "verify" in (tmp_path / "top.txt").read_text(encoding="utf-8")
    for board in sorted((FOLDER / "dashboards").iterdir()):
        panels = [panel for panel in json.loads(board.read_text("utf-8"))["panels"] if panel["type"] != "row"]
        exprs = [[filled_in(target["expr"]) for target in panel["targets"]] for panel in panels]
        assert sum(any(map(prometheus.values, some)) for some in exprs) >= 6, board.stem
