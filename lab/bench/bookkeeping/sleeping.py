"""A verifier whose engine only sleeps, behind the real actor, and a coordinator's responses from any verifier."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from actors.messages import ModelCard, VerifyCall
from actors.verifier.actor import SteppedEngine, VerifierActor
from outrider.config.replicas import VerifierConfig
from outrider.config.schema import Config, LimitsConfig
from outrider.contracts.cost import VerifyCost
from outrider.contracts.prefix import EMPTY_PREFIX_HASH
from outrider.contracts.requests import GenerationChunk, GenerationId, GenerationRequest, SamplingParams
from outrider.contracts.verifying import AutonomousRun, Block, KvUsage, OpenGeneration, Outcome, Resolution, Verified
from outrider.models.folders import EMBEDDED
from outrider.models.tokenizer import load_tokenizer
from outrider.text.tokens import token_texts
from serve_app.coordination.generations.generations import Generations, Target, VerifierAccess
from serve_app.coordination.reporting.statistics import CoordinatorStats
from serve_app.coordination.settings import generations_settings
from serve_app.metrics import Sink, in_ray

STEP_S, SEQUENCE_S = 0.010, 0.00002  # a step takes the first, plus the second for each sequence
_FIRST_ID, _IDS = 1000, 20_000  # its tokens, in a cycle


def step_s(sequences: int) -> float:
    return STEP_S + SEQUENCE_S * sequences


class SleepingEngine:
    """Keeps and computes nothing (``VerifierEngine``)."""

    max_context_tokens = 1 << 20

    def __init__(self, *, wakeful: bool = False) -> None:
        """With ``wakeful`` it does not sleep either."""
        self._wakeful = wakeful

    def open(self, request: OpenGeneration) -> None: ...

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None: ...

    def committed(self, generation: GenerationId) -> Sequence[int]:  # noqa: ARG002
        return ()

    def forced(self, generation: GenerationId, most: int) -> tuple[int, ...]:  # noqa: ARG002
        return ()

    def prepare(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> dict[str, Future[None]]:  # noqa: ARG002
        return {}

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:  # noqa: ARG002
        if not self._wakeful:
            time.sleep(step_s(len(blocks)))
        self._computed = tuple(VerifyCost(1, block.position) for block in blocks)
        return [Verified(b.generation, b.round, (), _FIRST_ID + 7919 * b.position % _IDS) for b in blocks]

    def last_pass(self) -> tuple[VerifyCost, ...]:
        return self._computed

    def due(self, generation: GenerationId, at_s: float) -> None:
        """Ignore the deadline."""

    def evicted(self) -> tuple[tuple[GenerationId, int], ...]:
        return ()

    def usage(self) -> KvUsage:
        return KvUsage(16, 1 << 20, 0, 0, 0, 0)


class SleepingVerifierActor(VerifierActor):
    """The real actor with that engine."""

    def __init__(self) -> None:
        self._begin(ThreadPoolExecutor(1), SleepingEngine())

    def engine_tokens_per_s(self, sequences: int, steps: int) -> float:
        return own_tokens_per_s(sequences, steps)


def own_tokens_per_s(sequences: int, steps: int) -> float:
    """Tokens per second of the engine's own loop: sequences decoding alone for ``steps`` steps, replies discarded."""
    stepped = SteppedEngine(SleepingEngine())
    opened = [OpenGeneration(str(number), (1,), SamplingParams(temperature=0.0)) for number in range(sequences)]
    blocks = [Block(one.generation, 0, 1, EMPTY_PREFIX_HASH, autonomous_run=AutonomousRun(steps)) for one in opened]
    call, began_s = VerifyCall(openings=tuple(opened), blocks=tuple(blocks)), time.perf_counter()
    for step in range(steps):
        stepped.step([] if step else [call])
    return sequences * steps / (time.perf_counter() - began_s)


_PROMPT = tuple(range(100))
_STEP_TOKENS = 1_000_000  # admits all prompts at once


class _NoDrafters:
    """A fleet without drafters (``FleetPort``)."""

    async def lease(self, generation: GenerationId, exclude: object, groups: object) -> None: ...

    def release(self, generation: GenerationId) -> None: ...

    def report_lost(self, drafter: object) -> None: ...

    def report_broken(self, drafter: object, fault: str, generation: GenerationId) -> None: ...


def generations_over(verifier: VerifierAccess, sequences: int) -> Generations:
    """A coordinator for ``sequences`` generations, with the limits of an accelerator."""
    most = LimitsConfig(max_concurrent_generations=sequences, max_queued_generations=sequences)
    accelerator = VerifierConfig(prefill_chunk_tokens=_STEP_TOKENS)
    settings = generations_settings(Config(drafters=(), limits=most, verifiers=accelerator))
    blocks = replace(settings.planning.limits, max_blocks=sequences)
    settings = replace(settings, planning=replace(settings.planning, limits=blocks))
    tokenizer = load_tokenizer(EMBEDDED)
    card = ModelCard("sleeping", "", "", len(tokenizer), (), 1 << 20)
    texts = token_texts(tokenizer.backend_tokenizer, len(tokenizer))
    stats = CoordinatorStats("bench", Sink(in_ray), time.monotonic)
    target = Target(card, tokenizer, texts)
    return Generations(settings, target, verifier, _NoDrafters(), stats, time.monotonic)


async def make(
    generations: Generations,
    names: Sequence[GenerationId],
    tokens: int,
    put: Callable[[GenerationId, GenerationChunk], None],
) -> None:
    async def one(name: GenerationId) -> None:
        params = SamplingParams(temperature=0.0)
        request = GenerationRequest(name, _PROMPT, params, max_tokens=tokens)
        await generations.generate(request, lambda chunk: put(name, chunk))

    await asyncio.gather(*map(one, names))
