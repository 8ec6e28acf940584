"""The rounds of ``outrider bench engine``: overhead of our engine over the bare model.

Verifies 1 and 8 generations (K draft tokens behind a resident prefix) and, interleaved in the same process, calls the
plain transformers model on the same number of new tokens with an equally long ``DynamicCache``. Reports the median of
each and their ratio.
"""

import argparse
import statistics
from functools import partial

from cluster.reports.tables import show_table
from lab.bench.harness.timing import plain_step, seconds_of
from outrider.contracts.requests import SamplingParams
from outrider.costs.batch_runs import UniquePrompts
from outrider.costs.driver import GenerationDriver
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.verifier import TorchVerifier
from outrider.models.loading import LoadedModel, load_target

_PARAMS = {
    "greedy": SamplingParams(temperature=0.0),
    "sampled": SamplingParams(temperature=0.8, seed=1),
    "top-p": SamplingParams(temperature=0.8, top_p=0.9, seed=1),
}


def measured_rounds(args: argparse.Namespace) -> dict[str, object]:
    # Two copies of the model: the engine replaces the attention of its own.
    bare = load_target(args.target, dtype=args.dtype, device=args.device)
    ours = load_target(args.target, dtype=args.dtype, device=args.device)
    engine = TorchVerifier(ours, EngineLimits(kv_budget_bytes=2 * 2**30))
    rows = [
        (generations, sampling, *_medians_ms(bare, engine, params, generations, args))
        for generations in args.generations
        for sampling, params in _PARAMS.items()
    ]
    title = (
        f"{bare.name} {args.dtype} on {args.device}, {args.threads} thread(s), K={args.window}, prefix {args.prefix}"
    )
    shown = [(*row, f"{bare_ms:.1f}", f"{our_ms:.1f}", f"{our_ms / bare_ms:.2f}") for *row, bare_ms, our_ms in rows]
    show_table(title, ("generations", "sampling", "bare ms", "engine ms", "ratio"), shown)
    names = ("generations", "sampling", "bare_ms", "engine_ms")
    return {"rounds": [dict(zip(names, row, strict=True)) for row in rows]}


def _medians_ms(
    bare: LoadedModel, engine: TorchVerifier, params: SamplingParams, generations: int, args: argparse.Namespace
) -> tuple[float, float]:
    """Medians of the bare call and of a round, alternating after a warm-up of each."""
    driver, drafts = _warm(engine, bare.vocab_size, params, generations, args)
    step = plain_step(bare.model, generations, args.prefix, args.window + 1)
    times = [(seconds_of(step), seconds_of(partial(driver.round, drafts))) for _ in range(args.repeats + 1)][1:]
    driver.close(tuple(driver.tokens))
    bare_ms, our_ms = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    return bare_ms, our_ms


def _warm(
    engine: TorchVerifier, vocab_size: int, params: SamplingParams, generations: int, args: argparse.Namespace
) -> tuple[GenerationDriver, dict[str, tuple[int, ...]]]:
    """Generations with computed prompts, and each one's draft for every round."""
    prompts, driver = UniquePrompts(vocab_size, seed=0), GenerationDriver(engine, params)
    for index in range(generations):
        driver.open(f"warm {index}", prompts.take(args.prefix))
    driver.round(dict.fromkeys(driver.tokens, ()))
    return driver, {name: prompts.draft(args.window) for name in driver.tokens}
