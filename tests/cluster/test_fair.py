"""Two keys at one verifier: whatever one asks for or does not read, the other begins, and nobody's tokens change."""

import json
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing

import httpx
import pytest

from serve_app import metrics
from tests.cluster.clusters import Clusters
from tests.cluster.few_places import FLOOD, NAME, OTHER, PLACES, head, with_few_places
from tests.cluster.served import MODEL, PLAIN, Service, eventually

CLUSTER = NAME
CHOICES, TOKENS = 8, 80
PROMPTS, PROMPT_TOKENS = 8, 400
READERS = 8
_WITHIN_S = 120.0


@pytest.fixture(scope="module")
def service(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Service:
    return clusters.get(CLUSTER, lambda: with_few_places(tmp_path_factory.mktemp("places")))


def body(**request: object) -> dict[str, object]:
    return {"model": MODEL, "prompt": "Once upon a time", "temperature": 0, "ignore_eos": True, **request}


def ask(service: Service, key: str, **request: object) -> httpx.Response:
    url = f"{service.url}/v1/completions"
    return httpx.post(url, json=body(**request), headers=head(key), timeout=400, verify=PLAIN)


def text_of(response: httpx.Response) -> str:
    assert response.status_code == httpx.codes.OK, response.text
    return str(response.json()["choices"][0]["text"])


def admitted(service: Service) -> int:
    (coordinator,) = service.coordinators()
    return int(coordinator["generations"])


def test_a_key_begins_beside_anothers_choices_and_no_text_changes(service: Service) -> None:
    undisturbed = text_of(ask(service, OTHER, max_tokens=TOKENS))
    with ThreadPoolExecutor(1) as pool:
        flood: Future[httpx.Response] = pool.submit(ask, service, FLOOD, n=CHOICES, max_tokens=TOKENS)
        eventually(lambda: admitted(service) == PLACES, _WITHIN_S)
        assert undisturbed.startswith(text_of(ask(service, OTHER, max_tokens=2)))
        assert not flood.done(), "eight choices at four places take longer than one of two tokens"
        choices = flood.result().json()["choices"]
    assert [choice["text"] for choice in choices] == [undisturbed] * CHOICES


@pytest.mark.long
def test_a_full_queue_refuses_whoever_fills_it(service: Service) -> None:
    with ThreadPoolExecutor(80) as pool:
        flood = [pool.submit(ask, service, FLOOD, max_tokens=16) for _ in range(80)]
        codes = [ask(service, OTHER, max_tokens=2).status_code for _ in range(3)]
        refused = sum(each.result().status_code == httpx.codes.TOO_MANY_REQUESTS for each in flood)
    assert codes == [httpx.codes.OK] * 3
    assert 0 < refused < 80


def test_a_prompt_is_computed_beside_anothers_prompts(service: Service) -> None:
    prompts = [[100 + (17 * prompt + 31 * i) % 40_000 for i in range(PROMPT_TOKENS)] for prompt in range(PROMPTS)]
    with ThreadPoolExecutor(1) as pool:
        flood = pool.submit(ask, service, FLOOD, prompt=prompts, max_tokens=1)
        eventually(lambda: admitted(service) == PLACES, _WITHIN_S)
        own = ask(service, OTHER, prompt=[7_000 + i for i in range(100)], max_tokens=1)
        assert own.status_code == httpx.codes.OK
        assert not flood.done(), "a prompt of 100 tokens waits for no more than as many of the other's 3,200"
        assert flood.result().status_code == httpx.codes.OK


@pytest.mark.long
def test_readers_that_stop_give_their_places_back(service: Service) -> None:
    """And their KV, once their connections are ended."""
    stalled = service.exported(metrics.STALLED)
    request = body(max_tokens=1000, stream=True, logprobs=20, outrider={"details": True})
    with ExitStack() as connections:
        for _ in range(READERS):
            connections.enter_context(closing(deaf(service, request)))
        assert text_of(ask(service, OTHER, max_tokens=8)), "beside them"
        eventually(lambda: admitted(service) > PLACES, _WITHIN_S)
        eventually(lambda: service.exported(metrics.STALLED) >= stalled + PLACES, _WITHIN_S)
        eventually(lambda: not service.held(), 4 * _WITHIN_S)


def deaf(service: Service, request: dict[str, object]) -> socket.socket:
    """A connection that asks and never reads."""
    content = json.dumps(request).encode()
    lines = [
        "POST /v1/completions HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Authorization: Bearer {FLOOD}",
        f"Content-Length: {len(content)}",
    ]
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.connect(("127.0.0.1", httpx.URL(service.url).port))
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
    return connection
