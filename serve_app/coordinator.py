"""The coordinator: one Serve replica per verifier. Owns that verifier, its generations, batcher and round loops."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict

from outrider.config import Config
from outrider.errors import BusyError
from outrider.generation import Generation
from outrider.models.registry import load_tokenizer
from outrider.scheduling.cost_model import DEFAULT_COST_MODEL
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits, SchedulingPolicy
from outrider.text import IncrementalText
from outrider.types import GenerationChunk, GenerationRequest
from serve_app.batcher import Batcher
from serve_app.drafter_link import DrafterLink, LinkSettings
from serve_app.ray_ports import RayFleet, VerifierPort
from serve_app.round_loop import RoundLoop, RoundServices, acceptance_rule
from serve_app.round_timing import RoundTiming

_POLICIES: dict[str, type[SchedulingPolicy]] = {"fcfs": Fcfs}
_KEPT_TIMINGS = 20_000
_LEASE_RETRY_S = 1.0

log = logging.getLogger(__name__)


class Coordinator:
    """Serve deployment class; ``serve_app.app`` sets its options."""

    async def __init__(self, config: Config) -> None:  # type: ignore[misc]  # Serve awaits the constructor
        """Create the verifier and wait until it has loaded its model; drafters come up meanwhile."""
        self._config = config
        self._fleet = RayFleet(config)
        self._verifier = VerifierPort(config)
        self._tokenizer = await asyncio.to_thread(load_tokenizer, config.model.target)
        self._fleet.start()
        self._card = card = await self._verifier.card()
        log.info("verifier %s is ready: %d positions", card.name, card.max_context_tokens)
        verifiers, limits = config.verifiers, config.limits
        batch_limits = BatchLimits(
            max_blocks=verifiers.max_batch_blocks,
            max_new_tokens=verifiers.max_batch_tokens,
            prefill_chunk_tokens=verifiers.prefill_chunk_tokens,
        )
        policy = _POLICIES[config.scheduling.policy]()
        self._services = RoundServices(
            batcher=Batcher(self._verifier.verify, policy, batch_limits, DEFAULT_COST_MODEL),
            await_verifier=self._await_verifier,
            configured_window=config.speculation.window if config.drafter_count else 0,
            timings=deque(maxlen=_KEPT_TIMINGS),
        )
        self._link_settings = LinkSettings(
            draft_deadline_s=limits.drafter_deadline_s,
            prefill_deadline_s=limits.drafter_open_deadline_s,
            retry_s=_LEASE_RETRY_S,
            vocab_size=card.vocab_size,
            token_map_hash=card.token_map_hash,
        )
        self._slots = asyncio.Semaphore(limits.max_concurrent_generations)
        self._admitted = 0
        self._closing: set[asyncio.Task[None]] = set()

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
                async for chunk in chunks:
                    yield chunk
        finally:
            self._admitted -= 1

    async def ready(self) -> dict[str, object]:
        """Whether this replica can serve, and what it serves with."""
        alive = await self._verifier.alive()
        batcher = self._services.batcher
        return {
            "ready": alive,
            "verifier": "answers" if alive else "does not answer",
            "max_context_tokens": self._card.max_context_tokens,
            "generations": self._admitted,
            "queued_blocks": batcher.queued_blocks,
            "kv": None if batcher.kv_usage is None else asdict(batcher.kv_usage),
            "verifier_idle_s": batcher.verifier_idle_s,
        }

    async def recent_timings(self) -> list[RoundTiming]:
        """The last rounds' timings, oldest first; they are forgotten by this."""
        timings = list(self._services.timings)
        self._services.timings.clear()
        return timings

    async def check_health(self) -> None:
        """Serve's probe: fails when the verifier is gone for good, so that the replica is replaced.

        One that restarts, however long it loads its model, is no reason: its generations wait for it.
        """
        await self._verifier.check_not_gone()

    def _round_loop(self, request: GenerationRequest) -> RoundLoop:
        generation = Generation(
            request, eos_token_ids=self._card.eos_token_ids, max_context_tokens=self._card.max_context_tokens
        )
        link = DrafterLink(generation, self._fleet, self._link_settings, acceptance_rule(generation))
        text = IncrementalText(self._tokenizer, request.stop, request.output_ids)
        return RoundLoop(generation, link, text, self._services)

    async def _await_verifier(self) -> None:
        await self._verifier.card()
