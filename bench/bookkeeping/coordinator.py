"""A coordinator between a sleeping engine in a process of its own and an ingress that throws chunks away."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import ray

from actors.messages import ModelCard, StepReply, VerifyCall
from bench.bookkeeping.figures import Bookkeeping
from bench.bookkeeping.sleeping import SleepingVerifierActor
from outrider.config.schema import Config, LimitsConfig, VerifierConfig
from outrider.contracts.requests import GenerationChunk, GenerationId, GenerationRequest, SamplingParams
from outrider.models.folders import EMBEDDED
from outrider.models.tokenizer import load_tokenizer
from outrider.text.tokens import token_texts
from serve_app.coordination.generations import Generations, Target
from serve_app.coordination.settings import generations_settings
from serve_app.coordination.statistics import CoordinatorStats
from serve_app.metrics import Sink, in_ray

_PROMPT = tuple(range(100))


class _Verifier:
    """The actor, as ``Generations`` sees it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def give(self, call: VerifyCall) -> None:
        """Tell it something."""
        self._actor.give.remote(call)

    async def steps(self) -> AsyncGenerator[StepReply]:
        """What its steps bring."""
        async for reply in self._actor.steps.options(num_returns="streaming").remote():
            yield await reply

    def hangs(self) -> None:
        """It only sleeps."""
        raise AssertionError("a sleeping engine hangs")

    async def answers(self) -> None:
        """Always."""


class _NoDrafters:
    """A fleet without any (``FleetPort``)."""

    async def lease(self, generation: GenerationId, exclude: object) -> None:
        """None."""

    def release(self, generation: GenerationId) -> None:
        """Nothing was leased."""

    def report_lost(self, drafter: object) -> None:
        """Nobody."""

    def report_broken(self, drafter: object, fault: str) -> None:
        """Nobody."""


def measured(sequences: int, tokens: int) -> Bookkeeping:
    """So many responses at once, each of so many tokens; a Ray of its own must be running."""
    actor: Any = ray.remote(SleepingVerifierActor).options(num_cpus=0).remote()
    alone: float = ray.get(actor.engine_tokens_per_s.remote(sequences, 100))
    return asyncio.run(_measured(actor, sequences, tokens, alone))


async def _measured(actor: Any, sequences: int, tokens: int, alone: float) -> Bookkeeping:
    generations = _generations(actor, sequences)
    await _made(generations, sequences, 8, "warm-up")
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    made = await _made(generations, sequences, tokens, "measured")
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    generations.batcher.stop()
    return Bookkeeping("coordinator", made / took_s, alone, cpu_s / made)


async def _made(generations: Generations, sequences: int, tokens: int, name: str) -> int:
    async def one(number: int) -> int:
        request = GenerationRequest(f"{name}-{number}", _PROMPT, SamplingParams(temperature=0.0), max_tokens=tokens)
        made = 0

        def put(chunk: GenerationChunk) -> None:
            nonlocal made
            made += len(chunk.token_ids)

        await generations.generate(request, put)
        return made

    return sum(await asyncio.gather(*map(one, range(sequences))))


def _generations(actor: Any, sequences: int) -> Generations:
    most = LimitsConfig(max_concurrent_generations=sequences, max_queued_generations=sequences)
    settings = generations_settings(Config(drafters=(), limits=most, verifiers=VerifierConfig()))
    limits = replace(settings.planning.limits, max_blocks=sequences, max_new_tokens=1 << 20, max_memory_blocks=None)
    settings = replace(settings, planning=replace(settings.planning, limits=limits))
    tokenizer = load_tokenizer(EMBEDDED)
    card = ModelCard("sleeping", "", "", len(tokenizer), (), 1 << 20)
    texts = token_texts(tokenizer.backend_tokenizer, len(tokenizer))
    stats = CoordinatorStats("bench", Sink(in_ray), time.monotonic)
    target = Target(card, tokenizer, texts)
    return Generations(settings, target, _Verifier(actor), _NoDrafters(), stats, time.monotonic)
