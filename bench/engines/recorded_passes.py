"""The bare vLLM step: ``execute_model`` of the very runner our engine drives, over the very passes it was given.

A ``PassRecorder`` between verifier and model notes the passes; ``BareStep`` gives them to the runner again, as vLLM's
own scheduler output, made beforehand. So new tokens, block tables and wanted rows agree, and the same KV is written to
the same places. What is left out is all that is ours: bookkeeping, the way to the worker and back, sampling parameters,
acceptance.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from outrider.engines.forward_model import BlockCopy, PassResult, Segment
from outrider.engines.vllm.model import VllmForward


class PassRecorder:
    """A ``BranchModel`` that passes everything on and keeps the passes since ``begin``."""

    def __init__(self, model: VllmForward) -> None:
        """Stand before a model."""
        self.model = model
        self.passes: list[tuple[Segment, ...]] = []
        self.recording = False

    @property
    def total_blocks(self) -> int:
        """The model's."""
        return self.model.total_blocks

    @property
    def block_tokens(self) -> int:
        """The model's."""
        return self.model.block_tokens

    @property
    def no_logits(self) -> Tensor:
        """The model's."""
        return self.model.no_logits

    def begin(self) -> None:
        """Forget the passes so far and note those to come."""
        self.passes = []
        self.recording = True

    def forward(
        self, segments: Sequence[Segment], copies: Sequence[BlockCopy] = (), *, want_hidden: bool = False
    ) -> PassResult:
        """The model's."""
        if self.recording:  # block lists go on changing
            self.passes.append(tuple(replace(segment, blocks=tuple(segment.blocks)) for segment in segments))
        return self.model.forward(segments, copies, want_hidden=want_hidden)


class BareStep:
    """Gives recorded passes to the model runner itself."""

    def __init__(self, model: VllmForward) -> None:
        """Reach for the runner of ``model``."""
        from outrider.engines.vllm.runner import schedule  # noqa: PLC0415 (imports vLLM)

        self._schedule = schedule
        self._driver: Any = model._runner  # noqa: SLF001 (the runner's book of requests has to be kept for it)
        [self._runner] = self._driver._core.collective_rpc(_runner_of)  # noqa: SLF001
        self._made = 0

    def prepare(self, passes: Sequence[Sequence[Segment]]) -> Callable[[], None]:
        """A call that runs these passes once; all that is vLLM's scheduler's work is done before it."""
        orders = [self._order(segments) for segments in passes]

        def run() -> None:
            for order in orders:
                self._runner.execute_model(order)
                self._runner.execute_model_state = self._runner.kv_connector_output = None

        return run

    def _order(self, segments: Sequence[Segment]) -> object:
        self._made += 1
        names = [f"bare {self._made}.{index}" for index in range(len(segments))]
        finished, self._driver._finished = self._driver._finished, set(names)  # noqa: SLF001
        return self._schedule(names, segments, (), finished)


def _runner_of(worker: Any) -> Any:
    return worker.model_runner
