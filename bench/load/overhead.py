"""``outrider bench overhead``: where a round's time goes, and what the same pair does without Outrider.

Starts the embedded cluster, sends streaming HTTP requests from 1, 4 and 16 clients, and reads every round's timing
from the coordinator: draft, link, queue, verify, and everything else ("orchestration"). In the same run, on the same
machine, plain ``generate`` of transformers and ``generate(assistant_model=...)`` with the same pair.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from ray import serve
from transformers import GenerationConfig

from bench.harness.prompts import PROMPTS, chat_ids
from cluster.local import APP_NAME, running
from outrider.config.reading import load_config
from outrider.config.schema import Config
from outrider.models.registry import LoadedModel, load_drafter, load_target
from outrider.rounds.timing import RoundTiming

_PHASES: dict[str, Callable[[RoundTiming], float]] = {
    "draft": lambda t: t.draft_s,
    "link": lambda t: t.link_s,
    "queue": lambda t: t.queue_s,
    "verify": lambda t: t.verify_s,
    "orchestration": lambda t: t.orchestration_s,
    "total": lambda t: t.total_s,
}


def main(argv: Sequence[str]) -> None:
    """Run the bench and print its tables."""
    parser = argparse.ArgumentParser(prog="outrider bench overhead", description=__doc__)
    parser.add_argument("--config", type=Path, default=None, help="needs drafters, and one verifier")
    parser.add_argument("--generations", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=16, help="prompts sent at each number of generations")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--windows", type=int, nargs="+", default=[2], help="draft windows (default: %(default)s)")
    args = parser.parse_args(argv)
    config = load_config(args.config)
    _baselines(config, args.tokens, args.prompts)
    with running(config) as url:
        for window in args.windows:
            for generations in args.generations:
                load = _Load(config.model.public_name, generations, args.prompts, args.tokens, args.temperature, window)
                asyncio.run(_measure(url, load))


def _baselines(config: Config, tokens: int, prompts: int) -> None:
    torch.set_num_threads(config.verifiers.threads)
    target = load_target(config.model.target, dtype=config.model.dtype, device=config.verifiers.device)
    drafter = load_drafter(
        config.drafters[0].model, config.model.target, dtype=config.model.dtype, device=config.verifiers.device
    )
    print(f"transformers, greedy, {config.model.dtype}, {config.verifiers.threads} thread(s), one request at a time")
    for name, assistant in (("generate", None), ("generate(assistant_model)", drafter)):
        rate = _generate_rate(target, assistant, tokens, prompts)
        print(f"  {name:<28} {rate:6.1f} tokens/s", flush=True)


def _generate_rate(target: LoadedModel, assistant: LoadedModel | None, tokens: int, prompts: int) -> float:
    """Output tokens per second of transformers' own generate."""
    made, elapsed_s = 0, 0.0
    generate: Any = target.model.generate
    options = GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=0)
    for prompt in islice(cycle(PROMPTS), prompts):
        ids = torch.tensor([chat_ids(target.tokenizer, prompt)], device=target.model.device)
        began_at_s = time.perf_counter()
        output = generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=options,
            assistant_model=None if assistant is None else assistant.model,
        )
        elapsed_s += time.perf_counter() - began_at_s
        made += output.shape[1] - ids.shape[1]
    return made / elapsed_s


@dataclass(frozen=True, slots=True)
class _Load:
    """What is sent at once, and how it is to be answered."""

    model: str
    generations: int
    prompts: int
    tokens: int
    temperature: float
    window: int


async def _measure(url: str, load: _Load) -> None:
    coordinator = serve.get_deployment_handle("Coordinator", APP_NAME)
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        await _send(client, load, PROMPTS[0])  # warm: connections, code paths
        await coordinator.recent_timings.remote()
        queue = list(islice(cycle(PROMPTS), load.prompts))
        began_at_s = time.perf_counter()

        async def worker() -> None:
            while queue:
                await _send(client, load, queue.pop())

        await asyncio.gather(*(worker() for _ in range(load.generations)))
        elapsed_s = time.perf_counter() - began_at_s
    timings: list[RoundTiming] = await coordinator.recent_timings.remote()
    _report(load, load.prompts * load.tokens / elapsed_s, timings)


async def _send(client: httpx.AsyncClient, load: _Load, prompt: str) -> None:
    body = {
        "model": load.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": load.tokens,
        "temperature": load.temperature,
        "seed": 1,
        "ignore_eos": True,
        "stream": True,
        "outrider": {"window": load.window},
    }
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for _ in response.aiter_bytes():
            pass


def _report(load: _Load, tokens_per_s: float, timings: Sequence[RoundTiming]) -> None:
    rounds = [timing for timing in timings if timing.drafted_tokens > 0]
    drafted = sum(timing.drafted_tokens for timing in rounds)
    accepted = sum(timing.committed_tokens - 1 for timing in rounds)
    print(f"\n{load.generations} generation(s), window {load.window}: {tokens_per_s:.1f} tokens/s", flush=True)
    if not rounds:
        rounds = list(timings)
        print(f"  {len(rounds)} rounds without a drafter")
    else:
        print(f"  {len(rounds)} speculative of {len(timings)} rounds, accepted fraction {accepted / drafted:.2f}")
    print(f"  {'ms per round':<26} {'p50':>8} {'p99':>8}")
    for name, phase in _PHASES.items():
        values = np.array([phase(timing) for timing in rounds]) * 1e3
        print(f"  {name:<26} {np.percentile(values, 50):8.2f} {np.percentile(values, 99):8.2f}", flush=True)
