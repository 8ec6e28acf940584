"""Serves OpenAI's API over HTTP in front of the coordinators. Ingress replicas are stateless; there may be any number.

``serve_app.api`` is the API, pure HTTP over a ``Service``. This module has that service over a Serve handle, and
``Ingress``, the Serve deployment class around both.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, ProcessCollector
from ray import serve
from ray.exceptions import ActorDiedError, RayError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle
from transformers import PreTrainedTokenizerBase

from actors.fleet.actor import find_fleet
from actors.messages import FleetStatus, ModelCard
from actors.quotas import quotas_handle
from actors.ray_internals.serve import listen_where_the_node_does
from actors.start import started
from actors.waiting import Named, within
from outrider.config.reloadable import ReloadableFields
from outrider.config.schema import Config
from outrider.contracts.errors import BusyError, FleetUnavailableError, GenerationFailedError
from outrider.contracts.requests import GenerationChunk, GenerationRequest
from outrider.events import event, write_events
from serve_app import metrics
from serve_app.api.gateways.engine_metrics import engine_page, fullest
from serve_app.api.grammars.pool import GrammarPool
from serve_app.api.http.connections import ConnectionLimits, HttpConnections
from serve_app.api.http.listener import Address, listen
from serve_app.api.http.routes import make_api
from serve_app.api.peer import LOOPBACK
from serve_app.api.response_meter import ResponseMeter
from serve_app.api.resumption import resumed
from serve_app.api.service import Gate, RequestLimits, ServiceSettings
from serve_app.api.shared import Shared
from serve_app.api.tracing import RequestTraces
from serve_app.coordination import draining
from serve_app.ingress.key_gate import KeyGate
from serve_app.ingress.keys_in_use import KeysInUse
from serve_app.ingress.model_limits import limits_of_model, load_target, sampling_defaults
from serve_app.ingress.streams import CoordinatorStreams
from serve_app.metrics import Sink, in_prometheus, in_ray, page_of
from serve_app.page.routes import with_page
from serve_app.reloadable_settings import ReloadableSettings
from serve_app.scaling import STREAMS
from serve_app.service_answers import Ready, Status
from serve_app.spans import close, span_sink

_READY_DEADLINE_S = 5.0
_CARD_PAUSE_S = 0.5
_KV_DEADLINE_S = 0.5  # scrapers wait a second or less

log = logging.getLogger(__name__)


class CoordinatorService:
    """The ``Service`` over a Serve handle. Arguments travel by value: they are small, and that saves a store access."""

    def __init__(
        self,
        coordinator: DeploymentHandle[Any],
        settings: ServiceSettings,
        limits: RequestLimits,
        tokenizer: PreTrainedTokenizerBase,
        gate: Gate | None = None,
        replica: str = "",
        fleet: Named | None = None,
        traces: RequestTraces | None = None,
    ) -> None:
        """``replica`` labels this ingress's metrics; ``fleet`` is found by name if it is None."""
        self._traces = traces
        self._coordinator = coordinator.options(_by_reference=False)
        routed = partial(self.first_token_phase, "route")
        self._streams = CoordinatorStreams(coordinator, self._others_ready, self._should_migrate, routed)
        self._fleet = fleet or Named(partial(find_fleet, settings.namespace), _READY_DEADLINE_S)
        self._replica = replica
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)  # the process's own figures: memory, CPU
        self._sink = Sink(in_ray, partial(in_prometheus, self._registry))
        self._meter = ResponseMeter(self._sink, time.monotonic, deadline_s=_chunk_deadline_s(settings))
        self.gate = gate
        self.settings, self.limits = settings, limits
        self.tokenizer = tokenizer
        self.grammars = GrammarPool()
        self._kv_usage: Shared[float | None] = Shared(self._look_at_kv)

    def take(self, settings: ServiceSettings, limits: RequestLimits) -> None:
        """Replace settings and limits for new requests; responses under way keep theirs."""
        self.settings, self.limits = settings, limits
        self._meter.deadline_s = _chunk_deadline_s(settings)
        if self._traces is not None:
            self._traces.ratio = settings.tracing.sample_ratio

    def settings_refused(self, refused: bool) -> None:
        """Set the gauge that says whether the last reloadable settings were refused."""
        self._sink.record(metrics.SETTINGS_REFUSED, float(refused), deployment="ingress")

    def keys_read(self, keys: KeysInUse) -> None:
        """Set the gauges of the keys. Call it again and again: Ray drops a gauge that is not set for a while."""
        self._sink.record(metrics.KEYS_AGE_S, keys.age_s)
        self._sink.record(metrics.KEYS_REFUSED, float(keys.refused))

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Yield a response's chunks; resume elsewhere when a coordinator is lost. Closing the generator cancels it."""
        with self._meter.response(len(request.prompt_ids), request.slo) as metered:
            attempts = 0

            def on_resume() -> None:
                nonlocal attempts
                attempts += 1
                metered.resumed()
                if self._traces is not None:
                    self._traces.resumed(request, attempts)

            chunks = resumed(request, self._attempt, max_failures=self.settings.max_failures, on_resume=on_resume)
            async with aclosing(chunks):
                async for chunk in chunks:
                    metered.chunk(chunk)
                    yield chunk

    async def _attempt(self, record: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        try:
            async with aclosing(self._streams.chunks(record)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except BackPressureError as error:  # translate: Serve would catch it before the API and answer in its own form
            raise BusyError(f"needs a free place, found every coordinator full ({error})") from error
        except DeploymentUnavailableError as error:
            raise GenerationFailedError(f"the coordinators could not be deployed ({error})") from error

    async def ready(self) -> Ready:
        """Ask a coordinator; if none answers in 5 s, count as ready if the fleet has a report of a ready verifier.

        Coordinators at their limit of calls take no question, but still send heartbeats.
        """
        try:
            answer: Ready = await within(_READY_DEADLINE_S, self._coordinator.ready.remote())
        except (TimeoutError, RayError, RayServeException) as error:
            reason = f"no coordinator answers: {type(error).__name__}"
            if await self._others_ready():
                reason = f"all coordinators are busy: {type(error).__name__}"
                return {"ready": True, "verifier": "answers", "reason": reason}
            return {"ready": False, "reason": reason}
        return answer

    async def _others_ready(self, coordinator: str = "") -> bool:
        """Return whether the fleet knows a coordinator other than ``coordinator`` whose verifier is ready."""
        try:
            status = await self._fleet_status()
        except FleetUnavailableError:
            return False
        return any(report.verifier == "ready" for report in status.coordinators if report.id != coordinator)

    def _should_migrate(self, coordinator: str) -> bool:
        return draining.should_migrate(coordinator, self.settings.drain_s)

    async def status(self) -> Status:
        """Return the fleet's status, which has every coordinator's last report."""
        fleet = asdict(await self._fleet_status())
        return {
            "model": self.settings.model.public_name,
            "drafters": fleet["drafters"],
            "coordinators": fleet["coordinators"],
            "gateways": fleet["gateways"],
        }

    async def _fleet_status(self) -> FleetStatus:
        try:
            fleet = await self._fleet.handle()
            status: FleetStatus = await within(_READY_DEADLINE_S, fleet.status.remote())
        except ActorDiedError as error:
            self._fleet.lost()
            raise FleetUnavailableError("the fleet was removed") from error
        except (TimeoutError, RayError, ValueError) as error:
            raise FleetUnavailableError(f"the fleet does not answer: {type(error).__name__}") from error
        return status

    def connection_limits(self) -> ConnectionLimits:
        """Return the limits under the present settings; the listener asks each time, so that they are reloadable."""
        shared = (*LOOPBACK, *self.settings.http.trusted_proxies)
        return ConnectionLimits(self.settings.reader_deadline_s, shared)

    def connection_cut(self, reason: str) -> None:
        self._sink.record(metrics.CONNECTIONS_CUT, reason=reason)

    @property
    def load(self) -> int:
        return self._meter.running

    def first_token_phase(self, phase: str, seconds: float) -> None:
        self._sink.record(metrics.FIRST_TOKEN_PHASE_S, seconds, phase=phase)

    def used(self, key: str, *, prompt_tokens: int, generation_tokens: int) -> None:
        self._meter.used(key, prompt_tokens=prompt_tokens, generation_tokens=generation_tokens)

    async def metrics(self) -> bytes:
        """Return this replica's own metrics as a page for Prometheus, and its load under vLLM's names."""
        meter, name = self._meter, self.limits.model_name
        kv_usage, waiting = await self._kv_usage.get(), meter.waiting
        as_vllm = engine_page(name, waiting=waiting, running=meter.running - waiting, kv_usage=kv_usage)
        return self.own_metrics() + as_vllm

    def own_metrics(self) -> bytes:
        return page_of(self._registry, self._replica)

    async def _look_at_kv(self) -> float | None:
        """Return how full the fullest verifier is; None if the fleet does not answer at once."""
        try:
            status = await within(_KV_DEADLINE_S, self._fleet_status())
        except (FleetUnavailableError, TimeoutError):
            return None
        return fullest(report.kv for report in status.coordinators)


@serve.ingress()
class Ingress:
    """The Serve deployment class; ``serve_app.app`` sets its options."""

    async def __init__(  # type: ignore[misc]  # Serve awaits the constructor
        self,
        coordinator: DeploymentHandle[Any],
        settings: ServiceSettings,
        built: Config,
        address: Address | None = None,
    ) -> None:
        """Load the target's tokenizer, and ask a coordinator for the limits of its verifier.

        ``settings`` come from the configuration ``built``, whose reloadable settings ``reconfigure`` replaces. With an
        ``address`` the replica also listens there itself, beside Serve's proxies.

        Raises:
            ModelUnavailableError: there is no such target.
            ConfigError: API keys cannot be read, or requests are to be traced and OpenTelemetry is not installed.
            TimeoutError: no coordinator came up in time.
            OSError: the address is in use.
        """
        write_events()
        listen_where_the_node_does()
        tokenizer, tokens_hash, defaults = await asyncio.to_thread(load_target, settings)
        self._verifier = await within(settings.start_deadline_s, _card(coordinator, tokens_hash))
        limits = limits_of_model(settings, tokenizer, defaults, self._verifier)
        gate = None
        if settings.open_to_all:
            event(log, "open_to_all", logging.WARNING, mend="set auth.keys_file, or http.host: 127.0.0.1")
        if settings.auth is not None:
            gate = await asyncio.to_thread(KeyGate, settings.auth, partial(quotas_handle, settings.namespace))
            await gate.start()
        self._gate = gate
        replica = serve.get_replica_context().replica_id.unique_id
        self._spans = span_sink(settings.tracing, f"ingress {replica}")
        self._traces = None
        if self._spans is not None:
            ratio = settings.tracing.sample_ratio
            self._traces = RequestTraces(self._spans.emit, ratio, random.getrandbits, time.time)
        self._service = CoordinatorService(coordinator, settings, limits, tokenizer, gate, replica, traces=self._traces)
        await asyncio.to_thread(self._service.grammars.start)
        self._light = ReloadableSettings(built, self._service.settings_refused)
        self._listening = None
        if address is not None:
            connections = HttpConnections(self._service.connection_limits, self._service.connection_cut)
            self._listening = listen(self._api(), address, connections=connections)
        started()

    async def reconfigure(self, user_config: ReloadableFields) -> None:
        """Take in reloadable settings. Serve calls this after the constructor and when they have changed."""
        await self._light.take(user_config, self._take)

    async def _take(self, config: Config) -> None:
        service, settings = self._service, self._service.settings.with_reloadable(config)
        defaults = service.limits.defaults
        if settings.model != service.settings.model:
            defaults = await asyncio.to_thread(sampling_defaults, settings)
        limits = await asyncio.to_thread(limits_of_model, settings, service.tokenizer, defaults, self._verifier)
        if self._gate is not None and settings.auth is not None:
            await self._gate.take(settings.auth)
        service.take(settings, limits)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the number of responses under way. Serve calls this for ``serve_app.scaling`` where it scales."""
        return {STREAMS: float(self._service.load)}

    async def check_health(self) -> None:
        """Serve's health probe: raise if the own listener has ended, so that Serve replaces the replica."""
        self._light.say_again()
        if self._gate is not None:
            self._service.keys_read(self._gate.in_use)
        if self._listening is not None:
            self._listening.check()

    async def __del__(self) -> None:
        """Wait for the listener's requests, then free what the constructor made. Serve calls this at shutdown.

        Serve has waited for requests of its proxies only, and does not know those of the listener. It kills a replica
        whose shutdown takes longer than ``graceful_shutdown_timeout_s`` in all.
        """
        # The constructor may have failed before it set any of these.
        if (listening := getattr(self, "_listening", None)) is not None:
            await listening.close()
        if (service := getattr(self, "_service", None)) is not None:
            await asyncio.to_thread(service.grammars.close)
        await close(getattr(self, "_spans", None))

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return the ASGI app. Serve calls this after the constructor; its HTTP server adds ``X-Request-Id`` itself."""
        return self._api(returns_request_id=False)

    def _api(self, *, returns_request_id: bool = True) -> FastAPI:
        api = make_api(self._service, returns_request_id=returns_request_id, traces=self._traces)
        return with_page(api, self._service)


def _chunk_deadline_s(settings: ServiceSettings) -> float:
    return min(settings.first_chunk_deadline_s, settings.next_chunk_deadline_s)


async def _card(coordinator: DeploymentHandle[Any], tokens_hash: str) -> ModelCard:
    """Return the card of a verifier with this token map; during an update those of another target still serve."""
    handle = coordinator.options(_by_reference=False)
    while True:
        card: ModelCard = await handle.card.remote()
        if card.token_map_hash == tokens_hash:
            return card
        event(log, "other_target", needed=tokens_hash, found=card.token_map_hash)
        await asyncio.sleep(_CARD_PAUSE_S)
