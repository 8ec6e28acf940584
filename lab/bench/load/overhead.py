"""``outrider bench overhead``: where a round's time goes, and the speed of the same pair without Outrider.

Starts the embedded cluster, sends streaming HTTP requests from 1, 4 and 16 clients, and reads every round's timing
from the coordinator: draft, link, queue, verify, and everything else ("orchestration"); link, queue and orchestration
together ("overhead"); and how often the scheduler was woken, and for how long in all. In the same run it measures plain
``generate`` of transformers and ``generate(assistant_model=...)`` with the same pair.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from itertools import cycle, islice
from operator import sub
from typing import Any

import numpy as np
import torch
from ray import serve
from transformers import GenerationConfig

from cluster.local import APP_NAME, running
from cluster.option_types import natural, new_file, positive_int
from cluster.reports.tables import show_table
from lab.bench.gateway.own_device import running_with_own_device
from lab.bench.harness.prompts import PROMPTS
from lab.bench.harness.record import write_record
from lab.bench.load.client import Endpoint, ServiceUnusableError, drive, open_client
from lab.bench.load.plan import PlannedRequest
from lab.bench.load.report import COMPLETED
from lab.options import existing_file, not_negative
from outrider.config.reading import load_config
from outrider.config.schema import Config
from outrider.engines.registry import VERIFIERS
from outrider.models.loading import LoadedModel, load_drafter, load_target
from outrider.rounds.timing import RoundTiming
from outrider.training.traces import prompt_ids

_PHASES = ("draft", "link", "queue", "verify", "orchestration", "total")
_TIMEOUT_S = 600.0


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="outrider bench overhead", description=__doc__)
    add = parser.add_argument
    add("--config", type=existing_file, default=None, help="needs drafters, and one verifier")
    add("--generations", type=positive_int, nargs="+", default=[1, 4, 16])
    add("--tokens", type=positive_int, default=64)
    add("--prompts", type=positive_int, default=16, help="prompts sent at each number of generations")
    add("--temperature", type=not_negative, default=0.0)
    add("--windows", type=natural, nargs="+", default=[2], help="draft windows (default: %(default)s)")
    add("--dialled", action="store_true", help="draft on a device of this machine that dials in")
    add("--json", type=new_file, default=None, metavar="FILE", help="write what is printed")
    args = parser.parse_args(argv)
    config = load_config(args.config)
    baselines = {} if args.dialled else baselines_of(config, args.tokens, args.prompts)
    with (running_with_own_device if args.dialled else running)(config) as url:
        found = [
            asyncio.run(_measured(url, config.model.public_name, generations, window, args))
            for window in args.windows
            for generations in args.generations
        ]
    if args.json is not None:
        write_record(args.json, args, {"baselines_tokens_per_s": baselines, "service": found})


def baselines_of(config: Config, tokens: int, prompts: int) -> dict[str, float]:
    """Output tokens per second of transformers' own ``generate``, one request at a time."""
    torch.set_num_threads(config.verifiers.threads)
    device = config.verifiers.device
    dtype = VERIFIERS[config.verifiers.engine].settled_dtype(config.model.dtype, device, config.model.target)
    target = load_target(config.model.target, dtype=dtype, device=device)
    drafter = load_drafter(config.drafters[0].model, config.model.target, dtype=dtype, device=device)
    print(f"transformers, greedy, {dtype}, {config.verifiers.threads} thread(s), one request at a time")
    found = {}
    for name, assistant in (("generate", None), ("generate(assistant_model)", drafter)):
        found[name] = _generate_rate(target, assistant, tokens, prompts)
        print(f"  {name:<28} {found[name]:6.1f} tokens/s", flush=True)
    return found


def _generate_rate(target: LoadedModel, assistant: LoadedModel | None, tokens: int, prompts: int) -> float:
    made, elapsed_s = 0, 0.0
    generate: Any = target.model.generate
    options = GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=0)
    for prompt in islice(cycle(PROMPTS), prompts):
        ids = torch.tensor([prompt_ids(target.tokenizer, prompt)], device=target.model.device)
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


async def _measured(url: str, model: str, generations: int, window: int, args: argparse.Namespace) -> dict[str, object]:
    """Measure one number of concurrent generations and one window; print and return the figures."""
    coordinator = serve.get_deployment_handle("Coordinator", APP_NAME)
    body = {"max_tokens": args.tokens, "temperature": args.temperature, "top_p": 1.0, "seed": 1, "ignore_eos": True}
    requests = [
        PlannedRequest(
            0.0,
            "/v1/chat/completions",
            {**body, "messages": [{"role": "user", "content": prompt}], "outrider": {"window": window}},
        )
        for prompt in islice(cycle(PROMPTS), args.prompts)
    ]
    async with open_client(url, _TIMEOUT_S) as client:
        endpoint = Endpoint(client, model, _TIMEOUT_S)
        await drive(endpoint, requests[:1], max_concurrency=1)  # warm-up: connections, code paths
        await coordinator.recent_timings.remote()
        before = await coordinator.scheduler_work.remote()
        answers = await drive(endpoint, requests, max_concurrency=generations)
    failed = next((one for one in answers if one.outcome != COMPLETED), None)
    if failed is not None:
        raise ServiceUnusableError(f"needs every chat completed, found {failed.outcome}: {failed.detail}")
    timings: list[RoundTiming] = await coordinator.recent_timings.remote()
    tokens_per_s = args.prompts * args.tokens / max(one.ended_s for one in answers)
    phases_ms, accepted = _phases_ms(timings)
    wakeups, awake_s = map(sub, await coordinator.scheduler_work.remote(), before)
    woken = f"{wakeups / len(timings):.2f} wake-ups of the scheduler a round, {1e3 * awake_s / len(timings):.2f} ms"
    title = (
        f"{generations} generation(s), window {window}: {tokens_per_s:.1f} tokens/s, {accepted}; {woken}; ms per round"
    )
    show_table(title, ("", "p50", "p99"), [(name, *(f"{ms:.2f}" for ms in both)) for name, both in phases_ms.items()])
    told = {"generations": generations, "window": window, "tokens_per_s": tokens_per_s, "phases_ms": phases_ms}
    return {**told, "rounds": len(timings), "scheduler_wakeups": wakeups, "scheduler_s": awake_s}


def _phases_ms(timings: Sequence[RoundTiming]) -> tuple[dict[str, tuple[float, float]], str]:
    """p50 and p99 of each phase of the rounds with a draft, or of all if there is none; and the accepted tokens."""
    rounds = [timing for timing in timings if timing.drafted_tokens > 0]
    if rounds:
        accepted = sum(timing.accepted_tokens for timing in rounds)
        drafted = sum(timing.drafted_tokens for timing in rounds)
        text = f"{len(rounds)} speculative of {len(timings)} rounds, accepted fraction {accepted / drafted:.2f}"
    else:
        text = f"{len(timings)} rounds without a drafter"
    found = {}
    for name in _PHASES:
        found[name] = _quantiles([1e3 * float(getattr(timing, f"{name}_s")) for timing in rounds or timings])
    found["overhead"] = _quantiles([1e3 * (one.total_s - one.draft_s - one.verify_s) for one in rounds or timings])
    return found, text


def _quantiles(values_ms: Sequence[float]) -> tuple[float, float]:
    return float(np.percentile(values_ms, 50)), float(np.percentile(values_ms, 99))
