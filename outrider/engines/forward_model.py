"""What a paged verifier asks of a model: one forward pass over a ragged batch, its KV in numbered blocks.

The verifier decides which block holds what; the model only reads and writes them. ``PagedModel`` (torch) and
``outrider.engines.vllm`` (vLLM) are such models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from outrider.contracts.tree import node_depths
from outrider.engines.kv.host_cache import HostCopy


@dataclass(frozen=True, slots=True)
class Segment:
    """The new tokens of one sequence in a ragged batch.

    Attributes:
        token_ids: for slots ``start, start + 1, ...``; at least one. A token's slot is its position, but in a tree.
        parents: if the sequence ends in a masked token tree, the parent of each of its nodes as in ``Block.parents``.
            The nodes are the sequence's last tokens, these new ones included; the first may be resident already.
    """

    token_ids: Sequence[int]
    start: int  # slots whose KV is resident already, or is written by a segment before this one in the same pass
    blocks: Sequence[int]  # the sequence's KV blocks, covering ``start + len(token_ids)`` slots
    logit_rows: int  # how many of the last tokens want logits, 0 .. len(token_ids)
    parents: Sequence[int] = ()

    @property
    def stop(self) -> int:
        """Slots with KV after the pass."""
        return self.start + len(self.token_ids)

    @property
    def tree_start(self) -> int:
        """Slot of the tree's first node."""
        return self.stop - len(self.parents)

    def positions(self) -> list[int]:
        """The absolute position of each new token."""
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
    """A whole KV block to copy before a pass, as a branch of a tree begins in the middle of one."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class PassResult:
    """``logits``: ``[R, vocab]`` in the model's dtype, wanted rows in order; ``hidden``: ``[R, d]`` if asked for."""

    logits: Tensor
    hidden: Tensor | None


class ForwardModel(Protocol):
    """A causal LM and the KV of a block pool. Knows tokens, positions and blocks, nothing of generations."""

    @property
    def total_blocks(self) -> int:
        """KV blocks, named 0 .. total - 1."""
        ...

    @property
    def block_tokens(self) -> int: ...

    @property
    def no_logits(self) -> Tensor:
        """``[0, vocab]``: the rows of a pass that wants none, in the dtype and on the device of all others."""
        ...

    def forward(self, segments: Sequence[Segment], *, want_hidden: bool = False) -> PassResult:
        """Compute the segments' KV in place, and the logits they want.

        A pass may be split into several, as long as segments are computed in their order.
        """
        ...


@runtime_checkable
class MaskedModel(ForwardModel, Protocol):
    """Takes a token tree as one segment: a slot for each node, a mask hides what is not its ancestor."""

    def move(self, moves: Sequence[Move]) -> None:
        """Copy KV between slots; every source is read before any target is written."""
        ...


@runtime_checkable
class ClearingModel(ForwardModel, Protocol):
    """Reads slots that no row may see, in products with 0: what others left there has to be finite."""

    def clear(self, blocks: Sequence[int]) -> None:
        """Have these KV blocks hold zeros."""
        ...


@runtime_checkable
class SwappingModel(ForwardModel, Protocol):
    """Can have slots of host memory, each for one KV block."""

    def give_host_memory(self, slots: int) -> None:
        """Have so many of them."""
        ...

    def swap(self, copies: Sequence[HostCopy]) -> None:
        """Copy blocks out and back, one after the other, before the next pass."""
        ...


class BranchModel(ForwardModel, Protocol):
    """Takes a token tree as one segment for each leaf's path, over shared blocks; ``Segment.parents`` are empty."""

    def forward(
        self, segments: Sequence[Segment], copies: Sequence[BlockCopy] = (), *, want_hidden: bool = False
    ) -> PassResult:
        """The same, after whole blocks have been copied."""
        ...
