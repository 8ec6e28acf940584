"""The protocols by name."""

from collections.abc import Mapping
from types import MappingProxyType

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import ProtocolName
from outrider.protocols import dsd, dssd, dssd_candidates, token_ids, tslt, tslt_tree
from outrider.protocols.codec import BlockCodec
from outrider.wire.envelope import envelope_bits

CODECS: Mapping[ProtocolName, BlockCodec] = MappingProxyType(
    {
        ProtocolName.TOKEN_IDS: token_ids,
        ProtocolName.DSD: dsd,
        ProtocolName.TSLT: tslt,
        ProtocolName.TSLT_TREE: tslt_tree,
        ProtocolName.DSSD: dssd,
        ProtocolName.DSSD_CANDIDATES: dssd_candidates,
    }
)


def codec(protocol: ProtocolName) -> BlockCodec:
    """Its block messages."""
    return CODECS[protocol]


def message_bits(wire: WireFormat, plan: DraftPlan) -> int:
    """Payload bits of the whole message with a full block, exactly (a correction in front of it aside)."""
    chosen = codec(plan.protocol)
    return envelope_bits(chosen.expected_bits(wire, plan) + chosen.overhead_bits(wire, plan))
