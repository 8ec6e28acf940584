"""Two coordinators. Processes die or hang in mid-stream; the clients notice nothing and get the very same tokens."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.cluster.prompts import CHATS
from tests.cluster.served import MODEL, Served, eventually, served
from tests.cluster.streams import CLIENTS, Streamed, streams, told

COORDINATORS, DRAFTERS = 2, 3
KV_BLOCK_TOKENS = 16
QUIET_WITHIN_S = 180.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two coordinators, each with its verifier, and three drafters."""
    settings = {
        "verifiers": {"count": COORDINATORS},
        "drafters": [{"name": "edge", "count": DRAFTERS}],
        "speculation": {"window": 2},  # a draft in every round: what is to be lost must be under way
    }
    with served(tmp_path_factory.mktemp("losses"), settings) as running:
        eventually(lambda: running.idle(COORDINATORS, DRAFTERS), QUIET_WITHIN_S)
        yield running


@pytest.fixture(scope="module")
def undisturbed(service: Served) -> list[Streamed]:
    """What the clients get when nothing happens."""
    responses = streams(service.url)
    assert sum(response.usage["outrider"]["accepted_tokens"] for response in responses) > 0
    return responses


def check(service: Served, undisturbed: list[Streamed], act: Callable[[], object]) -> list[Streamed]:
    """Nothing may differ, and nothing may be left behind."""
    responses = streams(service.url, act)
    assert told(responses) == told(undisturbed)
    eventually(lambda: service.idle(COORDINATORS, DRAFTERS), QUIET_WITHIN_S)
    return responses


def test_conversations_stay_where_their_kv_is(service: Served) -> None:
    """Begun at once, so that they are spread; each later turn finds the turns before it."""
    talks: list[list[dict[str, str]]] = [[] for _ in range(CLIENTS)]

    def turn(i: int) -> dict[str, Any]:
        talks[i].append({"role": "user", "content": f"Talk {i}, message {len(talks[i])}: " + CHATS[i] * 2})
        request = {"model": MODEL, "messages": talks[i], "max_tokens": 8, "temperature": 0, "n": 2}
        answer = httpx.post(f"{service.url}/v1/chat/completions", json=request, timeout=300).json()
        talks[i].append(answer["choices"][0]["message"])
        usage: dict[str, Any] = answer["usage"]
        return usage

    before = {report["id"]: report["rounds"] for report in service.status()["coordinators"]}
    with ThreadPoolExecutor(CLIENTS) as pool:
        first = list(pool.map(turn, range(CLIENTS)))
    for earlier in (first, [turn(i) for i in range(CLIENTS)]):
        for i, usage in enumerate(earlier):
            later = turn(i)
            assert later["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - KV_BLOCK_TOKENS
    eventually(lambda: all(report["rounds"] > before[report["id"]] for report in service.status()["coordinators"]), 10)


def test_a_drafter_is_killed(service: Served, undisturbed: list[Streamed]) -> None:
    check(service, undisturbed, lambda: service.kill("DrafterActor", most=1))


def test_all_drafters_are_killed(service: Served, undisturbed: list[Streamed]) -> None:
    check(service, undisturbed, lambda: service.kill("DrafterActor"))
    assert told(streams(service.url)) == told(undisturbed), "with the restarted drafters"


def test_drafters_hang(service: Served, undisturbed: list[Streamed]) -> None:
    check(service, undisturbed, lambda: service.stop("DrafterActor"))


def test_a_verifier_is_killed(service: Served, undisturbed: list[Streamed]) -> None:
    check(service, undisturbed, lambda: service.kill("VerifierActor", most=1))


def test_a_coordinator_is_killed_and_the_other_one_goes_on(service: Served, undisturbed: list[Streamed]) -> None:
    before = {report["id"] for report in service.status()["coordinators"]}
    check(service, undisturbed, lambda: service.kill("ServeReplica:outrider:Coordinator", most=1))
    assert len(before & {report["id"] for report in service.status()["coordinators"]}) == 1
    assert resumptions(service) > 0


def test_both_coordinators_are_killed(service: Served, undisturbed: list[Streamed]) -> None:
    """Then the responses wait until one is back."""
    before = resumptions(service)
    check(service, undisturbed, lambda: service.kill("ServeReplica:outrider:Coordinator"))
    assert resumptions(service) > before


def test_the_fleet_is_killed(service: Served, undisturbed: list[Streamed]) -> None:
    responses = check(service, undisturbed, lambda: service.kill("FleetActor"))
    assert sum(response.usage["outrider"]["accepted_tokens"] for response in responses) > 0


def test_an_ingress_is_killed_and_its_generations_end(service: Served) -> None:
    """Its clients' connections break; what they had is freed, and the next ingress serves."""
    with pytest.raises((httpx.HTTPError, AssertionError)):
        streams(service.url, lambda: service.kill("ServeReplica:outrider:Ingress"))
    eventually(lambda: serves(service), QUIET_WITHIN_S)
    eventually(lambda: service.idle(COORDINATORS, DRAFTERS), QUIET_WITHIN_S)


def test_clients_that_hang_up_leave_nothing_behind(service: Served) -> None:
    """At different moments: before the first token, between two chunks, in the middle of a round."""
    before = service.events("generation_orphaned", "leases_expired")
    request = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True}
    for events in range(12):
        with httpx.stream("POST", f"{service.url}/v1/completions", json=request, timeout=60) as response:
            assert response.status_code == httpx.codes.OK
            lines = (line for line in response.iter_lines() if line)
            assert all("data:" in next(lines) for _ in range(events))
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(f"{service.url}/v1/completions", json={**request, "stream": False, "n": 3}, timeout=0.7)
    eventually(lambda: service.idle(COORDINATORS, DRAFTERS), QUIET_WITHIN_S)
    assert service.events("generation_orphaned", "leases_expired") == before, "all were told, nobody had to find out"


def serves(service: Served) -> bool:
    """Whether requests are answered."""
    try:
        return service.get("/ready").status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def resumptions(service: Served) -> float:
    """How often the ingress went on elsewhere."""
    name = "outrider_responses_resumed_total"
    lines = service.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))
