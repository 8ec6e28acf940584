"""Serve deployment class of the coordinator: owns a verifier and its generations, and reports both to the fleet."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import asdict

from ray import serve

from actors.messages import FleetSettings, ModelCard
from actors.ray_internals.serve import listen_where_the_node_does
from actors.start import started
from outrider.config.reloadable import ReloadableFields
from outrider.config.schema import Config
from outrider.contracts.errors import GenerationFailedError
from outrider.contracts.requests import GenerationId, GenerationRequest
from outrider.events import event, write_events
from outrider.models.token_map import token_map
from outrider.models.tokenizer import load_tokenizer
from outrider.rounds.timing import RoundTiming
from outrider.scaling.demand import fullness_of_report, load_of_report
from outrider.text.tokens import token_texts
from serve_app.coordination.batching.scheduler_work import SchedulerWork
from serve_app.coordination.batching.step_watch import Doubt
from serve_app.coordination.generations.generations import Generations, ServiceParts, Target
from serve_app.coordination.generations.outlets import Message, Outlet, Outlets
from serve_app.coordination.learned_file import LearnedFile, key_of
from serve_app.coordination.listener import BY_RESPONSES, PLACES, TAKEN, TARGET, TOKEN_MAP, VERIFIER_UP, Listener
from serve_app.coordination.peers import Peers
from serve_app.coordination.ray_ports import RayFleet, VerifierPort
from serve_app.coordination.reporting.gauges import FaultCounter
from serve_app.coordination.reporting.statistics import NOTHING_YET, CoordinatorStats
from serve_app.coordination.reporting.tracing import ResponseTraces
from serve_app.coordination.settings import CoordinatorSettings
from serve_app.metrics import Sink, in_ray
from serve_app.reloadable_settings import ReloadableSettings
from serve_app.service_answers import Ready
from serve_app.spans import close, span_sink

_BEAT_S = 1.0
_UNASKED_S = 3.0  # Serve asks a replica for routing statistics every second, and one that it drains no more

log = logging.getLogger(__name__)


class Coordinator:
    """Serve deployment class; ``serve_app.app`` sets its options."""

    async def __init__(self, settings: CoordinatorSettings, built: Config) -> None:  # type: ignore[misc]  # Serve awaits it
        """Create the verifier and wait until it has loaded its model; heartbeats begin first, so drafters load, too.

        ``settings`` come from the configuration ``built``, whose reloadable settings ``reconfigure`` replaces.
        """
        write_events()
        listen_where_the_node_does()
        self._settings = settings
        began_s = time.monotonic()
        self._started_in_s = 0.0  # set once the verifier is up
        self._id = serve.get_replica_context().replica_id.unique_id
        self._verifier = VerifierPort(settings.verifier)
        self._generations: Generations | None = None  # until the verifier has loaded its model
        self._outlets = Outlets(time.monotonic)
        self._unasked: asyncio.TimerHandle | None = None  # runs out when neither Serve nor an ingress calls any more
        clock = time.monotonic
        tokenizer = await asyncio.to_thread(load_tokenizer, settings.target)
        drafting = settings.generations.drafting
        heads = {model: head.info for model, head in drafting.heads.items()}
        tokens_hash = token_map(tokenizer).sha256()
        wanted = FleetSettings(
            drafting.drafters, settings.target, tokens_hash, heads, settings.draft_models, settings.gateway
        )
        self._fleet = RayFleet(self._id, wanted, settings.namespace)
        self._peers = Peers(self._id, clock)
        self._faults = FaultCounter()
        self._stats = CoordinatorStats(self._id, Sink(in_ray, self._faults.exporter), clock)
        self._light = ReloadableSettings(built, self._stats.gauges.settings_refused)
        self._beating = asyncio.create_task(self._beat_for_ever())
        self._measuring = asyncio.create_task(self._measure_for_ever())
        self._card = card = await self._verifier.card()
        self._peers.target = card.target
        texts = await asyncio.to_thread(token_texts, tokenizer.backend_tokenizer, card.vocab_size)
        target = Target(card, tokenizer, texts)
        doubt = Doubt(settings.verifier.silence_s, self._peers.ready, self._verifier.is_silent)
        self._spans = span_sink(settings.tracing, f"coordinator {self._id}")
        traces = None
        if self._spans is not None:
            traces = ResponseTraces(self._spans.emit, random.getrandbits, clock, time.time)
        key = key_of(card, settings.verifier.spec, drafting, settings.draft_models)
        self._learned = LearnedFile(key, clock)
        around = ServiceParts(self._peers, doubt, traces, await self._learned.read())
        parts = self._verifier, self._fleet, self._stats, clock, around
        self._generations = Generations(settings.generations, target, *parts)
        self._started_in_s = time.monotonic() - began_s
        self._heard()
        started()
        event(log, "coordinator_ready", coordinator=self._id, model=card.name, positions=card.max_context_tokens)

    async def reconfigure(self, user_config: ReloadableFields) -> None:
        """Take in reloadable settings. Serve calls this after the constructor and when they have changed."""
        await self._light.take(user_config, self._take)

    async def _take(self, config: Config) -> None:
        self._ready_generations().take(self._settings.generations.with_reloadable(config))

    async def generate(
        self, request: GenerationRequest, ingress: str, lost: tuple[str, ...] = ()
    ) -> AsyncGenerator[str, None]:
        """Make one response: yield this replica's id at once, then nothing until the end. ``chunks`` yields the chunks.

        ``lost`` names coordinators that have just lost their verifiers. Routers avoid these, so a coordinator that is
        named and called all the same is the only one left.
        """
        yield self._id
        nobody_else = self._id in lost
        with self._outlets.of(ingress).response(request.generation) as (put, credit):
            await self._ready_generations().generate(request, put, credit, nobody_else=nobody_else)

    async def chunks(self, listener: Listener) -> AsyncGenerator[Message, None]:
        """Yield the chunks of all responses made here for one ingress, until a second after the last one has ended.

        Raises:
            GenerationFailedError: the call was meant for another replica, which is gone.
        """
        async with aclosing(self._outlet(listener).messages()) as messages:
            async for message in messages:
                yield message

    async def read(self, listener: Listener, tokens: Mapping[GenerationId, int]) -> None:
        """Restore credit: an ingress has read so many tokens of each response, from the start of its attempt on."""
        self._outlet(listener).read(tokens)
        self._heard()

    def _outlet(self, listener: Listener) -> Outlet:
        if listener.coordinator != self._id:
            raise GenerationFailedError(f"needs coordinator {listener.coordinator}, found {self._id}; it is gone")
        return self._outlets.of(listener.ingress)

    async def card(self) -> ModelCard:
        return self._card

    async def ready(self) -> Ready:
        """Probe the verifier (2 s at most) and return whether this replica can serve, with its load and KV."""
        alive = await self._verifier.alive()
        usage, generations = self._stats.usage, self._ready_generations()
        return {
            "ready": alive,
            "verifier": "answers" if alive else "does not answer",
            "max_context_tokens": self._card.max_context_tokens,
            "generations": generations.admissions.admitted,
            "queued_blocks": generations.batcher.queued_blocks,
            "kv": None if usage is None else asdict(usage),
            "verifier_idle_s": self._stats.idle_s,
        }

    async def held(self) -> dict[str, int]:
        """Return what replica and verifier hold for responses now; all are zero once no response is being made."""
        usage, generations = await self._verifier.usage(), self._ready_generations()
        return {
            "generations": generations.admissions.admitted,
            "queued_blocks": generations.batcher.queued_blocks,
            "leases": self._fleet.leases,
            "verifier_generations": usage.generations,
            "verifier_blocks": usage.used_blocks,
        }

    async def recent_timings(self) -> list[RoundTiming]:
        """Remove and return the last rounds' timings, oldest first."""
        return self._ready_generations().take_timings()

    async def scheduler_work(self) -> SchedulerWork:
        """Return how often the scheduler was woken so far, and the seconds that it took."""
        return self._ready_generations().batcher.work

    async def check_health(self) -> None:
        """Serve's health probe: raise if the verifier is gone for good, so that Serve replaces the replica.

        A verifier that restarts passes, however long it loads its model: its generations wait for it.
        """
        await self._verifier.check_not_gone()

    async def record_routing_stats(self) -> dict[str, bool | str | float]:
        """Return this replica's figures for the request routers. Serve calls this every second.

        Serve does not call a draining replica, and routers do not reach it: no ingress can report what was read there.
        """
        self._heard()
        card, generations = self._card, self._ready_generations()
        fullness = fullness_of_report(generations.admissions.report())
        return {
            VERIFIER_UP: self._verifier.is_up,
            TARGET: card.target,
            TOKEN_MAP: card.token_map_hash,
            PLACES: generations.admissions.places,
            TAKEN: fullness.share,
            BY_RESPONSES: fullness.responses,
        }

    async def __del__(self) -> None:
        """Send the last spans. Serve calls this once the replica's responses have ended."""
        await close(getattr(self, "_spans", None))  # the constructor may have failed before it set this

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the load that admission has promised. Serve calls this for ``serve_app.scaling`` where it scales."""
        return load_of_report(self._ready_generations().admissions.report(), self._started_in_s).figures()

    def _heard(self) -> None:
        """Restart the timer after which responses stop waiting for credit, as no ingress can restore it any more."""
        if self._unasked is not None:
            self._unasked.cancel()
        self._outlets.unheard(False)
        self._unasked = asyncio.get_running_loop().call_later(_UNASKED_S, self._outlets.unheard, True)

    def _ready_generations(self) -> Generations:
        assert self._generations is not None, "Serve calls a replica only once its constructor has returned"
        return self._generations

    async def _beat_for_ever(self) -> None:
        """Send heartbeats at the interval that the fleet asks for, and set the gauges."""
        beat_s, gauges = _BEAT_S, self._stats.gauges
        while True:
            self._light.say_again()
            try:
                generations = self._generations
                now = NOTHING_YET if generations is None else generations.now()
                verifier = "ready" if self._verifier.is_up else "restarting"
                report = self._stats.report(verifier, now, self._peers.target, self._faults.counts)
                news = await self._fleet.beat(report)
                if news is not None:
                    self._peers.heard(news.changed, news.gone, anew=news.anew)
                    beat_s = news.beat_s
                if generations is not None:
                    gauges.record_links(now.links)
                    gauges.record_devices(now.worst)
                    gauges.record_drifts(generations.book.drifts)
                    gauges.record_exchanges(generations.book.take_exchanges())
            except Exception:  # without further heartbeats the fleet would end all leases
                log.exception("beat_failed")
            await asyncio.sleep(beat_s)

    async def _measure_for_ever(self) -> None:
        """Count the bits on the wire to drafters, in threads: their addresses come from the head, which may hang.

        And keep what the speculation tuner has learned.
        """
        while True:
            try:
                self._stats.gauges.record_wire(await asyncio.to_thread(self._fleet.wire.look))
                await asyncio.to_thread(self._fleet.wire.place)
                if self._generations is not None:
                    await self._learned.keep(self._generations.tuner.learned)
            except Exception:  # the next second's measurement may succeed
                log.exception("measuring_failed")
            await asyncio.sleep(_BEAT_S)
