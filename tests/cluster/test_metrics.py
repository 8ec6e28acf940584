"""A real Prometheus scrapes a running cluster: Ray's exporter and the ingress, and is asked what operators ask."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import ray
import yaml

from serve_app import metrics
from tests.cluster.served import PLAIN, TOKENS, Service, eventually, free_port

_SCRAPED_WITHIN_S = 90.0
_SILENT_WHEN_ALL_IS_WELL = (
    *(metrics.DRAFTER_LOSSES, metrics.VERIFIER_LOSSES, metrics.CANDIDATE_FALLBACKS, metrics.CORRECTIONS_GIVEN_UP),
    *(
        metrics.PASS_FAULTS,
        metrics.DRAFTS_GIVEN_UP,
        metrics.RESENT_SEGMENTS,
        metrics.UP_RESENT_SEGMENTS,
        metrics.NOT_ADMITTED,
        metrics.SUSPENDED,
        metrics.LOWERED,
        metrics.STALLED,
        metrics.CONNECTIONS_CUT,
        metrics.DEVICE_STRIKES,
    ),
    *(metrics.SLO_BEHIND, metrics.SLO_BROKEN, metrics.SLO_LATE_ROUNDS, metrics.RESUMED),
    *(metrics.KV_EVICTIONS, metrics.KV_EVICTED_BLOCKS, metrics.KV_RECOMPUTED_TOKENS, metrics.KV_SWAPPED_BLOCKS),
)
_SILENT_WHERE_WINDOWS_ARE_NAMED = (
    *(metrics.TUNER_ACTIVE_S, metrics.TUNER_CHANGES, metrics.TUNER_PROBES, metrics.TUNER_PROBES_LOST_S),
    *(metrics.LOOKUP_TOKENS, metrics.TUNER_REWARD, metrics.TUNER_LOSS),
)
_SILENT_WITHOUT_KEYS = (metrics.KEYS_AGE_S, metrics.KEYS_REFUSED, metrics.KEY_TOKENS)
_SILENT_WITHOUT_GATEWAY = (metrics.REFUSED_DIALS, metrics.GATEWAYS)
_REQUESTS = 4
_ASKED = {"window": 4, "slo_class": "speed_2"}


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url

    def value(self, query: str) -> float:
        """The sum over all series of an instant query; NaN without a series."""
        answer = httpx.get(f"{self._url}/api/v1/query", params={"query": query}, timeout=30, verify=PLAIN)
        result: list[Any] = answer.raise_for_status().json()["data"]["result"]
        return sum(float(series["value"][1]) for series in result) if result else float("nan")

    def names(self) -> set[str]:
        """All metric names."""
        answer = httpx.get(f"{self._url}/api/v1/label/__name__/values", timeout=30, verify=PLAIN)
        return set(answer.raise_for_status().json()["data"])


@pytest.fixture(scope="module")
def prometheus(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus with the two scrape jobs an operator would set up."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs prometheus (Debian package of that name)")
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    nodes: Any = ray.nodes
    exporters = [f"127.0.0.1:{node['MetricsExportPort']}" for node in nodes()]
    jobs = {"ray": exporters, "ingress": [service.url.removeprefix("http://")]}
    file = folder / "prometheus.yml"
    scrapes = [{"job_name": name, "static_configs": [{"targets": targets}]} for name, targets in jobs.items()]
    file.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": scrapes}))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _answers(url), 60)
        ask(service, "Once upon a time")  # a metric without a value has no series
        semantic = {"window": 8, "protocol": "wisv_full", "verification": "semantic"}
        service.complete("Once upon a time", ignore_eos=True, temperature=0, outrider=semantic)
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=5, verify=PLAIN).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def ask(service: Service, prompt: str) -> dict[str, Any]:
    """One completion's usage."""
    usage: dict[str, Any] = service.complete(prompt, ignore_eos=True, outrider=_ASKED)["usage"]
    return usage


def test_prometheus_knows_what_the_clients_were_told(service: Service, prometheus: Prometheus) -> None:
    accepted, tokens, ended, e2e = (
        "sum(ray_outrider_spec_decode_num_accepted_tokens_total)",
        "sum(outrider_generation_tokens_total)",
        'sum(outrider_responses_total{end="length"})',
        "sum(outrider_e2e_request_latency_seconds_count)",
    )
    eventually(lambda: prometheus.value(accepted) >= 0 and prometheus.value(ended) >= 0, _SCRAPED_WITHIN_S)
    settled(prometheus, accepted)
    before = {query: prometheus.value(query) for query in (accepted, tokens, ended, e2e)}
    usages = [ask(service, f"Story number {i}:") for i in range(_REQUESTS)]
    told = {
        accepted: sum(usage["outrider"]["accepted_tokens"] for usage in usages),
        tokens: _REQUESTS * TOKENS,
        ended: _REQUESTS,
        e2e: _REQUESTS,
    }
    assert told[accepted] > 0
    for query, amount in told.items():
        wanted = before[query] + amount
        eventually(lambda q=query, w=wanted: prometheus.value(q) == w, _SCRAPED_WITHIN_S)  # type: ignore[misc]
    ready = service.config.drafters[0].count  # a coordinator sets its gauges every second
    eventually(lambda: prometheus.value('sum(ray_outrider_drafters{state="ready"})') == ready, _SCRAPED_WITHIN_S)
    eventually(lambda: prometheus.value("sum(ray_outrider_generations)") == 0, _SCRAPED_WITHIN_S)


def settled(prometheus: Prometheus, query: str) -> None:
    """Wait until a value has not changed for longer than it takes to be exported and scraped, a second each."""
    seen, since_s = prometheus.value(query), time.monotonic()

    def unchanged() -> bool:
        nonlocal seen, since_s
        value = prometheus.value(query)
        if value != seen:
            seen, since_s = value, time.monotonic()
        return time.monotonic() - since_s > 5

    eventually(unchanged, _SCRAPED_WITHIN_S)


def test_every_metric_is_there_under_its_name(prometheus: Prometheus) -> None:
    suffixes = {"histogram": "_bucket", "counter": "", "gauge": ""}
    silent = {*_SILENT_WHEN_ALL_IS_WELL, *_SILENT_WHERE_WINDOWS_ARE_NAMED}
    silent |= {*_SILENT_WITHOUT_KEYS, *_SILENT_WITHOUT_GATEWAY}
    wanted = {each.name + suffixes[each.kind] for each in metrics.ALL if each not in silent}

    def missing() -> set[str]:
        return wanted - {name.removeprefix("ray_") for name in prometheus.names()}

    with contextlib.suppress(AssertionError):
        eventually(lambda: not missing(), _SCRAPED_WITHIN_S)
    assert not missing()


@pytest.mark.parametrize(
    "query",
    [
        "histogram_quantile(0.99, sum by (le) (outrider_time_to_first_token_seconds_bucket))",
        "histogram_quantile(0.5, sum by (le) (outrider_inter_token_latency_seconds_bucket))",
        'histogram_quantile(0.5, sum by (le) (ray_outrider_round_phase_seconds_bucket{phase="verify"}))',
        "sum(ray_outrider_spec_decode_num_accepted_tokens_total) / sum(ray_outrider_spec_decode_num_drafts_total)",
        'sum(ray_outrider_kv_blocks{state="free"})',
        'sum(ray_outrider_payload_bits_total{protocol!="none",direction="up"})',
        "max(ray_outrider_link_rtt_seconds)",
        # What messages take is less than what the wire carries, either way.
        'sum(ray_outrider_wire_bits_total{direction="up"}) - sum(ray_outrider_payload_bits_total{direction="up"})',
        'sum(ray_outrider_wire_bits_total{direction="down"}) - sum(ray_outrider_payload_bits_total{direction="down"})',
        'sum(ray_outrider_drafter_exchanges_total{outcome="answered"})',
    ],
)
def test_operators_queries_have_answers(prometheus: Prometheus, query: str) -> None:
    eventually(lambda: prometheus.value(query) > 0, _SCRAPED_WITHIN_S)
