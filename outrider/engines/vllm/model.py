"""The forward passes of a ``PagedVerifier``, made by vLLM.

vLLM's scheduler, sampler and prefix cache stay idle: a pass is a ``SchedulerOutput`` of ours, in which every segment is
a fresh request that names its KV blocks, and the worker hands over logits and hidden states before anything is sampled.
So vLLM draws no random number, and under tensor parallelism every rank gets the same token ids by construction.

Under tensor parallelism the workers are processes of their own: the wanted rows of rank 0 travel to this one through
shared memory, and everything behind them (sampling parameters, acceptance) is computed here, on the CPU.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.contracts.errors import ParameterError, UnsupportedModelError, VerifierLostError
from outrider.engines.forward_model import BlockCopy, Move, PassResult, Segment, TreeLayout
from outrider.engines.vllm.environment import prepare
from outrider.engines.vllm.hooks import HooksDifferError
from outrider.engines.vllm.live import LiveRunner, live_differences, unsupported
from outrider.engines.vllm.passes import split
from outrider.engines.vllm.settings import VllmSettings

# Two passes over the same tokens, one of them over KV of the other, may differ by rounding; wrong KV differs by more.
_SELF_TEST_TOLERANCE = 0.2


class VllmForward:
    """A ``ForwardModel``: one vLLM engine with all its KV blocks. Use it in the thread that made it."""

    trees = TreeLayout.BRANCHES
    gives_hidden = True

    def __init__(self, settings: VllmSettings) -> None:
        """Start vLLM, and try it.

        Raises:
            EngineUnavailableError: vLLM does not start, for want of memory say.
            UnsupportedModelError: KV of this model is more than one set of full-attention blocks.
            HooksDifferError: the runner does not do what this engine relies on.
            ParameterError: an option that vLLM does not have, a KV budget too small, or blocks of another size.
        """
        prepare()
        from outrider.engines.vllm.runner import Runner  # noqa: PLC0415 (imports vLLM)

        self._settings = settings
        self._runner = Runner(settings)
        try:
            live = self._runner.describe()
            self._total_blocks = self._examine(live)
            self._max_positions = live.max_context_tokens
            self._no_logits = self._self_test()
        # Workers in processes of their own say only that they failed.
        except (AttributeError, KeyError, TypeError, AssertionError, VerifierLostError) as error:
            self._runner.close()
            raise HooksDifferError((f"a pass fails with {type(error).__name__}: {error}",)) from error
        except BaseException:
            self._runner.close()
            raise

    @property
    def total_blocks(self) -> int:
        """KV blocks."""
        return self._total_blocks

    @property
    def block_tokens(self) -> int:
        """Positions in one."""
        return self._settings.block_tokens

    @property
    def max_positions(self) -> int:
        """Of the longest sequence: vLLM shortens the context to what the KV memory holds."""
        return self._max_positions

    @property
    def no_logits(self) -> Tensor:
        """``[0, vocab]``, as wide as the model's head."""
        return self._no_logits

    def forward(
        self, segments: Sequence[Segment], copies: Sequence[BlockCopy] = (), *, want_hidden: bool = False
    ) -> PassResult:
        """One pass, or several if there are more tokens or segments than one takes; see ``ForwardModel.forward``."""
        parts = split(segments, self._settings.max_pass_tokens, self._settings.max_pass_segments)
        results = [
            self._runner.run(part, copies if index == 0 else (), want_hidden=want_hidden)
            for index, part in enumerate(parts)
        ]
        if len(results) == 1:
            return PassResult(*results[0])
        hidden = [rows for _, rows in results if rows is not None]
        return PassResult(torch.cat([logits for logits, _ in results]), torch.cat(hidden) if hidden else None)

    def move(self, moves: Sequence[Move]) -> None:
        """Never called: paths of a tree lie in their own blocks."""
        raise NotImplementedError(f"branches need no moves, found {len(moves)}")

    def close(self) -> None:
        """Stop vLLM and free its memory. Repeatable."""
        self._runner.close()

    def _examine(self, live: LiveRunner) -> int:
        """See that this engine can drive the runner and keep its KV; returns the blocks there are for us."""
        reason = unsupported(live, self._settings.max_context_tokens)
        if reason is not None:
            raise UnsupportedModelError(
                f"the vLLM engine serves models with one set of full-attention KV, found that "
                f"{self._settings.folder.name} {reason}; serve another model, or this one within its attention window"
            )
        differences = live_differences(live)
        if differences:
            raise HooksDifferError(differences)
        if live.block_tokens != self._settings.block_tokens:
            needed = f"{live.block_tokens}, which vLLM takes for this model here"
            raise ParameterError("kv_block_tokens", needed, self._settings.block_tokens)
        if live.kv_blocks < 2:
            raise ParameterError("kv_budget_mib", "memory for two KV blocks or more", f"memory for {live.kv_blocks}")
        return live.kv_blocks - 1  # vLLM's block 0 stands for none and is never written: our 0 is its 1

    def _self_test(self) -> Tensor:
        """Compute a row again over resident KV, and over a copied block; returns no rows of that kind."""
        tokens = [1 % self._settings.vocab_size, 2 % self._settings.vocab_size, 0]
        whole = self.forward([Segment(tokens, 0, [0], 3)]).logits
        again = [self.forward([Segment(tokens[2:], 2, [0], 1)]).logits]
        if self._total_blocks > 1:
            again.append(self.forward([Segment(tokens[2:], 2, [1], 1)], [BlockCopy(0, 1)]).logits)
        scale = (whole[2] - whole[2].mean()).norm()
        for rows in again:
            if len(whole) != 3 or len(rows) != 1 or (whole[2] - rows[0]).norm() > _SELF_TEST_TOLERANCE * scale:
                raise HooksDifferError(("a pass over resident KV gives other logits than one pass over all",))
        return whole[:0].clone()
