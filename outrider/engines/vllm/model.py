"""The forward passes of a ``PagedVerifier``, made by vLLM.

vLLM's scheduler, sampler and prefix cache stay idle: a pass is a ``SchedulerOutput`` of ours, in which every segment is
a fresh request that names its KV blocks, and the worker hands over logits and hidden states before anything is sampled.
So vLLM draws no random number, and under tensor parallelism every rank gets the same token ids by construction.

Under tensor parallelism rank 0 is this process and the others run beside it (``leading``): rows of logits never leave
the device they are on, and everything behind them (sampling parameters, acceptance) is computed there.
"""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.contracts.errors import EngineUnavailableError, ParameterError, UnsupportedModelError
from outrider.engines.forward_model import BlockCopy, PassResult, Segment
from outrider.engines.vllm.install import check_install
from outrider.engines.vllm.kv_layout import KvLayout
from outrider.engines.vllm.passes import split
from outrider.engines.vllm.settings import VllmSettings
from outrider.events import event

_LOG = logging.getLogger(__name__)
# Two passes over the same tokens, one of them over KV of the other, may differ by rounding; wrong KV differs by more.
_SELF_TEST_TOLERANCE = 0.2


class VllmForward:
    """A ``BranchModel``: one vLLM engine with all its KV blocks. Use it in the thread that made it.

    Attributes:
        kv_bytes: of all KV blocks.
        max_positions: of the longest sequence: vLLM shortens the context to what the KV memory holds.
        no_logits: as wide as the model's head.
    """

    def __init__(self, settings: VllmSettings) -> None:
        """Start vLLM, and try it.

        Raises:
            EngineUnavailableError: the vLLM this engine needs is not installed, does not start (for want of memory
                say), or computes over resident KV something else than without it.
            UnsupportedModelError: KV of this model is more than one set of full-attention blocks.
            ParameterError: an option that vLLM does not have, a KV budget too small, or blocks of another size.
        """
        spec = settings.spec
        check_install(spec.device)
        from outrider.engines.vllm.runner import Runner  # noqa: PLC0415 (imports vLLM)

        if spec.device == "cuda" and spec.tensor_parallel_size > 1:
            event(_LOG, "vllm_tensor_parallel_untested", logging.WARNING, gpus=spec.tensor_parallel_size)
        self._settings = settings
        self.block_tokens = spec.limits.block_tokens
        self._runner = Runner(settings)
        try:
            layout = self._runner.describe()
            self.total_blocks = self._blocks_for_us(layout)
            self.kv_bytes = layout.blocks * layout.block_bytes
            self.max_positions = layout.max_context_tokens
            self.no_logits = self._self_test()
        except BaseException:
            self._runner.close()
            raise

    def forward(
        self, segments: Sequence[Segment], copies: Sequence[BlockCopy] = (), *, want_hidden: bool = False
    ) -> PassResult:
        """One pass, or several if there are more tokens or segments than one takes; see ``BranchModel.forward``."""
        parts = split(segments, self._settings.spec.max_pass_tokens, self._settings.max_pass_segments)
        results = [
            self._runner.run(part, copies if index == 0 else (), want_hidden=want_hidden)
            for index, part in enumerate(parts)
        ]
        if len(results) == 1:
            return PassResult(*results[0])
        hidden = [rows for _, rows in results if rows is not None]
        return PassResult(torch.cat([logits for logits, _ in results]), torch.cat(hidden) if hidden else None)

    def close(self) -> None:
        """Stop vLLM and free its memory. Repeatable."""
        self._runner.close()

    def _blocks_for_us(self, layout: KvLayout) -> int:
        """See that the model's KV is such as this engine keeps, and count its blocks."""
        fault = layout.fault(self._settings.max_context_tokens)
        if fault is not None:
            raise UnsupportedModelError(
                f"the vLLM engine serves models with one set of full-attention KV, found that "
                f"{self._settings.folder.name} {fault}; serve another model, or this one within its attention window"
            )
        if layout.block_tokens != self.block_tokens:
            needed = f"{layout.block_tokens}, which vLLM takes for this model here"
            raise ParameterError("kv_block_tokens", needed, self.block_tokens)
        if layout.blocks < 2:
            raise ParameterError("kv_budget_mib", "memory for two KV blocks or more", f"memory for {layout.blocks}")
        return layout.blocks - 1  # vLLM's block 0 stands for none and is never written: our 0 is its 1

    def _self_test(self) -> Tensor:
        """Compute a row again over resident KV, and over a copied block; returns no rows of that kind.

        The version does not answer for this: attention's implementation is chosen by hardware, model and options.
        """
        tokens = [1 % self._settings.vocab_size, 2 % self._settings.vocab_size, 0]
        whole = self.forward([Segment(tokens, 0, [0], 3)]).logits
        again = [self.forward([Segment(tokens[2:], 2, [0], 1)]).logits]
        if self.total_blocks > 1:
            again.append(self.forward([Segment(tokens[2:], 2, [1], 1)], [BlockCopy(0, 1)]).logits)
        scale = (whole[2] - whole[2].mean()).norm()
        if not all((whole[2] - rows[0]).norm() <= _SELF_TEST_TOLERANCE * scale for rows in again):
            raise EngineUnavailableError(
                f"needs passes over resident KV that agree with one pass over all, found that vLLM's differ for "
                f"{self._settings.folder.name}; change verifiers.vllm_options, or set verifiers.engine to torch"
            )
        return whole[:0].clone()
