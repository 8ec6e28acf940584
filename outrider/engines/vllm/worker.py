"""Code inside vLLM's workers: one pass of the model runner, which ends before vLLM would sample.

vLLM mixes ``PassWorker`` into its worker class by name (``worker_extension_cls``), and makes a ``NoProposer`` by name,
too. Both must be importable in worker processes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from outrider.engines.vllm.kv_layout import KvLayout, describe
from outrider.sampling.device_tensors import index_tensor


class NoProposer:
    """Makes vLLM return several logits rows per request. It is never called: drafts come from elsewhere."""

    def __init__(self, config: object) -> None: ...

    def load_model(self, target: object) -> None: ...

    def propose(self, *inputs: object) -> list[list[int]]:  # noqa: ARG002 (vLLM's signature)
        return []


class PassWorker:
    """Methods for vLLM's worker, called by ``collective_rpc``."""

    rank: int
    model_runner: Any

    def outrider_pass(
        self, scheduled: object, rows: Mapping[str, int], *, want_hidden: bool
    ) -> tuple[Tensor, Tensor | None] | None:
        """Run one pass.

        Args:
            scheduled: vLLM's ``SchedulerOutput``; its requests are in our order.
            rows: number of last rows that each request wants, in that order.
            want_hidden: whether the final hidden states of these rows are wanted, too.

        Returns:
            ``[R, vocab]`` logits and ``[R, d]`` hidden states, wanted rows in our order; None on every rank but 0.
        """
        runner = self.model_runner
        self._wait()  # the last pass must have read the pinned input buffers before they are filled again
        self.execute_model(scheduled)  # type: ignore[attr-defined]  # vLLM's worker has it
        if not any(rows.values()):
            self._wait()  # no reader waits for this pass, so its time would not be measured
        state, runner.execute_model_state, runner.kv_connector_output = runner.execute_model_state, None, None
        if self.rank:
            return None
        logits, hidden = state.logits, state.sample_hidden_states if want_hidden else None
        index = kept_rows(runner.input_batch.req_ids, rows)
        if index is not None:
            at = index_tensor(index, logits.device)
            logits, hidden = logits[at], None if hidden is None else hidden[at]
        return logits, hidden

    def _wait(self) -> None:
        if self.model_runner.device.type == "cuda":
            torch.cuda.current_stream().synchronize()

    def outrider_describe(self) -> KvLayout:
        return describe(self.model_runner)


def kept_rows(order: Sequence[str], wanted: Mapping[str, int]) -> list[int] | None:
    """Return the indices of the wanted rows in a pass's logits; None if they are all of them, in order.

    Args:
        order: the runner's order of requests, which is that of its logits.
        wanted: rows of each request, in our order. The runner computes at least one row for each.
    """
    if list(order) == list(wanted) and all(wanted.values()):
        return None
    ends, end = {}, 0
    for name in order:
        end += max(1, wanted[name])
        ends[name] = end
    return [row for name, rows in wanted.items() for row in range(ends[name] - rows, ends[name])]
