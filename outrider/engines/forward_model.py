"""Interface of a paged model: one forward pass over a ragged batch (``segments``), its KV in numbered blocks.

The verifier decides which block holds what; the model only reads and writes blocks. Implementations are ``PagedModel``
and ``FusedModel`` (torch) and ``outrider.engines.vllm`` (vLLM).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from outrider.engines.kv.host_cache import HostCopy
from outrider.engines.segments import BlockCopy, Move, Segment


@dataclass(frozen=True, slots=True)
class PassResult:
    """``logits``: ``[R, vocab]`` in the model's dtype, wanted rows in order; ``hidden``: ``[R, d]`` if asked for."""

    logits: Tensor
    hidden: Tensor | None


class ForwardModel(Protocol):
    """A causal LM with the KV of a block pool. It knows tokens, positions and blocks, but no generations."""

    @property
    def total_blocks(self) -> int:
        """Number of KV blocks, numbered 0 .. total - 1."""

    @property
    def block_tokens(self) -> int: ...

    @property
    def no_logits(self) -> Tensor:
        """``[0, vocab]``: result of a pass that wants no logits, with the dtype and device of all others."""

    def forward(self, segments: Sequence[Segment], *, want_hidden: bool = False) -> PassResult:
        """Compute the segments' KV in place, and return the logits they want.

        An implementation may split a pass, as long as segments are computed in their order.
        """


@runtime_checkable
class MaskedModel(ForwardModel, Protocol):
    """Takes a token tree as one segment: one slot per node, and a mask that hides all but a node's ancestors."""

    def move(self, moves: Sequence[Move]) -> None:
        """Copy KV between slots; every source is read before any target is written."""


@runtime_checkable
class ClearingModel(ForwardModel, Protocol):
    """Multiplies the values of masked slots by 0, so these must be finite: new blocks have to be cleared."""

    def clear(self, blocks: Sequence[int]) -> None: ...


@runtime_checkable
class SwappingModel(ForwardModel, Protocol):
    """Can copy KV blocks to slots of host memory and back."""

    def give_host_memory(self, slots: int) -> None:
        """Allocate this many slots in place of those before, whose content is lost."""

    def swap(self, copies: Sequence[HostCopy]) -> None:
        """Copy blocks out and back, in this order, before the next pass."""


class BranchModel(ForwardModel, Protocol):
    """Takes a token tree as one segment per leaf's path, over shared blocks; ``Segment.parents`` are empty."""

    def forward(
        self, segments: Sequence[Segment], copies: Sequence[BlockCopy] = (), *, want_hidden: bool = False
    ) -> PassResult:
        """Copy whole blocks, then compute as ``ForwardModel.forward``."""
