"""All responses that are being made at one coordinator: admission, and what their round loops work with.

Knows neither Serve nor how verifier and fleet are reached: the coordinator hands them in.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import lru_cache, partial
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from actors.messages import ModelCard, VerifyCall, VerifyReply
from outrider.config.schema import Config, VerifierConfig
from outrider.contracts.errors import BusyError
from outrider.contracts.requests import GenerationChunk, GenerationRequest
from outrider.costs.profiles import CostProfile
from outrider.rounds.generation import Generation
from outrider.rounds.load import PresentLoad
from outrider.rounds.timing import RoundTiming
from outrider.scheduling.attribution import SpikeDetector
from outrider.scheduling.policy import BatchLimits
from outrider.scheduling.registry import SCHEDULING, Scheduling
from outrider.selection.registry import SELECTION
from outrider.text.shown import IncrementalText
from outrider.text.stops import tokens_that_stop
from serve_app.coordination.batcher import Batcher
from serve_app.coordination.cost_estimator import cost_estimator
from serve_app.coordination.drafter_book import DrafterBook
from serve_app.coordination.drafter_link import DrafterLink, FleetPort, LinkSettings
from serve_app.coordination.round_loop import RoundLoop, RoundServices
from serve_app.coordination.speculation import Speculation
from serve_app.coordination.statistics import BatchRecord, CoordinatorStats
from serve_app.metrics import Sink

_KEPT_TIMINGS = 20_000
_KEPT_STOPS = 64
_LEASE_RETRY_S = 1.0


class VerifierCalls(Protocol):
    """A coordinator's verifier; calls have their own deadlines."""

    async def verify(self, call: VerifyCall) -> VerifyReply:
        """Make one call.

        Raises:
            VerifierLostError: it died or hung.
        """
        ...


class Generations:
    """The responses of one verifier. All methods run on one event loop."""

    def __init__(
        self,
        config: Config,
        card: ModelCard,
        tokenizer: PreTrainedTokenizerBase,
        texts: Sequence[str],
        verifier: VerifierCalls,
        await_verifier: Callable[[], Coroutine[Any, Any, None]],
        fleet: FleetPort,
        stats: CoordinatorStats,
        sink: Sink,
        scheduling: Scheduling | None = None,
        profiles: Sequence[CostProfile] = (),
    ) -> None:
        """Begin with none.

        Args:
            config: whole.
            card: the target's.
            tokenizer: the target's.
            texts: ``[vocab]``, of each token alone (``token_texts``).
            verifier: makes calls.
            await_verifier: returns once a lost verifier answers again; raises if it is gone.
            fleet: leases drafters.
            stats: told of rounds and batches.
            sink: of metrics.
            scheduling: plans the batches; None: as configured.
            profiles: of verification times, of which the first that fits the target's machine is used.
        """
        self._limits = config.limits
        self._card = card
        self._tokenizer = tokenizer
        # A look at the whole vocabulary, on the loop that makes all rounds: once for each set of stop strings.
        self._stop_ids = lru_cache(_KEPT_STOPS)(partial(tokens_that_stop, texts))
        self._fleet = fleet
        self._stats = stats
        self._slots = asyncio.Semaphore(config.limits.max_concurrent_generations)
        self._timings: deque[RoundTiming] = deque(maxlen=_KEPT_TIMINGS)
        self._load = PresentLoad()
        self.book = DrafterBook({group.name: group.model for group in config.drafters})
        self.admitted = 0
        self.running = 0
        speculation = Speculation.from_config(config, card.vocab_size)
        scheduling = scheduling or SCHEDULING[config.scheduling.policy]
        self.batcher = Batcher(
            verifier.verify,
            scheduling.policy,
            _batch_limits(config.verifiers),
            cost_estimator(profiles, card.machine),
            self._note_batch,
            config.verifiers.block_tokens,
        )
        self._services = RoundServices(
            batcher=self.batcher,
            await_verifier=await_verifier,
            speculation=speculation,
            policy=SELECTION[config.speculation.policy].policy,
            deadline_rule=scheduling.deadlines,
            spikes=SpikeDetector(),
            load=self._load,
            correction_deadline_s=config.limits.drafter_open_deadline_s,
            observe=self._note_round,
            sink=sink,
        )
        self._link_settings = LinkSettings(
            draft_deadline_s=config.limits.drafter_deadline_s,
            prefill_deadline_s=config.limits.drafter_open_deadline_s,
            retry_s=_LEASE_RETRY_S,
            wire=speculation.wire,
        )

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Make one response, chunk by chunk as rounds are committed. Closing it cancels the response.

        Raises:
            BusyError: as many generations are active and queued as the limits allow.
            ContextTooLongError: the prompt does not fit.
            GenerationFailedError: the verifier was lost for good.
        """
        most = self._limits.max_concurrent_generations + self._limits.max_queued_generations
        if self.admitted >= most:
            raise BusyError(f"needs a free place, found {most} generations active or queued; try again later")
        self.admitted += 1
        try:
            loop = self._round_loop(request)  # now: waiting for a slot counts against a resumed response's promise
            async with self._slots, aclosing(loop.run()) as chunks:
                self.running += 1
                try:
                    async for chunk in chunks:
                        yield chunk
                finally:
                    self.running -= 1
        finally:
            self.admitted -= 1

    def take_timings(self) -> list[RoundTiming]:
        """The last rounds' timings, oldest first; they are forgotten by this."""
        timings = list(self._timings)
        self._timings.clear()
        return timings

    def _round_loop(self, request: GenerationRequest) -> RoundLoop:
        generation = Generation(
            request, eos_token_ids=self._card.eos_token_ids, max_context_tokens=self._card.max_context_tokens
        )
        stop_ids = () if request.min_tokens else self._stop_ids(request.stop)
        link = DrafterLink(generation, self._fleet, self._link_settings, self.book, stop_ids)
        text = IncrementalText(self._tokenizer, request.stop, request.output_ids, request.min_tokens)
        return RoundLoop(generation, link, text, self._services)

    def _note_round(self, timing: RoundTiming) -> None:
        self._timings.append(timing)
        self._stats.round(timing)
        self._load.round(timing)

    def _note_batch(self, record: BatchRecord) -> None:
        self._stats.batch(record)
        self._load.batch(record.blocks)


def _batch_limits(verifiers: VerifierConfig) -> BatchLimits:
    return BatchLimits(
        max_blocks=verifiers.max_batch_blocks,
        max_new_tokens=verifiers.max_batch_tokens,
        prefill_chunk_tokens=verifiers.prefill_chunk_tokens,
    )
