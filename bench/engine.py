"""``outrider bench engine``: what our engine adds to the bare model.

Verifies 1 and 8 generations (K draft tokens after a resident prefix) and, in the same process and interleaved, calls
the plain transformers model over the same number of new tokens with an equal-length ``DynamicCache``. Reports the
median of each and their ratio.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from outrider.engines.base import AcceptanceRule, Block, OpenGeneration, Unfinished, Verified
from outrider.engines.limits import EngineLimits
from outrider.engines.torch_verifier import TorchVerifier
from outrider.models.registry import LoadedModel, load_target
from outrider.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.types import SamplingParams

_PARAMS = {
    "greedy": SamplingParams(temperature=0.0),
    "sampled": SamplingParams(temperature=0.8, seed=1),
    "top-p": SamplingParams(temperature=0.8, top_p=0.9, seed=1),
}


def main(argv: Sequence[str]) -> None:
    """Run the bench and print a table."""
    parser = argparse.ArgumentParser(prog="outrider bench engine", description=__doc__)
    parser.add_argument("--target", default="embedded")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--generations", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--prefix", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    # Two copies of the model: the engine replaces the attention of its own.
    bare = load_target(args.target, dtype=args.dtype, device=args.device)
    ours = load_target(args.target, dtype=args.dtype, device=args.device)
    engine = TorchVerifier(ours, EngineLimits(kv_budget_bytes=2 * 2**30))
    print(f"{bare.name} {args.dtype} on {args.device}, {args.threads} thread(s), K={args.window}, prefix {args.prefix}")
    print(f"{'generations':>11} {'sampling':>9} {'bare ms':>9} {'engine ms':>10} {'ratio':>6}")
    for generations in args.generations:
        for sampling, params in _PARAMS.items():
            bare_call = _bare_call(bare, generations, args.prefix, args.window + 1)
            our_call = _engine_call(engine, ours, params, generations, args.prefix, args.window)
            bare_s, our_s = _interleaved(bare_call, our_call, args.repeats)
            print(
                f"{generations:>11} {sampling:>9} {bare_s * 1e3:>9.1f} {our_s * 1e3:>10.1f} {our_s / bare_s:>6.2f}",
                flush=True,
            )


def _interleaved(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median seconds of both, called in turn after one warm-up each."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 1):
        for call, kept in zip((first, second), times, strict=True):
            _synchronise()
            began_at_s = time.perf_counter()
            call()
            _synchronise()
            kept.append(time.perf_counter() - began_at_s)
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _prompts(generations: int, length: int, vocab_size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, vocab_size, (generations, length), generator=generator)


def _bare_call(loaded: LoadedModel, generations: int, prefix: int, new_tokens: int) -> Callable[[], object]:
    model: PreTrainedModel = loaded.model
    cache = DynamicCache(config=model.config)
    prompts = _prompts(generations, prefix, loaded.vocab_size).to(model.device)
    new = _prompts(generations, new_tokens, loaded.vocab_size).to(model.device)
    with torch.inference_mode():
        model(input_ids=prompts, past_key_values=cache, use_cache=True, logits_to_keep=1)

    @torch.inference_mode()
    def call() -> object:
        logits = model(input_ids=new, past_key_values=cache, use_cache=True).logits
        cache.crop(-new_tokens)
        return logits

    return call


def _engine_call(
    engine: TorchVerifier, loaded: LoadedModel, params: SamplingParams, generations: int, prefix: int, window: int
) -> Callable[[], object]:
    """Verify blocks of random drafts; the committed prefix grows by the token after the (empty) accepted part."""
    prompts = _prompts(generations, prefix, loaded.vocab_size).tolist()
    draft = tuple(_prompts(1, window, loaded.vocab_size)[0].tolist())
    rule = AcceptanceRule.GREEDY if params.greedy else AcceptanceRule.SHARED_NOISE
    tokens = {f"{rule}-{i}": prompt for i, prompt in enumerate(prompts)}
    rounds = 0

    def verify(draft: tuple[int, ...]) -> None:
        nonlocal rounds
        blocks = [
            Block(name, rounds, len(ids), extend_prefix_hash(EMPTY_PREFIX_HASH, ids), draft=draft, rule=rule)
            for name, ids in tokens.items()
        ]
        rounds += 1
        while blocks:
            unfinished = []
            for block, outcome in zip(blocks, engine.verify(blocks), strict=True):
                if isinstance(outcome, Unfinished):
                    unfinished.append(block)
                elif isinstance(outcome, Verified) and outcome.next_token is not None:
                    tokens[block.generation] += [*block.draft[: outcome.accepted_len], outcome.next_token]
            blocks = unfinished

    for name, ids in tokens.items():
        engine.open(OpenGeneration(name, tuple(ids), params))
    verify(())
    return lambda: verify(draft)
