"""Bound the size of a device's messages by what the round requested; no more is read of an answer.

The protocols' formulas are exact for a full block. What else a valid message may hold (a correction, the shape of a
tree that is not full) is less than twice that, or less than ``_SLACK_BYTES`` where blocks are small.
"""

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import WireFormat
from outrider.protocols.hidden_states import state_bits
from outrider.protocols.registry import message_bits
from outrider.wire.envelope import MAX_MESSAGE_BYTES, envelope_bits

_SLACK_BYTES = 4096


def most_block_bytes(wire: WireFormat, plan: DraftPlan) -> int:
    """Return the bound of any answer to an order with this plan."""
    return _bounded(message_bits(wire, plan))


def most_details_bytes(wire: WireFormat, tokens: int) -> int:
    """Return the bound of a message with this many hidden states."""
    return _bounded(envelope_bits(tokens * state_bits(wire)))


def _bounded(bits: int) -> int:
    return min(2 * (bits // 8) + _SLACK_BYTES, MAX_MESSAGE_BYTES)
