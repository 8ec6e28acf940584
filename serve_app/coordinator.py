"""The coordinator: one Serve replica per verifier. Owns that verifier, its generations, batcher and round loops."""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from functools import lru_cache, partial

from actors.messages import FleetSettings
from outrider.config import Config
from outrider.errors import BusyError
from outrider.events import event, write_events
from outrider.generation import Generation
from outrider.models.registry import load_tokenizer
from outrider.models.token_map import token_map
from outrider.scheduling.cost_model import DEFAULT_COST_MODEL
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits, SchedulingPolicy
from outrider.selection.cheapest import Cheapest
from outrider.selection.fixed import Fixed
from outrider.selection.situation import SelectionPolicy
from outrider.text import IncrementalText, tokens_that_stop
from outrider.types import GenerationChunk, GenerationRequest
from serve_app.batcher import Batcher
from serve_app.coordinator_stats import BatchRecord, CoordinatorStats
from serve_app.drafter_book import DrafterBook
from serve_app.drafter_link import DrafterLink, LinkSettings
from serve_app.metrics import RaySink
from serve_app.openai_tokens import token_texts
from serve_app.present_load import PresentLoad
from serve_app.ray_ports import RayFleet, VerifierPort
from serve_app.round_loop import RoundLoop, RoundServices
from serve_app.round_timing import RoundTiming
from serve_app.speculation import Speculation

_POLICIES: dict[str, type[SchedulingPolicy]] = {"fcfs": Fcfs}
_SELECTION: dict[str, type[SelectionPolicy]] = {"cheapest": Cheapest, "fixed": Fixed}
_KEPT_TIMINGS = 20_000
_KEPT_STOPS = 64
_LEASE_RETRY_S = 1.0
_BEAT_S = 1.0

log = logging.getLogger(__name__)


class Coordinator:
    """Serve deployment class; ``serve_app.app`` sets its options."""

    async def __init__(self, config: Config) -> None:  # type: ignore[misc]  # Serve awaits the constructor
        """Create the verifier and wait until it has loaded its model; drafters come up meanwhile."""
        write_events()
        self._config = config
        self._id = uuid.uuid4().hex[:12]
        self._verifier = VerifierPort(config)
        self._tokenizer = await asyncio.to_thread(load_tokenizer, config.model.target)
        settings = FleetSettings(
            config.drafters, config.model.target, token_map(self._tokenizer).sha256(), since_s=time.time()
        )
        self._fleet = RayFleet(self._id, settings, config.cluster.namespace)
        self._sink = RaySink()
        self._stats = CoordinatorStats(self._id, self._sink, time.monotonic)
        self._timings: deque[RoundTiming] = deque(maxlen=_KEPT_TIMINGS)
        self._slots = asyncio.Semaphore(config.limits.max_concurrent_generations)
        self._admitted = 0
        self._running = 0
        self._closing: set[asyncio.Task[None]] = set()
        self._verifier_answers = False
        self._load = PresentLoad()
        self._book = DrafterBook({group.name: group.model for group in config.drafters})
        self._batcher = self._make_batcher()
        self._beating = asyncio.create_task(self._beat_for_ever())
        self._card = card = await self._verifier.card()
        self._verifier_answers = True
        texts = await asyncio.to_thread(token_texts, self._tokenizer.backend_tokenizer, card.vocab_size)
        # A look at the whole vocabulary, on the loop that makes all rounds: once for each set of stop strings.
        self._stop_ids = lru_cache(_KEPT_STOPS)(partial(tokens_that_stop, texts))
        speculation = Speculation.from_config(config, card.vocab_size)
        self._services = RoundServices(
            batcher=self._batcher,
            await_verifier=self._await_verifier,
            speculation=speculation,
            policy=_SELECTION[config.speculation.policy](),
            load=self._load,
            correction_deadline_s=config.limits.drafter_open_deadline_s,
            observe=self._note_round,
            sink=self._sink,
        )
        self._link_settings = LinkSettings(
            draft_deadline_s=config.limits.drafter_deadline_s,
            prefill_deadline_s=config.limits.drafter_open_deadline_s,
            retry_s=_LEASE_RETRY_S,
            wire=speculation.wire,
        )
        event(log, "coordinator_ready", coordinator=self._id, model=card.name, positions=card.max_context_tokens)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Make one response, chunk by chunk as rounds are committed.

        Raises:
            BusyError: as many generations are active and queued as the limits allow.
            ContextTooLongError: the prompt does not fit.
            GenerationFailedError: the verifier was lost for good.
        """
        chunks = self._admitted_chunks(request)
        stream = asyncio.current_task()
        assert stream is not None
        # A stream cancelled between two chunks is dropped without being closed, but its task ends.
        stream.add_done_callback(lambda _: self._close_soon(chunks))
        async for chunk in chunks:
            yield chunk

    def _close_soon(self, chunks: AsyncGenerator[GenerationChunk, None]) -> None:
        closing = asyncio.get_running_loop().create_task(chunks.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _admitted_chunks(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        limits = self._config.limits
        most = limits.max_concurrent_generations + limits.max_queued_generations
        if self._admitted >= most:
            raise BusyError(f"needs a free place, found {most} generations active or queued; try again later")
        self._admitted += 1
        try:
            async with self._slots, aclosing(self._round_loop(request).run()) as chunks:
                self._running += 1
                try:
                    async for chunk in chunks:
                        yield chunk
                finally:
                    self._running -= 1
        finally:
            self._admitted -= 1

    async def ready(self) -> dict[str, object]:
        """Whether this replica can serve, and what it serves with."""
        alive = await self._verifier.alive()
        usage = self._stats.usage
        return {
            "ready": alive,
            "verifier": "answers" if alive else "does not answer",
            "max_context_tokens": self._card.max_context_tokens,
            "generations": self._admitted,
            "queued_blocks": self._batcher.queued_blocks,
            "kv": None if usage is None else asdict(usage),
            "verifier_idle_s": self._stats.idle_s,
        }

    async def recent_timings(self) -> list[RoundTiming]:
        """The last rounds' timings, oldest first; they are forgotten by this."""
        timings = list(self._timings)
        self._timings.clear()
        return timings

    async def check_health(self) -> None:
        """Serve's probe: fails when the verifier is gone for good, so that the replica is replaced.

        One that restarts, however long it loads its model, is no reason: its generations wait for it.
        """
        await self._verifier.check_not_gone()

    def _make_batcher(self) -> Batcher:
        verifiers = self._config.verifiers
        limits = BatchLimits(
            max_blocks=verifiers.max_batch_blocks,
            max_new_tokens=verifiers.max_batch_tokens,
            prefill_chunk_tokens=verifiers.prefill_chunk_tokens,
        )
        policy = _POLICIES[self._config.scheduling.policy]()
        return Batcher(self._verifier.verify, policy, limits, DEFAULT_COST_MODEL, self._note_batch)

    def _round_loop(self, request: GenerationRequest) -> RoundLoop:
        generation = Generation(
            request, eos_token_ids=self._card.eos_token_ids, max_context_tokens=self._card.max_context_tokens
        )
        stop_ids = () if request.min_tokens else self._stop_ids(request.stop)
        link = DrafterLink(generation, self._fleet, self._link_settings, self._book, stop_ids)
        text = IncrementalText(self._tokenizer, request.stop, request.output_ids, request.min_tokens)
        return RoundLoop(generation, link, text, self._services)

    def _note_round(self, timing: RoundTiming) -> None:
        self._timings.append(timing)
        self._stats.round(timing)
        self._load.round(timing)

    def _note_batch(self, record: BatchRecord) -> None:
        self._stats.batch(record)
        self._load.batch(record.blocks)

    async def _await_verifier(self) -> None:
        self._verifier_answers = False
        await self._verifier.card()
        self._verifier_answers = True

    async def _beat_for_ever(self) -> None:
        """Tell the fleet what is held here, and set the gauges."""
        while True:
            report = self._stats.report(
                verifier="ready" if self._verifier_answers else "restarting",
                admitted=self._admitted,
                running=self._running,
                queued_blocks=self._batcher.queued_blocks,
                idle=self._batcher.idle,
            )
            try:
                status = await self._fleet.beat(report)
                if status is not None:
                    self._stats.fleet(status)
                self._stats.links(self._book.links(time.monotonic()))
            except Exception:  # a beat that fails must not be the last
                log.exception("beat_failed")
            await asyncio.sleep(_BEAT_S)
