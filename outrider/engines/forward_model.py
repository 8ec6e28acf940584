"""Interface of a paged model: one forward pass over a ragged batch, its KV in numbered blocks.

The verifier decides which block holds what; the model only reads and writes blocks. Implementations are ``PagedModel``
and ``FusedModel`` (torch) and ``outrider.engines.vllm`` (vLLM).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from outrider.contracts.tree import node_depths
from outrider.engines.kv.host_cache import HostCopy


@dataclass(frozen=True, slots=True)
class Segment:
    """The new tokens of one sequence in a ragged batch."""

    # for slots ``start, start + 1, ...``; at least one. A token's slot is its position, except in a tree.
    token_ids: Sequence[int]
    start: int  # slots whose KV is resident, or written by an earlier segment of the same pass
    blocks: Sequence[int]  # the sequence's KV blocks, covering ``start + len(token_ids)`` slots
    logit_rows: int  # number of last tokens whose logits are wanted, 0 .. len(token_ids)
    # parents of a masked token tree at the sequence's end, as in ``Block.parents``; empty without one. The nodes are
    # the sequence's last tokens. The first of them may be resident, so there may be more than new ones.
    parents: Sequence[int] = ()

    @property
    def stop(self) -> int:
        """Number of slots with KV after the pass."""
        return self.start + len(self.token_ids)

    @property
    def tree_start(self) -> int:
        return self.stop - len(self.parents)

    def positions(self) -> list[int]:
        """Return the absolute position of each new token; siblings of a tree have the same."""
        base = self.tree_start
        slots = [*range(self.start, base), *(base + depth - 1 for depth in node_depths(self.parents))]
        return slots[-len(self.token_ids) :]


@dataclass(frozen=True, slots=True)
class Move:
    """KV of one sequence to copy: from slot ``sources[i]`` to slot ``targets[i]`` of ``blocks``."""

    blocks: Sequence[int]
    sources: Sequence[int]
    targets: Sequence[int]


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A whole KV block to copy before a pass, for a tree's branch that begins in the middle of a block."""

    source: int
    target: int


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
