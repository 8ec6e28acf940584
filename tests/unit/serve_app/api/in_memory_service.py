"""Verifier and coordinator in this process: real engines, batcher and round loop, without Ray."""

import asyncio
import concurrent.futures
import functools
import random
from collections.abc import AsyncGenerator, Callable, Container, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from actors.messages import StepReply, VerifyCall
from actors.verifier.actor import SteppedEngine
from outrider.config.drafters import DrafterGroupConfig
from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.errors import VerifierLostError
from outrider.contracts.requests import GenerationChunk, GenerationId, GenerationRequest, ProtocolName, SamplingParams
from outrider.contracts.verifying import OpenGeneration, VerifierEngine
from outrider.costs.estimator import OnlineEstimator
from outrider.lookup.store import EarlierTexts
from outrider.lookup.text import LookupHistory
from outrider.models.head_file import Head
from outrider.rounds.choice import Speculation
from outrider.rounds.generation import Generation
from outrider.rounds.machine import RoundMachine
from outrider.rounds.present_load import PresentLoad
from outrider.rounds.rules import RoundRules
from outrider.rounds.timing import RoundTiming
from outrider.scheduling.attribution import SpikeDetector
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.ledger import DeadlineRule
from outrider.scheduling.policy import BatchLimits, SchedulingPolicy
from outrider.selection.fixed import Fixed
from outrider.selection.modes import DRAFT
from outrider.selection.tuning.speculation_tuner import SpeculationTuner
from outrider.text.shown import text_of
from outrider.text.stops import tokens_that_stop
from outrider.tracing.responses import ResponseTrace
from outrider.verification.semantic import MismatchJudge
from serve_app.coordination.batching.batcher import Batcher, Planning
from serve_app.coordination.credit import Credit
from serve_app.coordination.drafting.drafter_book import DrafterBook
from serve_app.coordination.drafting.drafter_link import DrafterLink
from serve_app.coordination.drafting.link_services import LinkServices
from serve_app.coordination.generations.round_loop import RoundLoop, RoundServices
from serve_app.coordination.reporting.statistics import BatchRecord
from serve_app.coordination.reporting.tracing import ResponseTraces
from tests.unit.engines.conftest import BLOCK_TOKENS, VOCAB, tiny_llama, torch_drafter, torch_verifier
from tests.unit.engines.reference import tiny_alone
from tests.unit.serve_app.coordination.in_memory import (
    GREEDY,
    PROMPT,
    SAMPLED,
    SETTINGS,
    WIRE,
    EngineTransport,
    Gate,
    MemoryFleet,
    RecordingSink,
    until,
)
from tests.unit.virtual_clock import now_s

PENALISED = SamplingParams(temperature=1.0, seed=4, repetition_penalty=1.2, frequency_penalty=0.5)
PARAMS = {"greedy": GREEDY, "sampled": SAMPLED, "penalised": PENALISED}
CHUNK = 16
LONG_PROMPT = tuple(random.Random(7).choices(range(VOCAB), k=60))  # four chunks
LENGTH = 24
ENGINE_S = 0.001  # virtual: what a call takes


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One word per token, ``w0 .. w96``."""
    raw = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCAB)}, unk_token="w0"))  # noqa: S106 (no password)
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw)


TOKENIZER = tiny_tokenizer()


def draft_model() -> LlamaForCausalLM:
    """Like the target, but not quite: right for a while, then wrong."""
    model = tiny_llama()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.03)
    return model


def drafter() -> EngineTransport:
    return EngineTransport(torch_drafter(draft_model()))


class _Present:
    """Whichever engine a verifier has now."""

    def __init__(self, verifier: "LocalVerifier") -> None:
        self._verifier = verifier

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verifier.engine, name)

    def open(self, request: OpenGeneration) -> None:
        """No time passes on the tests' clock while a grammar is compiled in a thread."""
        if (opening := self._verifier.engine.open(request)) is not None:
            concurrent.futures.wait([opening])


class LocalVerifier:
    """A real verifier engine in this process, stepped as ``VerifierActor`` steps its own."""

    def __init__(
        self, blocks: int = 200, judge: MismatchJudge | None = None, experience: LookupHistory | None = None
    ) -> None:
        self._blocks, self._judge, self._experience = blocks, judge, experience
        self.max_context_tokens = min(256, blocks * BLOCK_TOKENS)
        self.calls: list[VerifyCall] = []
        self.computed: list[tuple[VerifyCost, ...]] = []  # by each step that verified something
        self.made = 0  # steps
        self.gates: dict[int, Gate] = {}  # by number of the step
        self.dies_before: Container[int] = ()  # numbers of steps
        self.dies_after: Container[int] = ()  # the step is made, but nobody learns of it
        self.answer_lost: Container[int] = ()  # the step is made, and the engine goes on
        self.forgets_before: Container[int] = ()  # restarts in silence: its generations are unknown then
        self.restarting: Gate | None = None
        self.is_up = True
        self._inbox: list[VerifyCall] = []
        self._given = asyncio.Event()
        self.engine = self._empty()
        self._stepped = SteppedEngine(_Present(self), self._experience)

    def give(self, call: VerifyCall) -> None:
        """Take in a call."""
        self.calls.append(call)
        self._inbox.append(call)
        self._given.set()

    async def steps(self) -> AsyncGenerator[StepReply]:
        """Step as long as anything is under way."""
        while True:
            while not self._inbox and self._stepped.idle:
                self._given.clear()
                await self._given.wait()
            calls, self._inbox = self._inbox, []  # what comes during a step joins the next one
            await asyncio.sleep(ENGINE_S)
            number, self.made = self.made, self.made + 1
            if number in self.gates:
                await self.gates[number].wait()
            if number in self.forgets_before:
                self.engine = self._empty()
            if number in self.dies_before:
                self._restart()
                raise VerifierLostError("died")
            reply = self._stepped.step(calls)
            self.computed += [reply.computed] if reply.computed else []
            if number in self.dies_after:
                self._restart()
            if number in self.dies_after or number in self.answer_lost:
                raise VerifierLostError("died")
            yield replace(reply, engine_s=ENGINE_S, idle_s=0.0)

    def kill_hung(self) -> None:
        """Nobody's steps take so long here."""
        raise AssertionError

    async def wait_until_up(self) -> None:
        """It answers again."""
        if self.restarting is not None:
            self.is_up = False
            await self.restarting.wait()
            self.is_up = True

    @property
    def empty(self) -> bool:
        """Whether it holds nothing."""
        usage = self.engine.usage()
        return (usage.generations, usage.used_blocks) == (0, 0)

    def _empty(self) -> VerifierEngine:
        return torch_verifier(tiny_llama(), blocks=self._blocks, prefill_chunk_tokens=CHUNK, judge=self._judge)

    def _restart(self) -> None:
        self.engine = self._empty()
        self._stepped = SteppedEngine(_Present(self), self._experience)
        self._inbox.clear()


class Service:
    """What a coordinator has, over local engines."""

    def __init__(
        self,
        *drafters: EngineTransport,
        blocks: int = 200,
        eos_token_ids: tuple[int, ...] = (),
        protocols: tuple[ProtocolName, ...] = ("token_ids",),
        scheduling: SchedulingPolicy | None = None,
        deadline_rule: DeadlineRule = DeadlineRule.LEDGER,
        judge: MismatchJudge | None = None,
        heads: Mapping[str, Head] | None = None,
        tuner: SpeculationTuner | None = None,
        cost_model: LinearCostModel = LinearCostModel(0.0, 0.0, 0.0, 1.0),  # noqa: B008 (frozen)
        store_tokens: int = 0,
        trusted: bool = True,
        traces: ResponseTraces | None = None,
    ) -> None:
        self.traces = traces
        self.verifier = LocalVerifier(blocks, judge, LookupHistory(earlier=EarlierTexts(store_tokens)))
        self.fleet = MemoryFleet(*drafters)
        self.link_settings = SETTINGS
        self.book = DrafterBook(
            [DrafterGroupConfig("edge", trust="trusted" if trusted else "untrusted", model="edge")], heads
        )
        self.sink = RecordingSink()
        self.timings: list[RoundTiming] = []
        self.batches: list[BatchRecord] = []
        self.generations: dict[GenerationId, Generation] = {}
        self._eos_token_ids = eos_token_ids
        limits = BatchLimits(max_blocks=4, max_new_tokens=64, prefill_chunk_tokens=CHUNK)
        self.services = RoundServices(
            batcher=Batcher(
                self.verifier,
                Planning(scheduling or Fcfs(), limits, BLOCK_TOKENS),
                OnlineEstimator(cost_model),
                self.batches.append,
                now_s,
                traces=traces,
            ),
            await_verifier=self.verifier.wait_until_up,
            load=PresentLoad(),
            tuner=tuner or SpeculationTuner((DRAFT,), 0.0),
            observe=self.timings.append,
            sink=self.sink,
            clock=now_s,
        )
        self.rules = RoundRules(
            speculation=Speculation(protocols=protocols, k_max=16, window=5, wire=WIRE, has_drafters=bool(drafters)),
            policy=Fixed(),
            deadline_rule=deadline_rule,
            spikes=SpikeDetector(),
            correction_deadline_s=5.0,
        )

    async def chunks(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """One response, as ``Coordinator`` makes it: it goes on whether it is read or not."""
        chunks: asyncio.Queue[GenerationChunk | None] = asyncio.Queue()
        making = asyncio.create_task(self.make(request, chunks.put_nowait))
        making.add_done_callback(lambda _: chunks.put_nowait(None))
        try:
            while (chunk := await chunks.get()) is not None:
                yield chunk
            await making
        finally:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)

    async def make(
        self, request: GenerationRequest, put: Callable[[GenerationChunk], None], credit: Credit | None = None
    ) -> None:
        """The same, told to ``put``."""
        with nullcontext() if self.traces is None else self.traces.response(request) as trace:
            await self._make(request, put, credit or Credit(float("inf")), trace)

    async def _make(
        self,
        request: GenerationRequest,
        put: Callable[[GenerationChunk], None],
        credit: Credit,
        trace: ResponseTrace | None,
    ) -> None:
        most = self.verifier.max_context_tokens
        generation = Generation(request, eos_token_ids=self._eos_token_ids, max_context_tokens=most)
        self.generations[request.generation] = generation
        stop_ids = tokens_that_stop([f"w{i}" for i in range(VOCAB)], request.stop)
        link = DrafterLink(generation, LinkServices(self.fleet, self.book, self.link_settings, now_s), stop_ids, trace)
        text = text_of(request, TOKENIZER, generation.end_ids)
        rounds = RoundMachine(generation, text, self.rules, now_s())
        await RoundLoop(rounds, link, replace(self.services, trace=trace), put, credit).run()

    async def response(self, request: GenerationRequest) -> list[GenerationChunk]:
        """All chunks of one response."""
        async with aclosing(self.chunks(request)) as chunks:
            return [chunk async for chunk in chunks]

    async def idle(self) -> None:
        """Nothing is held any more, by the verifier or a drafter; what is made later is listened for anew."""
        await until(lambda: self.verifier.empty and self.fleet.empty)
        self.services.batcher.stop()


def request_for(
    name: str = "g", prompt: tuple[int, ...] = PROMPT, params: SamplingParams = GREEDY, window: int | None = None
) -> GenerationRequest:
    return GenerationRequest(name, prompt, params, max_tokens=LENGTH, window=window)


def truth_of(request: GenerationRequest) -> list[int]:
    return list(_truth(request.prompt_ids, request.params, request.max_tokens))


@functools.cache
def _truth(prompt: tuple[int, ...], params: SamplingParams, length: int) -> tuple[int, ...]:
    return tuple(tiny_alone(prompt, params, length))


def tokens_of(chunks: Sequence[GenerationChunk]) -> list[int]:
    return [token_id for chunk in chunks for token_id in chunk.token_ids]
