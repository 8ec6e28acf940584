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
from outrider.config.schema import Config, SloClassConfig
from outrider.engines.torch.linears import computes_bfloat16
from serve_app.api.openai.fields.lengths import CLAMPED_HEADER
from serve_app.coordination.credit import MOST_UNREAD_TOKENS
from tests.chaos.services import replicas_running
from tests.cluster.prompts import CHATS
from tests.cluster.served import MODEL, PLAIN, Service, eventually, started

INGRESSES, COORDINATORS, DRAFTERS, CLIENTS = 2, 2, 2, 4
TOKENS = 24
LONG_TOKENS = 2 * MOST_UNREAD_TOKENS
_WITHIN_S = 240.0
_TOLD_S = 3.0
_OFTEN = 6
_AMONG = 2  # responses that each client has from the service before it is updated, and behind that

SAMPLINGS: tuple[dict[str, Any], ...] = ({"temperature": 0}, {"temperature": 0.8, "seed": 7})
ASKED = [{"messages": [{"role": "user", "content": chat}], **sampling} for chat in CHATS[:3] for sampling in SAMPLINGS]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Behind Serve's proxy, as ingresses are replaced as well."""
    config = load_config().on_own_host()
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


def answer(url: str, number: int, tokens: int = TOKENS) -> str:
    """Stream one response to its end; AssertionError if anything went wrong with it."""
    body = {
        **ASKED[number],
        "model": MODEL,
        "max_tokens": tokens,
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


def deploy(config: Config) -> None:
    """Until it serves."""
    bring_up(config, ProxyLocation.HeadOnly, show=lambda _: None)


@contextmanager
def updated(service: Service, config: Config, *, stay: bool = False) -> Iterator[Clients]:
    """Clients under way while the application becomes what this configuration says."""
    with Clients(service.url) as clients:
        clients.wait_for(_AMONG * CLIENTS)
        before = replicas_running()
        began_s = time.monotonic()
        deploy(config)
        print(f"updated in {time.monotonic() - began_s:.1f} s, {len(clients.answered)} answered")  # noqa: T201 (no test's business)
        eventually(lambda: len(service.coordinators()) == config.verifiers.count, _WITHIN_S)
        after = replicas_running()
        if stay:
            assert before <= after or after <= before, "somebody was replaced"
        else:
            assert not before & after, "somebody was not replaced"
        yield clients
        clients.wait_for(_AMONG * CLIENTS)


def asked_of(service: Service, **request: Any) -> list[httpx.Response]:
    """One request several times, so that each ingress has it and each coordinator may."""
    body = {**ASKED[0], "model": MODEL, "max_tokens": TOKENS, "ignore_eos": True, **request}
    url = f"{service.url}/v1/chat/completions"
    with ThreadPoolExecutor(_OFTEN) as pool:
        return list(pool.map(lambda _: httpx.post(url, json=body, timeout=_WITHIN_S, verify=PLAIN), range(_OFTEN)))


def statuses(service: Service, **request: Any) -> set[int]:
    """Of the answers."""
    return {response.status_code for response in asked_of(service, **request)}


def clamped(service: Service, **request: Any) -> set[str | None]:
    """Of the answers, the header that tells to how many tokens they were shortened."""
    return {response.headers.get(CLAMPED_HEADER) for response in asked_of(service, **request)}


def longest_drafts(service: Service) -> int:
    """Tokens in the longest draft of any of them."""
    asked = asked_of(service, outrider={"details": True, "lookup": False}, max_tokens=12)
    answers = [response.json()["choices"][0] for response in asked]
    return max(int(one["drafted_tokens"]) for answer in answers for one in answer["outrider"]["rounds"])


def left(service: Service) -> list[dict[str, Any]]:
    """Each time that a response went on elsewhere, as its verifier was drained."""
    return service.events("response_resumed", reason="CoordinatorDrainedError")


def processes(service: Service) -> list[list[int]]:
    """Whatever might have been started anew."""
    return [service.pids(name) for name in ("ServeReplica", "VerifierActor", "DrafterActor")]


def test_light_settings_reach_the_very_replicas_that_serve(service: Service) -> None:
    chains = replace(service.config.speculation, policy="fixed", protocols=("token_ids",))
    config, window = replace(service.config, speculation=chains), 4
    deploy(config)
    expected, before, told = undisturbed(service), processes(service), len(service.events("settings_taken"))
    more = replace(config.slo, classes=(*config.slo.classes, SloClassConfig("brand_new", 0.5)))
    changed = replace(
        config,
        slo=more,
        limits=replace(config.limits, max_output_tokens=TOKENS),
        speculation=replace(config.speculation, window=window),
    )
    classed = {"outrider": {"slo_class": "brand_new"}, "max_tokens": 2}
    longer = {"max_tokens": TOKENS + 1, "stop": [" "]}
    assert (statuses(service, **classed), clamped(service, **longer)) == ({400}, {None})
    assert longest_drafts(service) == config.speculation.window
    with updated(service, changed, stay=True) as clients:
        eventually(lambda: len(service.events("settings_taken")) == told + INGRESSES + COORDINATORS, _WITHIN_S)
        assert (statuses(service, **classed), clamped(service, **longer)) == ({200}, {str(TOKENS)})
        assert longest_drafts(service) == window
    assert {text == expected[number] for number, text in clients.answered} == {True}
    assert processes(service) == before
    assert not service.events("settings_refused")
    service.check_released()


@pytest.mark.long
@pytest.mark.parametrize("count", [COORDINATORS + 1, 1])
def test_more_verifiers_and_fewer(service: Service, count: int) -> None:
    deploy(service.config)
    expected = undisturbed(service)
    config = replace(service.config, verifiers=replace(service.config.verifiers, count=count))
    with updated(service, config, stay=True) as clients:
        pass
    assert {text == expected[number] for number, text in clients.answered} == {True}
    service.check_released()


@pytest.mark.long
@pytest.mark.parametrize("drain_s", [None, 3.0])
def test_a_long_response_outlives_the_verifier_that_is_drained_under_it(
    service: Service, drain_s: float | None
) -> None:
    """It goes on at another one, or ends where it is, though nobody can say there what was read."""
    limits = replace(service.config.limits, drain_s=drain_s, max_concurrent_generations=COORDINATORS + 1)
    config = replace(service.config, limits=limits)
    deploy(config)
    eventually(lambda: len(service.coordinators()) == COORDINATORS, _WITHIN_S)
    before, texts = len(left(service)), list[Future[str]]()
    with ThreadPoolExecutor(COORDINATORS) as pool:
        expected = list(pool.map(lambda number: answer(service.url, number, LONG_TOKENS), range(COORDINATORS)))
        for number in range(COORDINATORS):  # one at each, as routers are told every second who has something
            texts.append(pool.submit(answer, service.url, number, LONG_TOKENS))
            eventually(lambda: sum(one["generations"] for one in service.coordinators()) == len(texts), _WITHIN_S)
            time.sleep(_TOLD_S)
        assert [one["generations"] for one in service.coordinators()] == [1] * COORDINATORS
        deploy(replace(config, verifiers=replace(config.verifiers, count=1)))
        assert [one.result() for one in texts] == expected
    assert (len(left(service)) > before) == (drain_s is not None)
    service.check_released()


@pytest.mark.long
def test_another_configuration(service: Service) -> None:
    expected, limits = undisturbed(service), service.config.limits
    config = replace(service.config, limits=replace(limits, verifier_deadline_s=limits.verifier_deadline_s + 1.0))
    with updated(service, config) as clients:
        pass
    assert {text == expected[number] for number, text in clients.answered} == {True}
    service.check_released()


# Where bfloat16 is emulated it is slow, and what shares a pass changes it.
@pytest.mark.long
@pytest.mark.skipif(not computes_bfloat16(), reason="this processor does not compute in bfloat16")
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
