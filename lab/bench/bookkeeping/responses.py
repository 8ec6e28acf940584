"""A coordinator's responses from any verifier, without drafters."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from actors.messages import ModelCard
from outrider.config.replicas import VerifierConfig
from outrider.config.schema import Config, LimitsConfig
from outrider.contracts.requests import GenerationChunk, GenerationId, GenerationRequest, SamplingParams
from outrider.models.folders import EMBEDDED
from outrider.models.tokenizer import load_tokenizer
from outrider.text.tokens import token_texts
from serve_app.coordination.generations.generations import Generations, Target, VerifierAccess
from serve_app.coordination.reporting.statistics import CoordinatorStats
from serve_app.coordination.settings import generations_settings
from serve_app.metrics import Sink, in_ray

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
