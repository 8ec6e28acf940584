"""Wall seconds of calls that may compute on a GPU, and the plain model as a baseline."""

import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache

Call = Callable[[], object]


def seconds_of(call: Call) -> float:
    """From an idle device to an idle device."""
    _synchronise()
    began_at_s = time.perf_counter()
    call()
    _synchronise()
    return time.perf_counter() - began_at_s


def plain_step(model: Any, generations: int, prefix: int, new_tokens: int) -> Call:
    """A pass of a transformers model over ``new_tokens`` of each generation, behind a ``DynamicCache``.

    The cached prefix is random: the time of a pass does not depend on it.
    """
    config = model.config
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = (generations, config.num_key_value_heads, prefix, head_size)
    cache = DynamicCache(config=config)
    for layer in range(config.num_hidden_layers):
        row = torch.randn(shape, dtype=model.dtype, device=model.device)
        cache.update(row, row.clone(), layer)
    new = torch.zeros(generations, new_tokens, dtype=torch.long, device=model.device)

    @torch.inference_mode()
    def step() -> None:
        model(input_ids=new, past_key_values=cache, use_cache=True)
        cache.crop(-new_tokens)

    return step


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
