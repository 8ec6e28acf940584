"""Two ingresses, two coordinators, and clients that never pause: the application is updated, and no request fails."""

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event
from types import TracebackType
from typing import Any, Self

import httpx
import pytest
from ray.serve.config import ProxyLocation

from cluster.application import bring_up
from outrider.config.reading import load_config
from outrider.config.schema import Config
from tests.chaos.services import replicas_running
from tests.cluster.prompts import CHATS
from tests.cluster.served import MODEL, PLAIN, Service, eventually, started

INGRESSES, COORDINATORS, DRAFTERS, CLIENTS = 2, 2, 2, 4
TOKENS = 40
_WITHIN_S = 240.0
_AMONG = 3  # responses that each client has from the service before it is updated, and behind that

SAMPLINGS: tuple[dict[str, Any], ...] = ({"temperature": 0}, {"temperature": 0.8, "seed": 7})
ASKED = [{"messages": [{"role": "user", "content": chat}], **sampling} for chat in CHATS[:3] for sampling in SAMPLINGS]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Behind Serve's proxy, as ingresses are replaced as well."""
    config = load_config()
    config = replace(
        config,
        model=replace(config.model, dtype="float32"),
        verifiers=replace(config.verifiers, count=COORDINATORS, kv_budget_mib=64),
        drafters=(replace(config.drafters[0], count=DRAFTERS, kv_budget_mib=64),),
        speculation=replace(config.speculation, window=2),
        ingress=replace(config.ingress, count=INGRESSES),
        cluster=replace(config.cluster, num_cpus=24),
    )
    with started(config) as service:
        eventually(lambda: len(service.coordinators()) == COORDINATORS, _WITHIN_S)
        yield service


def answer(url: str, number: int) -> str:
    """Stream one response to its end; AssertionError if anything went wrong with it."""
    body = {
        **ASKED[number],
        "model": MODEL,
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "stream": True,
    }
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=_WITHIN_S, verify=PLAIN) as response:
        lines = [line for line in response.iter_lines() if line]
    assert response.status_code == httpx.codes.OK, lines
    assert lines[-1] == "data: [DONE]", lines[-1]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1] if line.startswith("data: ")]
    assert not [event for event in events if "error" in event]
    choices = [event["choices"][0] for event in events if event["choices"]]
    assert choices[-1]["finish_reason"] == "length"
    return "".join(choice["delta"].get("content") or "" for choice in choices)


@dataclass
class Clients:
    """Each asks again as soon as it was answered, until the block ends."""

    url: str

    def __enter__(self) -> Self:
        """Begin."""
        self._over, self._pool = Event(), ThreadPoolExecutor(CLIENTS)
        self.answered: list[tuple[int, str]] = []
        self._asking: list[Future[None]] = [self._pool.submit(self._ask_on, seed) for seed in range(CLIENTS)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """End, and raise what a client has met."""
        self._over.set()
        self._pool.shutdown()
        for asking in self._asking:
            asking.result()

    def wait_for(self, more: int) -> None:
        """Until so many more were answered; at once if a client has met an error."""
        until = len(self.answered) + more
        eventually(lambda: len(self.answered) >= until or any(each.done() for each in self._asking), _WITHIN_S)

    def _ask_on(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self._over.is_set():
            number = rng.randrange(len(ASKED))
            self.answered.append((number, answer(self.url, number)))


def undisturbed(service: Service) -> list[str]:
    """What the service answers when nothing happens."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(lambda number: answer(service.url, number), range(len(ASKED))))


@contextmanager
def updated(service: Service, config: Config) -> Iterator[Clients]:
    """Clients under way while the application becomes what this configuration says."""
    with Clients(service.url) as clients:
        clients.wait_for(_AMONG * CLIENTS)
        before = replicas_running()
        began_s = time.monotonic()
        bring_up(replace(config, http=service.config.http), ProxyLocation.HeadOnly, show=lambda _: None)
        print(f"updated in {time.monotonic() - began_s:.0f} s, {len(clients.answered)} answered")  # noqa: T201 (no test's business)
        assert not before & replicas_running(), "somebody was not replaced"
        eventually(lambda: len(service.coordinators()) == config.verifiers.count, _WITHIN_S)
        yield clients
        clients.wait_for(_AMONG * CLIENTS)


@pytest.mark.long
def test_another_configuration(service: Service) -> None:
    expected, limits = undisturbed(service), service.config.limits
    config = replace(service.config, limits=replace(limits, max_queued_generations=limits.max_queued_generations + 1))
    with updated(service, config) as clients:
        pass
    assert {text == expected[number] for number, text in clients.answered} == {True}
    service.check_released()


@pytest.mark.long
@pytest.mark.parametrize("count", [COORDINATORS + 1, 1])
def test_more_verifiers_and_fewer(service: Service, count: int) -> None:
    expected = undisturbed(service)
    config = replace(service.config, verifiers=replace(service.config.verifiers, count=count))
    with updated(service, config) as clients:
        pass
    assert {text == expected[number] for number, text in clients.answered} == {True}
    service.check_released()


def test_another_target(service: Service) -> None:
    """The same weights in another type are another target: each response is all of the one, or all of the other."""
    old = undisturbed(service)
    with updated(service, replace(service.config, model=replace(service.config.model, dtype="bfloat16"))) as clients:
        pass
    new = undisturbed(service)
    assert old != new
    wrong = [number for number, text in clients.answered if text not in (old[number], new[number])]
    assert not wrong
    assert any(text != new[number] for number, text in clients.answered), "none was begun by the old one"
    assert any(text != old[number] for number, text in clients.answered), "none was begun by the new one"
    service.check_released()
