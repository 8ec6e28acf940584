"""``outrider bench interference``: what a short request pays for sharing a batch with a long one (WISP figure 4).

Short is a round of K draft tokens behind a resident prefix. Long is one behind a prompt that nobody has seen, whose KV
has to be computed first. Each is verified alone, then both together, in turns, by an engine that computes prompts
whole, as the paper's, and by one that computes them in chunks, as the product does. In chunks the long request takes
several passes, and the short one takes a round in each; whole, its one round lasts as long as the long request's.
"""

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from scipy.stats import bootstrap

from bench.interference_plot import plot
from bench.json_file import write_json
from bench.text_table import print_table
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.slo import DEFAULT_CLASSES
from outrider.contracts.verifying import AcceptanceRule, Block, OpenGeneration, Unfinished, Verified
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.verifier import ServableModel, TorchVerifier
from outrider.models.registry import load_target

_WHOLE = 2**20  # a chunk no prompt exceeds
_GREEDY = SamplingParams(temperature=0.0)
_SHORT_ROUNDS = 3  # alone, for each trial: one is quick, and noisy
_SCHEDULER = """
What the scheduler does about it: prefill_chunk_tokens bounds what all cold blocks of one pass compute of their prompts,
so a short round waits for one chunk at most, not for a prompt. A deadline policy adds a cold block's chunk to a batch
only where the pass then still ends before the deadlines of those that can meet theirs; a pass that is too long for the
promise in the last column is one it would not plan for a response without credit that commits one token a round."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One turn.

    Attributes:
        long_tokens: of the unseen prompt.
        chunk_tokens: computed per pass at most; None is the whole prompt.
        short_s: the short round alone.
        long_s: the long request alone, all its passes.
        together_s: each pass of the long request with a round of the short one in it.
    """

    long_tokens: int
    chunk_tokens: int | None
    short_s: float
    long_s: float
    together_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Median:
    """Of the trials, with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        """``412 [380, 441]``."""
        return f"{self.median:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all trials of one prompt length and chunk.

    Attributes:
        short_ms: alone.
        long_ms: alone.
        shared_ms: a short round that shares its pass with the long request.
        slowdown: ``shared_ms`` over ``short_ms``, trial by trial.
        long_shared_ms: the long request with short rounds beside it.
        passes: the long request takes.
        fastest_promise: SLO class whose speed one token in every shared round keeps; None if there is none.
    """

    long_tokens: int
    chunk_tokens: int | None
    short_ms: Median
    long_ms: Median
    shared_ms: Median
    slowdown: Median
    long_shared_ms: Median
    passes: int
    fastest_promise: str | None


class Bed:
    """An engine with one warm generation."""

    def __init__(self, target: ServableModel, chunk_tokens: int | None, prefix_tokens: int, window: int) -> None:
        """Compute the short request's prefix."""
        self.chunk_tokens = chunk_tokens
        limits = EngineLimits(kv_budget_bytes=2**30, prefill_chunk_tokens=chunk_tokens or _WHOLE)
        self._engine = TorchVerifier(target, limits)
        self._rng = np.random.default_rng(0)
        self._vocab_size = target.vocab_size
        self._draft = self._random_ids(window)
        self._round = 0
        self._short = list(self._random_ids(prefix_tokens))
        self._engine.open(OpenGeneration("short", tuple(self._short), _GREEDY))
        self._passes("short", self._short)

    def trial(self, long_tokens: int) -> Trial:
        """Short alone, long alone, both together."""
        short_s = median(self._pass([self._block("short", self._short)])[0] for _ in range(_SHORT_ROUNDS))
        alone_s = self._long(long_tokens, beside=False)
        together_s = self._long(long_tokens, beside=True)
        return Trial(long_tokens, self.chunk_tokens, short_s, sum(alone_s), tuple(together_s))

    def _long(self, tokens: int, *, beside: bool) -> list[float]:
        """Seconds of each pass."""
        prompt = list(self._random_ids(tokens))
        self._engine.open(OpenGeneration("long", tuple(prompt), _GREEDY))
        seconds = self._passes("long", prompt, beside=beside)
        self._engine.close("long", keep_cache=False)
        return seconds

    def _passes(self, name: str, tokens: list[int], *, beside: bool = False) -> list[float]:
        """Until the block is decided."""
        block, seconds, unfinished = self._block(name, tokens), [], True
        while unfinished:
            took_s, unfinished = self._pass([*([self._block("short", self._short)] if beside else ()), block])
            seconds.append(took_s)
        return seconds

    def _pass(self, blocks: Sequence[Block]) -> tuple[float, bool]:
        """Seconds, and whether one of them is not decided yet."""
        _synchronise()
        began_at_s = time.perf_counter()
        outcomes = self._engine.verify(blocks)
        _synchronise()
        took_s = time.perf_counter() - began_at_s
        for block, outcome in zip(blocks, outcomes, strict=True):
            if block.generation == "short" and isinstance(outcome, Verified) and outcome.next_token is not None:
                self._short += [*block.draft[: outcome.accepted_len], outcome.next_token]
        return took_s, any(isinstance(outcome, Unfinished) for outcome in outcomes)

    def _block(self, name: str, tokens: Sequence[int]) -> Block:
        self._round += 1
        return Block(
            generation=name,
            round=self._round,
            position=len(tokens),
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, tokens),
            draft=self._draft,
            rule=AcceptanceRule.GREEDY,
        )

    def _random_ids(self, count: int) -> tuple[int, ...]:
        return tuple(self._rng.integers(0, self._vocab_size, count).tolist())


def main(argv: Sequence[str]) -> None:
    """Run the bench; print its table, and write figures and plot."""
    args = _parser().parse_args(argv)
    torch.set_num_threads(args.threads)
    # A model for each engine: an engine replaces the attention of its own.
    beds = [
        Bed(load_target(args.target, dtype=args.dtype, device=args.device), chunk, args.prefix, args.window)
        for chunk in (None, *args.chunks)
    ]
    found = figures(measured(beds, args.long, args.repeats))
    report(found)
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()}
    write_json(args.out, {"settings": settings, "figures": found})
    plot(args.plot, found)


def measured(beds: Sequence[Bed], lengths: Sequence[int], repeats: int) -> Iterable[Trial]:
    """Trials in turns, after a warm-up of each engine: what drifts meanwhile drifts for all."""
    for bed in beds:
        bed.trial(lengths[0])
    for _ in range(repeats):
        for length in lengths:
            for bed in beds:
                yield bed.trial(length)


def figures(trials: Iterable[Trial]) -> list[Figures]:
    """By prompt length and chunk, in the order met."""
    groups: dict[tuple[int, int | None], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.long_tokens, trial.chunk_tokens), []).append(trial)
    return [_of_group(group) for group in groups.values()]


def report(found: Sequence[Figures]) -> None:
    """The table and what follows from it."""
    rows = [
        (
            one.long_tokens,
            one.chunk_tokens or "whole",
            f"{one.short_ms:.0f}",
            f"{one.shared_ms:.0f}",
            f"{one.slowdown:.1f}",
            f"{one.long_ms:.0f}",
            f"{one.long_shared_ms:.0f}",
            one.passes,
            one.fastest_promise or "none",
        )
        for one in found
    ]
    header = ("prompt", "chunk", "short ms", "shared ms", "times", "long ms", "long shared ms", "passes", "keeps")
    print_table("A short round alone and beside a long request (medians, 95 % intervals)", header, rows)
    print(_SCHEDULER)


def _of_group(group: Sequence[Trial]) -> Figures:
    shared = [median(trial.together_s) for trial in group]
    shared_s = median(shared)
    kept = [known for known in DEFAULT_CLASSES if 0.0 < known.tokens_per_s * shared_s <= 1.0]
    return Figures(
        long_tokens=group[0].long_tokens,
        chunk_tokens=group[0].chunk_tokens,
        short_ms=_median([1e3 * trial.short_s for trial in group]),
        long_ms=_median([1e3 * trial.long_s for trial in group]),
        shared_ms=_median([1e3 * one for one in shared]),
        slowdown=_median([one / trial.short_s for one, trial in zip(shared, group, strict=True)]),
        long_shared_ms=_median([1e3 * sum(trial.together_s) for trial in group]),
        passes=len(group[0].together_s),
        fastest_promise=max(kept, key=lambda known: known.tokens_per_s).name if kept else None,
    )


def _median(values: Sequence[float]) -> Median:
    if len(values) == 1:
        return Median(values[0], values[0], values[0])
    drawn = bootstrap((values,), np.median, method="percentile", n_resamples=2000, rng=np.random.default_rng(0))
    return Median(median(values), float(drawn.confidence_interval.low), float(drawn.confidence_interval.high))


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench interference", description=__doc__)
    add = parser.add_argument
    add("--target", default="embedded")
    add("--dtype", default="float32", choices=["float32", "bfloat16"])
    add("--device", default="cpu")
    add("--threads", type=int, default=1)
    add("--window", type=int, default=8, help="draft tokens of a round (default: %(default)s)")
    add("--prefix", type=int, default=500, help="resident tokens of the short request (default: %(default)s)")
    add("--long", type=int, nargs="+", default=[128, 256, 512], help="prompts of the long one (default: %(default)s)")
    add("--chunks", type=int, nargs="+", default=[64], help="besides whole prompts (default: %(default)s)")
    add("--repeats", type=int, default=7)
    add("--out", type=Path, default=Path("interference.json"), help="figures (default: %(default)s)")
    add("--plot", type=Path, default=Path("interference.png"), help="default: %(default)s")
    return parser
