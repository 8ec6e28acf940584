"""Draft and target distributions at the same positions of real responses, and the two models' step times.

The target writes the responses; at each of their positions both models' logits are conditioned on the same tokens.
Nothing is kept on disk.
"""

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import DynamicCache

from bench.prompts import PROMPTS
from outrider.contracts.exchanged import FloatRow, IntRow
from outrider.contracts.requests import SamplingParams
from outrider.models.registry import LoadedModel, load_drafter, load_target
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.logits import RowGroup, adjust_logits
from outrider.training.traces import prompt_ids

_PREFIX_TOKENS = 128  # behind which steps are timed; DSSD's prompts have as many


@dataclass(frozen=True)
class Pair:
    """A target and its drafter."""

    target: LoadedModel
    drafter: LoadedModel


@dataclass(frozen=True, slots=True, eq=False)
class PairRows:
    """One response and both models' rows along it, after the request's temperature and truncation.

    Attributes:
        token_ids: ``[n]`` int64, the response.
        target_logits: ``[n, vocab]`` float32; -inf for removed tokens.
        draft_logits: likewise.
    """

    token_ids: IntRow
    target_logits: FloatRow
    draft_logits: FloatRow


def add_pair_options(parser: argparse.ArgumentParser) -> None:
    """What every bench on a pair's rows can be told."""
    parser.add_argument("--target", default="embedded", help="name or path (default: %(default)s)")
    parser.add_argument("--drafter", default="embedded", help="name or path (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="responses of a kind (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=48, help="of a response at most (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first response (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="of each timed step (default: %(default)s)")


def load_pair(target: str, drafter: str) -> Pair:
    """Load both models in float32 on the CPU, by registry name or path; they run in one thread."""
    torch.set_num_threads(1)
    return Pair(
        load_target(target, dtype="float32", device="cpu"),
        load_drafter(drafter, target, dtype="float32", device="cpu"),
    )


def pair_rows(pair: Pair, params: SamplingParams, *, prompts: int, tokens: int) -> Iterator[PairRows]:
    """Responses of at most ``tokens`` tokens to the first ``prompts`` bench prompts, one by one.

    Args:
        pair: both models.
        params: of the requests; prompt i is sampled with ``params.seed + i``.
        prompts: at most ``len(PROMPTS)``.
        tokens: length limit; a response ends before it at an end-of-sequence token.
    """
    for number, prompt in enumerate(tqdm(PROMPTS[:prompts], desc="responses", disable=None)):
        ids = prompt_ids(pair.target.tokenizer, prompt)
        yield _rows(pair, ids, replace(params, seed=params.seed + number), tokens)


@torch.inference_mode()
def _rows(pair: Pair, prompt: Sequence[int], params: SamplingParams, tokens: int) -> PairRows:
    vocab, start = pair.target.vocab_size, len(prompt)
    cache = DynamicCache(config=pair.target.model.config)
    pending, output, rows = list(prompt), list[int](), list[torch.Tensor]()
    while len(output) < tokens and not (output and output[-1] in pair.target.eos_token_ids):
        logits = pair.target.model(
            input_ids=torch.tensor([pending]), past_key_values=cache, use_cache=True, logits_to_keep=1
        ).logits[0, :, :vocab]
        group = RowGroup(params, start + len(output), None, (), 1)
        rows.append(adjust_logits(logits, [group]))
        pending = [int(choose_tokens(logits, [group])[0])]
        output += pending
    positions = torch.arange(start - 1, start + len(output) - 1)
    ids = torch.tensor([[*prompt, *output]])
    drafts = pair.drafter.model(input_ids=ids, logits_to_keep=positions, use_cache=False).logits[0, :, :vocab]
    group = RowGroup(params, start, None, tuple(output[:-1]), len(output))
    return PairRows(
        token_ids=np.array(output, dtype=np.int64),
        target_logits=torch.cat(rows).numpy(),
        draft_logits=adjust_logits(drafts, [group]).numpy(),
    )


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Median seconds of one forward pass over so many new tokens behind a resident prefix.

    CPU time of the one thread that computes: what a pass takes on a machine that does nothing else.
    """

    target_s: dict[int, float]
    drafter_s: dict[int, float]

    @property
    def ratio(self) -> float:
        """T_SLM / T_LLM."""
        return self.drafter_s[1] / self.target_s[1]

    def __str__(self) -> str:
        """Milliseconds by new tokens."""
        models = (("target", self.target_s), ("drafter", self.drafter_s))
        columns = (
            "; ".join(f"{width}: {taken_s * 1e3:.1f}" for width, taken_s in times.items()) for _, times in models
        )
        named = ", ".join(f"{name} {{{column}}}" for (name, _), column in zip(models, columns, strict=True))
        return f"CPU ms per pass by new tokens behind {_PREFIX_TOKENS}: {named}"


def measure_steps(
    pair: Pair, *, target_widths: Sequence[int], drafter_widths: Sequence[int], repeats: int
) -> StepTimes:
    """Time both models; every width in turn and then again, so that a busy moment hits all of them."""
    warm = {id(loaded): _warm(loaded) for loaded in (pair.target, pair.drafter)}
    kinds = [(pair.target, width) for width in target_widths] + [(pair.drafter, width) for width in drafter_widths]
    times: dict[tuple[int, int], list[float]] = {(id(loaded), width): [] for loaded, width in kinds}
    for _ in range(repeats + 1):
        for loaded, width in kinds:
            times[id(loaded), width].append(_step_s(loaded, warm[id(loaded)], width))

    def median_s(loaded: LoadedModel, width: int) -> float:
        return statistics.median(times[id(loaded), width][1:])  # the first warms up

    return StepTimes(
        {width: median_s(pair.target, width) for width in target_widths},
        {width: median_s(pair.drafter, width) for width in drafter_widths},
    )


@torch.inference_mode()
def _warm(loaded: LoadedModel) -> Any:
    cache = DynamicCache(config=loaded.model.config)
    loaded.model(input_ids=_any_tokens(loaded, _PREFIX_TOKENS), past_key_values=cache, use_cache=True, logits_to_keep=1)
    return cache


@torch.inference_mode()
def _step_s(loaded: LoadedModel, cache: Any, width: int) -> float:
    new = _any_tokens(loaded, width)
    began_at_s = time.thread_time()
    loaded.model(input_ids=new, past_key_values=cache, use_cache=True)
    taken_s = time.thread_time() - began_at_s
    cache.crop(-width)
    return taken_s


def _any_tokens(loaded: LoadedModel, count: int) -> torch.Tensor:
    return torch.randint(0, loaded.vocab_size, (1, count), generator=torch.Generator().manual_seed(0))
