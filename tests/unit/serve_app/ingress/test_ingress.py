"""The ingress's service over a handle in memory: it goes on elsewhere, closes what it began, and counts."""

import asyncio
import random
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from ray.exceptions import ActorDiedError
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from actors.messages import CoordinatorReport, FleetStatus, ModelCard
from actors.waiting import Named
from outrider.config.reading import parse_config
from outrider.contracts.errors import ConfigError, ParameterError
from outrider.contracts.slo import SloClass
from outrider.tracing.spans import Span
from serve_app import metrics
from serve_app.api.http.listener import Address, ListenerEndedError, listen
from serve_app.api.service import AuthSettings, ServiceSettings
from serve_app.api.tracing import RequestTraces
from serve_app.ingress.ingress import CoordinatorService, Ingress
from serve_app.metrics import Metric
from serve_app.reloadable_settings import ReloadableSettings
from serve_app.service_answers import Ready
from tests.unit.serve_app.api.in_memory_service import TOKENIZER, request_for, tokens_of, truth_of
from tests.unit.serve_app.api.listening import free_port
from tests.unit.serve_app.api.test_http_errors import through_ray
from tests.unit.serve_app.api.text_service import LIMITS, SETTINGS
from tests.unit.serve_app.coordination.in_memory import PROMPT
from tests.unit.serve_app.ingress.in_memory_handle import MemoryHandle
from tests.unit.virtual_clock import on_loop


def service_over(handle: MemoryHandle) -> CoordinatorService:
    return CoordinatorService(cast("DeploymentHandle[Any]", handle), SETTINGS, LIMITS, TOKENIZER)


def exported(service: CoordinatorService, metric: Metric) -> dict[str, float]:
    """By the values of its labels."""
    families = text_string_to_metric_families(service.own_metrics().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == metric.name]
    return {",".join(sample.labels.values()): sample.value for sample in samples}


@on_loop
async def test_a_lost_coordinator_is_replaced_and_counted() -> None:
    handle, request = MemoryHandle((2, ActorDiedError())), request_for(window=0)
    service = service_over(handle)
    chunks = [chunk async for chunk in service.generate(request)]
    assert tokens_of(chunks) == truth_of(request)
    assert {"_by_reference": False, "stream": True} in handle.asked
    await handle.closed()
    assert len(handle.generate.streams) == 2
    assert exported(service, metrics.RESPONSES) == {"length": 1}
    assert exported(service, metrics.RESUMED) == {"": 1}
    assert exported(service, metrics.RUNNING) == {"": 0}
    assert exported(service, metrics.PROMPT_TOKENS) == {"": len(PROMPT)}
    assert exported(service, metrics.GENERATION_TOKENS) == {"": len(truth_of(request))}


@on_loop
async def test_a_resumed_response_carries_its_trace_and_tells_its_request() -> None:
    spans = list[Span]()
    traces = RequestTraces(spans.append, 1.0, random.Random(1).getrandbits, lambda: 0.0)
    header, trace = traces.begin({}, "POST", "/v1/completions")
    assert trace is not None
    assert header is not None
    handle, request = MemoryHandle((2, ActorDiedError())), replace(request_for(window=0), trace=header)
    service = CoordinatorService(cast("DeploymentHandle[Any]", handle), SETTINGS, LIMITS, TOKENIZER, traces=traces)
    assert tokens_of([chunk async for chunk in service.generate(request)]) == truth_of(request)
    await handle.closed()
    assert [record.trace for record in handle.coordinators.records] == 2 * [header]
    assert [event.name for event in trace.events] == ["response_resumed"]


@pytest.mark.parametrize(("tokens_per_s", "kept"), [(1e-3, "yes"), (1e12, "no")])
@on_loop
async def test_a_promise_is_judged_by_the_whole_response(tokens_per_s: float, kept: str) -> None:
    handle = MemoryHandle((2, ActorDiedError()))
    request = replace(request_for(window=0), slo=SloClass("some", tokens_per_s))
    service = service_over(handle)
    assert tokens_of([chunk async for chunk in service.generate(request)]) == truth_of(request)
    await handle.closed()
    ((labels, count),) = exported(service, metrics.SLO_RESPONSES).items()
    assert (set(labels.split(",")), count) == ({"some", kept}, 1)


@on_loop
async def test_a_client_that_leaves_cancels_the_call() -> None:
    handle = MemoryHandle((2, ActorDiedError()))
    service = service_over(handle)
    chunks = service.generate(request_for(window=0))
    await anext(chunks)
    await chunks.aclose()
    await handle.closed()
    assert handle.coordinators.left == ["g"]
    assert exported(service, metrics.RESPONSES) == {"cancelled": 1}
    assert exported(service, metrics.RESUMED) == {}


@on_loop
async def test_an_error_of_the_request_is_told_and_counted_as_refused() -> None:
    handle = MemoryHandle((2, through_ray(ParameterError("seed", "an integer", "x"))))
    service = service_over(handle)
    chunks = service.generate(request_for(window=0))
    received = [await anext(chunks) for _ in range(2)]
    with pytest.raises(ParameterError):
        await anext(chunks)
    await handle.closed()
    assert len(received) == 2
    assert exported(service, metrics.RESPONSES) == {"refused": 1}


@on_loop
async def test_what_waits_and_runs_is_shown_as_vllm_does() -> None:
    async def absent() -> None:
        raise ValueError("there is no fleet")

    handle, fleet = cast("DeploymentHandle[Any]", MemoryHandle()), cast("Named", SimpleNamespace(handle=absent))
    service = CoordinatorService(handle, SETTINGS, LIMITS, TOKENIZER, fleet=fleet)

    async def shown() -> dict[str, float]:
        families = text_string_to_metric_families((await service.metrics()).decode())
        return {each.name: each.samples[0].value for each in families if each.name.startswith("vllm:num")}

    def counted(waiting: float, running: float) -> dict[str, float]:
        return {"vllm:num_requests_waiting": waiting, "vllm:num_requests_running": running}

    assert (await shown(), service.load) == (counted(0.0, 0.0), 0)
    chunks = service.generate(request_for(window=0))
    first = asyncio.ensure_future(anext(chunks))
    await asyncio.sleep(0)
    assert (await shown(), service.load) == (counted(1.0, 0.0), 1)
    await first
    assert (await shown(), service.load) == (counted(0.0, 1.0), 1)
    await chunks.aclose()
    assert (await shown(), service.load) == (counted(0.0, 0.0), 0)


@on_loop
async def test_the_probe_tells_the_age_of_the_keys_and_whether_they_are_refused() -> None:
    service = service_over(MemoryHandle())
    in_use = SimpleNamespace(age_s=7.0, refused=True)
    light = SimpleNamespace(say_again=lambda: None)
    ingress = SimpleNamespace(_listening=None, _light=light, _gate=SimpleNamespace(in_use=in_use), _service=service)
    await Ingress.check_health(cast("Any", ingress))
    page = service.own_metrics().decode()
    assert [line.rpartition(" ")[2] for line in page.splitlines() if line.startswith("outrider_keys_")] == [
        "7.0",
        "1.0",
    ]


def test_an_ingress_whose_listener_has_ended_is_not_healthy() -> None:
    """Serve asks, and tells it when it is to go."""

    async def asked() -> None:
        listening = listen(FastAPI(), Address("127.0.0.1", free_port()))
        light = SimpleNamespace(say_again=lambda: None)
        ingress = cast("Any", SimpleNamespace(_listening=listening, _light=light, _gate=None))
        await Ingress.check_health(ingress)
        await Ingress.__del__(ingress)
        with pytest.raises(ListenerEndedError, match="found that it ended"):
            await Ingress.check_health(ingress)
        await Ingress.check_health(cast("Any", SimpleNamespace(_listening=None, _light=light, _gate=None)))

    asyncio.run(asked())


def test_an_ingress_is_ready_where_all_coordinators_are_busy_and_not_where_there_is_none() -> None:
    """A probe that finds every place taken is answered from what coordinators tell the fleet."""

    async def asked(error: Exception, *reports: CoordinatorReport) -> Ready:
        async def full() -> None:
            raise error

        async def status() -> FleetStatus:
            return FleetStatus((), reports)

        fleet = SimpleNamespace(status=SimpleNamespace(remote=status))
        handle = SimpleNamespace(ready=SimpleNamespace(remote=full))
        handle.options = lambda **_: handle
        named, typed = Named(lambda: fleet, 60.0), cast("DeploymentHandle[Any]", handle)
        return await CoordinatorService(typed, SETTINGS, LIMITS, TOKENIZER, fleet=named).ready()

    ready, loading = (CoordinatorReport(name, name, 1.0) for name in ("ready", "restarting"))
    for error in (BackPressureError(num_queued_requests=64, max_queued_requests=64), TimeoutError()):
        assert asyncio.run(asked(error, loading, ready))["ready"]
        assert not asyncio.run(asked(error, loading))["ready"]
        assert not asyncio.run(asked(error))["ready"]


@on_loop
async def test_figures_of_several_ingresses_do_not_mix_on_one_address() -> None:
    """A balancer gives one page after the other: each series is one replica's, and only ever grows."""
    pages = [dict[tuple[str, str], float]() for _ in range(2)]
    for name, page, responses in (("a", pages[0], 1), ("b", pages[1], 3)):
        handle = MemoryHandle()
        service = CoordinatorService(cast("DeploymentHandle[Any]", handle), SETTINGS, LIMITS, TOKENIZER, replica=name)
        for number in range(responses):
            async for _ in service.generate(request_for(f"{name}{number}", window=0)):
                pass
        await handle.closed()
        for family in text_string_to_metric_families(service.own_metrics().decode()):
            for sample in family.samples:
                assert sample.labels["replica"] == name
                page[sample.name, ",".join(sample.labels.values())] = sample.value
    assert not set(pages[0]) & set(pages[1])
    assert [sum(v for (n, _), v in page.items() if n == metrics.RESPONSES.name) for page in pages] == [1, 3]


class Running:
    """An ingress that serves, as far as reloadable settings concern it."""

    def __init__(self, gate: object = None) -> None:
        built = parse_config("{slo: {default: speed_2}, auth: {keys_file: /keys.yaml}}", "text")
        settings = ServiceSettings.from_config(built)
        typed = cast("DeploymentHandle[Any]", MemoryHandle())
        self.traces = RequestTraces(lambda _: None, 0.5, random.Random(1).getrandbits, lambda: 0.0)
        self.service = CoordinatorService(typed, settings, LIMITS, TOKENIZER, traces=self.traces)
        card = ModelCard("tiny", "hash", "map", LIMITS.vocab_size, (), 200)
        self._ingress: Any = SimpleNamespace(
            _service=self.service,
            _verifier=card,
            _gate=gate,
            _light=ReloadableSettings(built, self.service.settings_refused),
        )
        self._ingress._take = partial(Ingress._take, cast("Any", self._ingress))  # noqa: SLF001

    def reconfigure(self, **light: object) -> None:
        """As Serve does."""
        asyncio.run(Ingress.reconfigure(self._ingress, cast("Any", light)))


def test_light_settings_hold_from_the_next_request_on() -> None:
    ingress = Running()
    ingress.reconfigure()
    limits = ingress.service.limits
    assert (limits.max_context_tokens, limits.max_output_tokens) == (200, 199)
    assert limits.slo_classes[0].name == "speed_2"
    ingress.reconfigure(
        limits={"max_output_tokens": 50, "first_chunk_deadline_s": 500.0},
        model={"override_generation_config": {"temperature": 0.7}},
        slo={"default": "speed_4"},
        tracing={"sample_ratio": 0.25},
    )
    limits, settings = ingress.service.limits, ingress.service.settings
    assert (limits.max_output_tokens, settings.next_chunk_deadline_s) == (50, 500.0)
    assert limits.defaults.params["temperature"] == 0.7
    assert limits.slo_classes[0].name == "speed_4"
    assert ingress.traces.ratio == 0.25
    ingress.reconfigure()
    assert ingress.service.limits.max_output_tokens == 199
    assert "temperature" in ingress.service.limits.defaults.params, "the model's card has one"
    assert ingress.service.limits.defaults.params["temperature"] != 0.7


def test_keys_that_do_not_fit_leave_all_as_it_was() -> None:
    class Gate:
        """It knows a key of the class ``speed_8``."""

        async def take(self, settings: AuthSettings) -> None:
            if "speed_8" not in settings.classes:
                raise ConfigError("slo", "one of the classes", "speed_8")

    ingress = Running(Gate())
    ingress.reconfigure()
    before = ingress.service.settings, ingress.service.limits
    ingress.reconfigure(slo={"classes": [{"name": "speed_2", "tokens_per_s": 2.0}]})
    assert (ingress.service.settings, ingress.service.limits) == before
    gauge = f'{metrics.SETTINGS_REFUSED.name}{{deployment="ingress"}}'
    assert f"\n{gauge} 1.0\n" in ingress.service.own_metrics().decode()
    ingress.reconfigure()
    assert f"\n{gauge} 0.0\n" in ingress.service.own_metrics().decode()
