"""Paged model on vLLM: computes the forward passes of a ``PagedVerifier``.

vLLM's scheduler, sampler and prefix cache stay idle. A pass is a ``SchedulerOutput`` of ours, in which every segment is
a new request that names its KV blocks; the worker returns logits and hidden states before anything is sampled. So vLLM
draws no random number, and under tensor parallelism every rank gets the same token ids.

Under tensor parallelism rank 0 is this process and the others run in their own (``leading``): rows of logits stay on
their device, and all that follows (sampling parameters, acceptance) is computed there.
"""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.contracts.errors import EngineUnavailableError, ParameterError, UnsupportedModelError
from outrider.engines.forward_model import PassResult
from outrider.engines.segments import BlockCopy, Segment
from outrider.engines.vllm.install import check_install
from outrider.engines.vllm.kv_layout import KvLayout
from outrider.engines.vllm.passes import split
from outrider.engines.vllm.settings import VllmSettings
from outrider.events import event

_LOG = logging.getLogger(__name__)
# Logits of a pass over resident KV may differ by rounding from a pass over all tokens; with wrong KV they differ more.
_SELF_TEST_TOLERANCE = 0.2


class VllmForward:
    """A ``BranchModel``: one vLLM engine with all its KV blocks. Use it in the thread that made it.

    Attributes:
        kv_bytes: of all KV blocks.
        max_positions: of the longest sequence; vLLM shortens the context to what the KV memory holds.
        no_logits: as wide as the model's head.
    """

    def __init__(self, settings: VllmSettings) -> None:
        """Start vLLM and test it.

        Raises:
            EngineUnavailableError: the supported vLLM is not installed, does not start (out of memory, for example), or
                passes over resident KV differ from passes without.
            UnsupportedModelError: this model's KV does not fit one set of full-attention blocks.
            ParameterError: an unknown vLLM option, a KV budget that is too small, or another size of blocks.
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
        """Run one pass, or several if it exceeds vLLM's buffers; see ``BranchModel.forward``."""
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
        """Stop vLLM and free its memory. May be called repeatedly."""
        self._runner.close()

    def _blocks_for_us(self, layout: KvLayout) -> int:
        fault = layout.fault(self._settings.max_context_tokens)
        if fault is not None:
            raise UnsupportedModelError(
                f"the vLLM engine serves models with one set of full-attention KV, found that "
                f"{self._settings.folder.name} {fault}; serve another model, or this one within its attention window"
            )
        if layout.block_tokens != self.block_tokens:
            needed = f"{layout.block_tokens}, which vLLM takes for this model here"
            raise ParameterError("block size", needed, self.block_tokens)
        if layout.blocks < 2:
            raise ParameterError("kv_budget_mib", "memory for two KV blocks or more", f"memory for {layout.blocks}")
        return layout.blocks - 1  # vLLM's block 0 is its null block and never written: our block 0 is its block 1

    def _self_test(self) -> Tensor:
        """Compute a row again over resident KV, and over a copied block; return ``[0, vocab]`` logits.

        The version alone does not decide this: the attention implementation depends on hardware, model and options.
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
