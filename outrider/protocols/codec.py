"""What each protocol's module offers, and what their blocks have in common."""

from typing import Protocol, TypeVar

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import DraftDistribution, WireFormat
from outrider.wire.bits import BitReader, BitWriter

Sent = TypeVar("Sent")


class BlockCodec(Protocol):
    """A protocol's block messages: tokens, shape and what is told of the distributions. Modules satisfy this."""

    def encode(self, writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
        """Write a block. Features, hidden states and the correction are no part of it.

        Raises:
            MessageError: the block is not one of this plan, or holds what the format cannot carry.
        """
        ...

    def decode(self, reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
        """Read the block that answers ``request``.

        Raises:
            MessageError: the bits are no such block.
        """
        ...

    def lossless(self, wire: WireFormat) -> bool:
        """Whether the output has exactly the target's distribution."""
        ...

    def expected_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """The paper's formula for a full block going up."""
        ...

    def overhead_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Bits of a full block's body that the paper's formula leaves out. The sum of both is exact."""
        ...


def block(
    request: DraftRequest,
    token_ids: tuple[int, ...],
    parents: tuple[int, ...] | None = None,
    distribution: DraftDistribution = None,
) -> Draft:
    """A decoded block, with what both ends know of it anyway."""
    position = request.feedback_position + len(request.feedback)
    return Draft(request.generation, request.round, position, token_ids, parents=parents, distribution=distribution)


def told(draft: Draft, kind: type[Sent]) -> Sent:
    """The distribution of a block, of the type the protocol sends.

    Raises:
        MessageError: it is of another type.
    """
    if not isinstance(draft.distribution, kind):
        raise MessageError(f"needs a {kind.__name__} to send, found a {type(draft.distribution).__name__}")
    return draft.distribution
