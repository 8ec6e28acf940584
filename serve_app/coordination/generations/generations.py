"""Makes all responses of one coordinator: admits each, builds its round loop, and records rounds and steps.

The module does not know Serve, nor how verifier and fleet are reached: the coordinator passes them in.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import inf
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from actors.messages import ModelCard
from outrider.admission.response_load import VerifierNow
from outrider.admission.rounds import MeasuredRounds
from outrider.contracts.cost import DEFAULT_COST_MODEL
from outrider.contracts.errors import OtherTargetError
from outrider.contracts.requests import GenerationChunk, GenerationRequest
from outrider.contracts.verifying import KvUsage
from outrider.costs.estimator import OnlineEstimator
from outrider.costs.prior import PROFILED_MACHINE
from outrider.costs.profiles import CostProfile, ProfiledOn, matches
from outrider.events import event
from outrider.lookup.store import EarlierTexts
from outrider.lookup.text import LookupHistory
from outrider.rounds.generation import Generation
from outrider.rounds.machine import RoundMachine
from outrider.rounds.present_load import PresentLoad
from outrider.rounds.rules import DRAFTER_OPEN_DEADLINE_S, MUST_USE_DRAFT_DEADLINE_S, RoundRules
from outrider.rounds.timing import RoundTiming
from outrider.scheduling.attribution import SpikeDetector
from outrider.selection.tuning.learned import LearnedChoice
from outrider.selection.tuning.speculation_tuner import SpeculationTuner
from outrider.text.shown import text_of
from outrider.text.stops import stop_automaton, tokens_that_stop
from outrider.tracing.responses import ResponseTrace
from serve_app.coordination.batching.batcher import Batcher, SteppedVerifier
from serve_app.coordination.batching.step_watch import Doubt
from serve_app.coordination.credit import Credit
from serve_app.coordination.drafting.drafter_book import DrafterBook
from serve_app.coordination.drafting.drafter_link import DrafterLink
from serve_app.coordination.drafting.link_services import FleetPort, LinkServices, LinkSettings
from serve_app.coordination.generations.admission_queue import AdmissionQueue
from serve_app.coordination.generations.round_loop import RoundLoop, RoundServices
from serve_app.coordination.peers import FailoverTargets, Peers, Waited
from serve_app.coordination.reporting.statistics import BatchRecord, CoordinatorStats, GenerationsNow
from serve_app.coordination.reporting.tracing import ResponseTraces
from serve_app.coordination.settings import GenerationsSettings

_KEPT_TIMINGS = 20_000
_KEPT_STOPS = 64
_LEASE_RETRY_S = 1.0

log = logging.getLogger(__name__)


class VerifierAccess(SteppedVerifier, Waited, Protocol):
    pass


@dataclass(frozen=True, slots=True)
class Target:
    """The model that is served. ``texts[i]`` is the text of token ``i`` alone (``token_texts``), for the vocabulary."""

    card: ModelCard
    tokenizer: PreTrainedTokenizerBase
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """What a coordinator has in a service, and alone has not."""

    peers: Peers | None = None  # None: responses wait for a lost verifier and never fail over
    doubt: Doubt | None = None  # when a silent verifier is probed; None: never
    traces: ResponseTraces | None = None  # None: no response is traced
    learned: LearnedChoice = field(default_factory=LearnedChoice)  # by the speculation tuner, before this start


class Generations:
    """The responses of one verifier. All methods run on one event loop, ``_read_stops`` excepted."""

    def __init__(
        self,
        settings: GenerationsSettings,
        target: Target,
        verifier: VerifierAccess,
        fleet: FleetPort,
        stats: CoordinatorStats,
        clock: Callable[[], float],
        around: ServiceParts = ServiceParts(),
    ) -> None:
        """Start without responses; ``stats`` record rounds and batches, ``clock`` is monotonic, in seconds."""
        self._traces = around.traces
        self._failover = FailoverTargets(verifier, around.peers)
        self._fleet, self._target = fleet, target
        # It tests the whole vocabulary, so it runs in a thread, once for each set of stop strings.
        self._stop_ids = lru_cache(_KEPT_STOPS)(partial(tokens_that_stop, target.texts))
        self._stats = stats
        self._clock = clock
        self._timings: deque[RoundTiming] = deque(maxlen=_KEPT_TIMINGS)
        self._load = PresentLoad()
        drafting = settings.drafting
        self.book = DrafterBook(drafting.drafters, drafting.heads)
        self._usage: KvUsage | None = None  # of the verifier's memory after its last step
        self._measured = MeasuredRounds()
        estimator = cost_estimator(settings.profiles, target.card.machine)
        self.batcher = Batcher(
            verifier, settings.planning, estimator, self._note_batch, clock, around.doubt, around.traces
        )
        self._modes, self.tuner = drafting.modes, SpeculationTuner(drafting.modes, clock(), around.learned)
        self._services = RoundServices(
            self.batcher,
            verifier.wait_until_up,
            self._load,
            self.tuner,
            self._note_round,
            stats.sink,
            clock,
            self._measured,
        )
        self.admissions = AdmissionQueue(settings.admission, self._verifier_now, stats.sink, clock)
        self._spikes = SpikeDetector()
        self._experience = LookupHistory(earlier=EarlierTexts(drafting.speculation.lookup_store_tokens))
        self._rules, self._links = self._made_with(settings)

    def take(self, settings: GenerationsSettings) -> None:
        """Replace the reloadable settings for new responses; those under way keep theirs.

        Other speculation modes need a new tuner; responses under way keep the old one.
        """
        self._rules, self._links = self._made_with(settings)
        if (modes := settings.drafting.modes) != self._modes:
            self._modes, self.tuner = modes, SpeculationTuner(modes, self._clock(), self.tuner.learned())
            self._services = replace(self._services, tuner=self.tuner)
        self.admissions.take(settings.admission)

    def _made_with(self, settings: GenerationsSettings) -> tuple[RoundRules, LinkServices]:
        drafting = settings.drafting
        choices = drafting.choices(self._target.card.vocab_size)
        rules = RoundRules(
            speculation=choices,
            policy=drafting.policy,
            deadline_rule=settings.scheduling.chosen.deadlines,
            spikes=self._spikes,
            first_token_s=settings.scheduling.first_token_s,
            correction_deadline_s=DRAFTER_OPEN_DEADLINE_S,
            grant=settings.grant,
            experience=self._experience,
            kv_is_short=self.batcher.kv_is_short,
        )
        link_settings = LinkSettings(
            draft_deadline_s=settings.limits.drafter_deadline_s,
            must_use_deadline_s=MUST_USE_DRAFT_DEADLINE_S,
            prefill_deadline_s=DRAFTER_OPEN_DEADLINE_S,
            retry_s=_LEASE_RETRY_S,
            wire=choices.wire,
        )
        return rules, LinkServices(self._fleet, self.book, link_settings, self._clock)

    async def generate(
        self,
        request: GenerationRequest,
        put: Callable[[GenerationChunk], None],
        credit: Credit | None = None,
        *,
        nobody_else: bool = False,
    ) -> None:
        """Make one response; call ``put`` with its chunks as rounds are committed. Cancelling cancels the response.

        No round begins while ``credit`` is used up; None is unlimited credit. With ``nobody_else`` no other coordinator
        would take the response: it waits here for the verifier, until another coordinator has one again.

        Raises:
            NotAdmittedError: no place was free in time.
            ContextTooLongError: the prompt does not fit.
            OtherTargetError: the response was begun by another target, or its token ids belong to another.
            VerifierAwayError: this coordinator's verifier is away, and another coordinator can begin the response.
            VerifierLostError: the verifier was lost, and another coordinator can continue the response.
            GenerationFailedError: the verifier was lost for good.
        """
        check_target(self._target.card, request)
        with nullcontext() if self._traces is None else self._traces.response(request) as trace:
            await self._make(request, put, credit or Credit(inf), trace, nobody_else=nobody_else)

    async def _make(
        self,
        request: GenerationRequest,
        put: Callable[[GenerationChunk], None],
        credit: Credit,
        trace: ResponseTrace | None,
        *,
        nobody_else: bool,
    ) -> None:
        # One that no peer would take must not be handed back to those that are ready now.
        settled_at_s = self._clock() if nobody_else else -inf
        self._failover.check(settled_at_s)  # again once admitted, as the verifier may be lost meanwhile
        asked_at_s = self._clock()  # waiting for a place counts against a resumed response's promise
        stop_ids = await asyncio.to_thread(self._read_stops, request) if request.stop else ()
        async with self.admissions.place(request, credit) as place:
            self._failover.check(settled_at_s)
            if trace is not None:
                trace.admitted(self._clock())
            granted = replace(request, slo=place.slo)
            since_s = asked_at_s if request.ledger is not None else self._clock()
            stays = partial(self.batcher.suspects, request.generation)
            answers = partial(self._failover.verifier_answers, settled_at_s, stays)
            services = replace(self._services, await_verifier=answers, trace=trace)

            def emit(chunk: GenerationChunk) -> None:
                chunk = place.annotated(chunk)
                put(chunk if chunk.granted is None else replace(chunk, target=self._target.card.target))

            with self.batcher.charged(request.generation, request.account):
                await self._round_loop(granted, stop_ids, since_s, emit, credit, services).run()

    def _verifier_now(self) -> VerifierNow:
        """Return the verifier as admission sees it; rounds have the shape measured in the speculation mode in use."""
        usage, shape = self._usage, self._measured.shape(self.tuner.mode)
        if usage is None:
            return VerifierNow(self.batcher.cost_model, shape)
        size = usage.block_tokens
        return VerifierNow(self.batcher.cost_model, shape, usage.total_blocks * size, size)

    def take_timings(self) -> list[RoundTiming]:
        """Remove and return the timings of the last 20,000 rounds, oldest first."""
        timings = list(self._timings)
        self._timings.clear()
        return timings

    def now(self) -> GenerationsNow:
        return GenerationsNow(
            admitted=self.admissions.admitted,
            running=self.admissions.running,
            queued_blocks=self.batcher.queued_blocks,
            idle=self.batcher.idle,
            tuner=self.tuner.report(self._clock()),
            admission=self.admissions.report(),
            machine=self._target.card.machine,
            links=self.book.links(self._clock()),
            worst=self.book.worst(self._clock()),
        )

    def _read_stops(self, request: GenerationRequest) -> tuple[int, ...]:
        """Return the tokens that complete a stop string by themselves, and fill the cache of ``stop_automaton``.

        Called in a thread, as either may take tens of milliseconds.
        """
        stop_automaton(request.stop)
        return () if request.min_tokens else self._stop_ids(request.stop)

    def _round_loop(
        self,
        request: GenerationRequest,
        stop_ids: tuple[int, ...],
        asked_at_s: float,
        put: Callable[[GenerationChunk], None],
        credit: Credit,
        services: RoundServices,
    ) -> RoundLoop:
        card = self._target.card
        generation = Generation(request, eos_token_ids=card.eos_token_ids, max_context_tokens=card.max_context_tokens)
        text = text_of(request, self._target.tokenizer, generation.end_ids)
        rounds = RoundMachine(generation, text, self._rules, asked_at_s)
        link = DrafterLink(generation, self._links, stop_ids, services.trace)
        return RoundLoop(rounds, link, services, put, credit)

    def _note_round(self, timing: RoundTiming) -> None:
        self._timings.append(timing)
        self._stats.round(timing)
        if not timing.follows:  # an autonomous round: no response waited for it, so its queueing is no sign of load
            self._load.round(timing.queue_s, timing.orchestration_s, timing.mode)

    def _note_batch(self, record: BatchRecord) -> None:
        self._stats.batch(record)
        self._spikes.batch(record.engine_s)
        self._usage = record.usage
        self._load.batch(record.blocks, self.tuner.mode)


def check_target(card: ModelCard, request: GenerationRequest) -> None:
    """Refuse what another target has begun, or what was written in another one's token ids.

    During an update coordinators of the old and the new target serve side by side, and either may be asked to go on.
    """
    for what, needed, found in (
        ("target", request.target, card.target),
        ("token map", request.token_map, card.token_map_hash),
    ):
        if needed not in ("", found):
            raise OtherTargetError(f"needs {what} {needed}, found {found}: the target was replaced; try again")


def cost_estimator(profiles: Sequence[CostProfile], machine: ProfiledOn | None) -> OnlineEstimator:
    """Return an estimator with the first profile measured on such a machine; log why those before it do not fit.

    ``machine`` is the verifier's; None if it is not known.
    """
    for profile in profiles:
        refusal = "the verifier does not report its machine" if machine is None else matches(profile, machine)
        if refusal is None:
            event(log, "cost_profile_taken", profile=profile.name, date=profile.date)
            return OnlineEstimator(profile.model, PROFILED_MACHINE)
        event(log, "cost_profile_refused", logging.WARNING, profile=profile.name, reason=refusal)
    return OnlineEstimator(DEFAULT_COST_MODEL)
