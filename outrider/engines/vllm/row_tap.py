"""Keeps logits rows for who asks, inside vLLM's workers, by its interface for custom logits processors.

Why not ``SamplingParams.logprobs = -1``: vLLM then sorts each row and copies it, token by token, into Python lists: at
least 13 ms for a row of 49,152 tokens. A logits processor sees the row as it is: float32, before temperature, penalties
and truncation.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

ROW = "outrider_row"  # in ``SamplingParams.extra_args``: the name to keep this request's row under
_kept: dict[int, Tensor] = {}  # of all engines in this process; who names rows sees to it that no two are the same


class RowTap(AdapterLogitsProcessor):  # type: ignore[misc]  # vLLM is optional, and not followed
    """Keeps the last row a request was shown; one that asks for a single token has no other."""

    def is_argmax_invariant(self) -> bool:
        """No, or greedy requests would not come by: vLLM shows those only processors that may change the argmax."""
        return False

    def new_req_logits_processor(self, params: Any) -> "_Keep | None":
        """A keeper for a request that names its row."""
        name = (params.extra_args or {}).get(ROW)
        return None if name is None else _Keep(name)


class _Keep:
    """One request's logits processor."""

    def __init__(self, name: int) -> None:
        self._name = name

    def __call__(self, output_ids: list[int], logits: Tensor) -> Tensor:  # noqa: ARG002 (vLLM's signature)
        """Copy the row, which vLLM goes on to change. Those behind all but the last chunk of a prompt mean nothing."""
        _kept[self._name] = logits.to(torch.float32, copy=True)
        return logits


def take_rows(worker: Any, names: Sequence[int], *, on_host: bool) -> Tensor | None:
    """Hand over rows, and forget them. For ``LLM.collective_rpc``.

    Args:
        worker: vLLM's.
        names: at least one.
        on_host: bring them to main memory, for another process.

    Returns:
        ``[len(names), vocab]`` float32 in the order of ``names``; None from every rank but 0.

    Raises:
        KeyError: no request came by under one of the names.
    """
    if worker.rank:  # every rank samples, and so keeps the rows
        for name in names:
            _kept.pop(name, None)
        return None
    rows = torch.stack([_kept.pop(name) for name in names])
    return rows.cpu() if on_host else rows
