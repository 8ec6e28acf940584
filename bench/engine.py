"""``outrider bench engine``: what our engine adds to the bare model.

Verifies 1 and 8 generations (K draft tokens after a resident prefix) and, in the same process and interleaved, calls
the plain transformers model over the same number of new tokens with an equal-length ``DynamicCache``. Reports the
median of each and their ratio.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from transformers import DynamicCache, PreTrainedModel

from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, OpenGeneration, Unfinished, Verified
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.verifier import TorchVerifier
from outrider.models.registry import LoadedModel, load_target

_PARAMS = {
    "greedy": SamplingParams(temperature=0.0),
    "sampled": SamplingParams(temperature=0.8, seed=1),
    "top-p": SamplingParams(temperature=0.8, top_p=0.9, seed=1),
}

_LONG_PROMPT_TOKENS = 4000


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
        prompts = _prompts(generations, args.prefix, bare.vocab_size)
        draft = tuple(_prompts(1, args.window, bare.vocab_size)[0].tolist())
        for sampling, params in _PARAMS.items():
            driver = _warm_driver(engine, prompts.tolist(), params)
            names = [f"g{i}" for i in range(generations)]
            bare_s, our_s = _interleaved(
                _bare_call(bare, prompts, args.window + 1),
                partial(driver.round_of, names, draft),
                args.repeats,
            )
            driver.close()
            print(
                f"{generations:>11} {sampling:>9} {bare_s * 1e3:>9.1f} {our_s * 1e3:>10.1f} {our_s / bare_s:>6.2f}",
                flush=True,
            )
    _beside_a_long_prompt(engine, bare.vocab_size, args.prefix, args.window, args.repeats)


def _interleaved(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median seconds of both, called in turn after one warm-up each."""
    times = [(_seconds(first), _seconds(second)) for _ in range(repeats + 1)][1:]
    return statistics.median(t for t, _ in times), statistics.median(t for _, t in times)


def _seconds(call: Callable[[], object]) -> float:
    _synchronise()
    began_at_s = time.perf_counter()
    call()
    _synchronise()
    return time.perf_counter() - began_at_s


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _prompts(generations: int, length: int, vocab_size: int) -> torch.Tensor:
    """``[generations, length]`` random token ids, the same in every run."""
    return torch.randint(0, vocab_size, (generations, length), generator=torch.Generator().manual_seed(0))


def _bare_call(loaded: LoadedModel, prompts: torch.Tensor, new_tokens: int) -> Callable[[], object]:
    """The plain model over ``new_tokens`` per row of ``prompts``, whose KV is in a ``DynamicCache``."""
    model: PreTrainedModel = loaded.model
    cache = DynamicCache(config=model.config)
    new = _prompts(len(prompts), new_tokens, loaded.vocab_size).to(model.device)
    with torch.inference_mode():
        model(input_ids=prompts.to(model.device), past_key_values=cache, use_cache=True, logits_to_keep=1)

    @torch.inference_mode()
    def call() -> object:
        logits = model(input_ids=new, past_key_values=cache, use_cache=True).logits
        cache.crop(-new_tokens)
        return logits

    return call


class _Driver:
    """Generations of one engine, driven with drafts of random tokens."""

    def __init__(self, engine: TorchVerifier, params: SamplingParams) -> None:
        self._engine = engine
        self._params = params
        self._tokens: dict[str, list[int]] = {}
        self._round = 0

    def add(self, name: str, prompt: Sequence[int]) -> None:
        """Open a generation; its prompt is computed by its first blocks."""
        self._tokens[name] = list(prompt)
        self._engine.open(OpenGeneration(name, tuple(prompt), self._params))

    def block(self, name: str, draft: tuple[int, ...] = ()) -> Block:
        """The next round of one generation."""
        self._round += 1
        return Block(
            generation=name,
            round=self._round,
            position=len(self._tokens[name]),
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, self._tokens[name]),
            draft=draft,
            rule=AcceptanceRule.GREEDY if self._params.greedy else AcceptanceRule.SHARED_NOISE,
        )

    def verify(self, blocks: Sequence[Block]) -> list[Block]:
        """One forward pass; returns the blocks that are not decided yet."""
        unfinished = []
        for block, outcome in zip(blocks, self._engine.verify(blocks), strict=True):
            if isinstance(outcome, Unfinished):
                unfinished.append(block)
            elif isinstance(outcome, Verified) and outcome.next_token is not None:
                accepted = block.draft[: outcome.accepted_len]
                self._tokens[block.generation] += [*accepted, outcome.next_token]
        return unfinished

    def round_of(self, names: Sequence[str], draft: tuple[int, ...]) -> None:
        """One forward pass over warm generations, all with the same draft."""
        self.verify([self.block(name, draft) for name in names])

    def close(self) -> None:
        """Give the memory back."""
        for name in self._tokens:
            self._engine.close(name, keep_cache=False)


def _warm_driver(engine: TorchVerifier, prompts: Sequence[Sequence[int]], params: SamplingParams) -> _Driver:
    """Generations g0, g1, ... whose prompts are computed."""
    driver = _Driver(engine, params)
    for i, prompt in enumerate(prompts):
        driver.add(f"g{i}", prompt)
    blocks = [driver.block(f"g{i}") for i in range(len(prompts))]
    while blocks:
        blocks = driver.verify(blocks)
    return driver


def _beside_a_long_prompt(engine: TorchVerifier, vocab_size: int, prefix: int, window: int, repeats: int) -> None:
    """How much a warm generation's round slows down while a long prompt is computed in chunks beside it."""
    driver = _warm_driver(engine, _prompts(1, prefix, vocab_size).tolist(), SamplingParams(temperature=0.0))
    draft = tuple(_prompts(1, window, vocab_size)[0].tolist())
    alone = [_seconds(partial(driver.round_of, ["g0"], draft)) for _ in range(repeats)]
    driver.add("long", _prompts(1, _LONG_PROMPT_TOKENS, vocab_size)[0].tolist())
    waiting, beside = [driver.block("long")], []
    while waiting:
        began_at_s = time.perf_counter()
        waiting = driver.verify([driver.block("g0", draft), *waiting])
        beside.append(time.perf_counter() - began_at_s)
    driver.close()
    print(
        f"beside a prompt of {_LONG_PROMPT_TOKENS} tokens a warm round takes {statistics.median(beside) * 1e3:.0f} ms "
        f"(longest {max(beside) * 1e3:.0f} ms, {len(beside)} passes), alone {statistics.median(alone) * 1e3:.0f} ms"
    )
