"""A coordinator between a sleeping engine in its own process and an ingress that discards chunks."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import ray

from actors.messages import StepReply, VerifyCall
from actors.start import started
from lab.bench.bookkeeping.figures import Flow
from lab.bench.bookkeeping.sleeping import SleepingVerifierActor, generations_over, make
from outrider.contracts.requests import GenerationChunk, GenerationId
from serve_app.coordination.generations.generations import Generations

_WARM_UP_TOKENS, _ALONE_STEPS = 8, 100


class _Verifier:
    """The actor, with the interface that ``Generations`` needs."""

    is_up = True

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def give(self, call: VerifyCall) -> None:
        self._actor.give.remote(call)

    async def steps(self) -> AsyncGenerator[StepReply]:
        async for reply in self._actor.steps.options(num_returns="streaming").remote():
            yield await reply

    def kill_hung(self) -> None:
        raise AssertionError("a sleeping engine hangs")

    async def wait_until_up(self) -> None: ...


def measured(sequences: int, tokens: int, repeats: int) -> list[Flow]:
    """Run ``sequences`` responses of ``tokens`` tokens at once; needs a running Ray of its own."""
    actor: Any = ray.remote(SleepingVerifierActor).options(num_cpus=0).remote()
    return asyncio.run(_runs(actor, sequences, tokens, repeats))


async def _runs(actor: Any, sequences: int, tokens: int, repeats: int) -> list[Flow]:
    generations = generations_over(_Verifier(actor), sequences)
    await _made(generations, sequences, _WARM_UP_TOKENS, "warm-up")
    started()
    flows = []
    for run in range(repeats):
        alone: float = await actor.engine_tokens_per_s.remote(sequences, _ALONE_STEPS)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        made = await _made(generations, sequences, tokens, f"run-{run}")
        took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        flows.append(Flow("coordinator", made / took_s, alone, cpu_s / made))
    generations.batcher.stop()
    return flows


async def _made(generations: Generations, sequences: int, tokens: int, run: str) -> int:
    made = 0

    def put(name: GenerationId, chunk: GenerationChunk) -> None:  # noqa: ARG001
        nonlocal made
        made += len(chunk.token_ids)

    await make(generations, [f"{run}-{number}" for number in range(sequences)], tokens, put)
    return made
