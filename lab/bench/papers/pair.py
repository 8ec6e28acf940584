"""Draft and target distributions at the same positions of real responses.

The target writes the responses; at each of their positions both models' logits are conditioned on the same tokens.
Nothing is stored on disk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from tqdm import tqdm
from transformers import DynamicCache

from lab.bench.harness.prompts import PROMPTS
from outrider.contracts.exchanged import FloatRow, IntRow
from outrider.contracts.requests import SamplingParams
from outrider.models.loading import LoadedModel, load_drafter, load_target
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.logits import adjust_logits
from outrider.sampling.row_groups import RowGroup
from outrider.training.traces import prompt_ids


@dataclass(frozen=True)
class Pair:
    target: LoadedModel
    drafter: LoadedModel


@dataclass(frozen=True, slots=True)
class Amount:
    """Extent of a measurement: number of responses, their maximum tokens, and the first seed."""

    prompts: int
    tokens: int
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PairRows:
    """One response and both models' rows along it, after the request's temperature and truncation."""

    token_ids: IntRow  # ``[n]`` int64, the response
    target_logits: FloatRow  # ``[n, vocab]`` float32; -inf for removed tokens
    draft_logits: FloatRow  # the same of the drafter


def load_pair(target: str, drafter: str) -> Pair:
    """Load both models in float32 on the CPU, by registry name or path; they run in one thread."""
    torch.set_num_threads(1)
    return Pair(
        load_target(target, dtype="float32", device="cpu"),
        load_drafter(drafter, target, dtype="float32", device="cpu"),
    )


def pair_rows(pair: Pair, params: SamplingParams, amount: Amount) -> Iterator[PairRows]:
    """Responses to the benches' first prompts; prompt i is sampled with the seed ``amount.seed + i``."""
    for number, prompt in enumerate(tqdm(PROMPTS[: amount.prompts], desc="responses", disable=None)):
        ids = prompt_ids(pair.target.tokenizer, prompt)
        yield _rows(pair, ids, replace(params, seed=amount.seed + number), amount.tokens)


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
