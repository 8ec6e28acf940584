"""What the target alone answers: plain transformers, one request at a time, no speculation."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig

from outrider.contracts.requests import SamplingParams
from outrider.models.loading import LoadedModel
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.logits import RowGroup, TokenCounts


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


def shown(target: LoadedModel, token_ids: Sequence[int]) -> str:
    """The text a client sees of these tokens."""
    text = target.tokenizer.decode(list(token_ids), skip_special_tokens=True)
    assert isinstance(text, str)
    return text
