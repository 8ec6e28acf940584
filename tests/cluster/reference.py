"""What the target alone answers: plain transformers, one request at a time, no speculation."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig

from outrider.contracts.requests import SamplingParams
from outrider.engines.segments import Segment
from outrider.engines.torch.served import target_model
from outrider.models.loading import LoadedModel, load_target
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.row_groups import RowGroup, TokenCounts
from outrider.text.tokens import TokenTable

_BLOCKS, _BLOCK_TOKENS = 64, 16


def greedy(target: LoadedModel, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Transformers' own greedy generate."""
    options = GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, eos_token_id=list(target.eos_token_ids), pad_token_id=0
    )
    ids = torch.tensor([list(prompt)])
    generate: Any = target.model.generate
    output = generate(ids, attention_mask=torch.ones_like(ids), generation_config=options)
    return [int(token) for token in output[0, len(prompt) :]]


@torch.inference_mode()
def sampled(target: LoadedModel, prompt: Sequence[int], params: SamplingParams, max_tokens: int) -> list[int]:
    """The target token by token, each drawn from its logits with the request's seed."""
    cache = DynamicCache(config=target.model.config)
    tokens, new = list(prompt), list(prompt)
    while len(tokens) - len(prompt) < max_tokens:
        output = target.model(input_ids=torch.tensor([new]), past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits = output.logits[0, :, : target.vocab_size]
        counts = TokenCounts(target.vocab_size, prompt, tokens[len(prompt) :])
        new = choose_tokens(logits, [RowGroup(params, len(tokens), counts, (), 1)]).tolist()
        tokens += new
        if new[0] in target.eos_token_ids:
            break
    return tokens[len(prompt) :]


def plain(target: LoadedModel, prompt: Sequence[int], params: SamplingParams, max_tokens: int) -> list[int]:
    """Either, as the request has it."""
    return greedy(target, prompt, max_tokens) if params.greedy else sampled(target, prompt, params, max_tokens)


class EngineAlone:
    """The torch engine's forward pass and nothing else: a prompt in one pass, then token by token."""

    def __init__(self, dtype: str) -> None:
        torch.set_num_threads(1)
        self._target = load_target("embedded", dtype=dtype, device="cpu")
        self._blocks = list(range(_BLOCKS))
        self._model = target_model(self._target.model, _BLOCKS, _BLOCK_TOKENS)

    def answer(self, prompt: Sequence[int], params: SamplingParams, max_tokens: int) -> list[int]:
        """The tokens behind a prompt."""
        target, tokens, start = self._target, list(prompt), 0
        while len(tokens) - len(prompt) < max_tokens:
            logits = self._model.forward([Segment(tokens[start:], start, self._blocks, 1)]).logits
            counts = TokenCounts(target.vocab_size, prompt, tokens[len(prompt) :])
            group = RowGroup(params, len(tokens), counts, (), 1)
            start = len(tokens)
            tokens += choose_tokens(logits[:, : target.vocab_size], [group]).tolist()
            if tokens[-1] in target.eos_token_ids:
                break
        return tokens[len(prompt) :]


@torch.inference_mode()
def raw_logprobs(target: LoadedModel, token_ids: Sequence[int]) -> torch.Tensor:
    """``[len - 1, vocab]``: row i is the target's raw distribution of token i + 1."""
    logits: torch.Tensor = target.model(input_ids=torch.tensor([list(token_ids)])).logits[0, :-1, : target.vocab_size]
    return logits.log_softmax(-1)


def scores(target: LoadedModel, prompt: Sequence[int], token_ids: Sequence[int]) -> list[float]:
    """The target's raw log-probability of each token behind the prompt."""
    rows = raw_logprobs(target, [*prompt, *token_ids])[len(prompt) - 1 :]
    return [float(row[token]) for row, token in zip(rows, token_ids, strict=True)]


def ids_of(target: LoadedModel, names: Sequence[str]) -> list[int]:
    """The tokens that a response's log-probabilities name so."""
    ids = _ids_by_name(target.tokenizer, target.vocab_size)
    return [ids[name] for name in names]


@cache
def _ids_by_name(tokenizer: Any, vocab_size: int) -> dict[str, int]:
    table = TokenTable(tokenizer.backend_tokenizer)
    return {table.name(i): i for i in range(vocab_size)}


def shown(target: LoadedModel, token_ids: Sequence[int]) -> str:
    """The text a client sees of these tokens."""
    text = target.tokenizer.decode(list(token_ids), skip_special_tokens=True)
    assert isinstance(text, str)
    return text
