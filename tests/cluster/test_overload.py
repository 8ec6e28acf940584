"""More clients than the service takes at once: those it took all complete, the rest are refused at once, by name."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.cluster.plain_connections import Kind, Outcome, answers, counted, unfair
from tests.cluster.served import MODEL, PLAIN, Service, served
from tests.cluster.streams import body, stream

pytestmark = pytest.mark.long  # `make test` drives a few floods of tests/hostile

CLIENTS, FLOOD, CONNECTIONS = 64, 200, 200
RUNNING, QUEUED = 32, 64
_MOST_GROWN_MIB = 150


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The defaults, with one drafter, which is to draft in every round however little that pays."""
    limits = {"max_concurrent_generations": RUNNING, "max_queued_generations": QUEUED}
    settings = {"limits": limits, "speculation": {"window": 2}}
    with served(tmp_path_factory.mktemp("overload"), settings) as running:
        yield running


def memory_mib(service: Service) -> dict[str, float]:
    """Private memory of the service's processes, by actor."""
    found = {}
    for name in ("ServeReplica:outrider:Ingress", "ServeReplica:outrider:Coordinator", "VerifierActor", "DrafterActor"):
        (pid,) = service.pids(name)
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        found[name] = int(fields["RssAnon"].split()[0]) / 1024
    return found


def test_more_streams_than_places_complete_and_memory_stays_bounded(service: Service) -> None:
    def wave(tokens: int) -> list[str]:
        with ThreadPoolExecutor(CLIENTS) as pool:
            return [r.text for r in pool.map(lambda i: stream(service.url, body(i, tokens)), range(CLIENTS))]

    first = wave(12)
    before = memory_mib(service)
    assert wave(12) == first, "nor does company change what they get"
    service.check_reported_released()
    grown = {name: mib - before[name] for name, mib in memory_mib(service).items()}
    assert max(grown.values()) < _MOST_GROWN_MIB, grown


def test_what_cannot_be_queued_is_refused_at_once(service: Service) -> None:
    request = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 8, "ignore_eos": True}

    finished: list[int] = []

    def ask(_: int) -> httpx.Response:
        response = httpx.post(f"{service.url}/v1/completions", json=request, timeout=400, verify=PLAIN)
        finished.append(response.status_code)
        return response

    with ThreadPoolExecutor(FLOOD) as pool:
        responses = list(pool.map(ask, range(FLOOD)))
    counted = Counter(response.status_code for response in responses)
    others = [r.text for r in responses if r.status_code not in (httpx.codes.OK, httpx.codes.TOO_MANY_REQUESTS)]
    assert not others, (counted, others[:3])
    for response in responses:
        if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
            assert response.json()["error"]["code"] == "busy"
            assert int(response.headers["retry-after"]) >= 1
    assert counted[httpx.codes.OK] >= RUNNING + QUEUED
    first_refusal = finished.index(httpx.codes.TOO_MANY_REQUESTS)
    assert first_refusal < RUNNING, "a refusal does not wait for others' responses"
    service.check_reported_released()


def test_connections_of_all_kinds_are_served_refused_or_closed(service: Service) -> None:
    """Slow readers get theirs; who never ends a request, or says nothing, loses its connection."""
    body = {
        "model": MODEL,
        "prompt": "Once upon a time",
        "max_tokens": 8,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    before, port = memory_mib(service), service.config.http.port
    found = asyncio.run(answers("127.0.0.1", port, body, CONNECTIONS, 300.0))
    assert not unfair(found), (counted(found), unfair(found)[:3])
    assert sum(each.outcome is Outcome.SERVED and each.kind is Kind.SLOW for each in found) > 0
    service.check_reported_released()
    grown = {name: mib - before[name] for name, mib in memory_mib(service).items()}
    assert max(grown.values()) < _MOST_GROWN_MIB, grown
