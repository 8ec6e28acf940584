"""Register the protocols by name and code. A new one needs its module and one line here."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.protocols.dsd import Dsd
from outrider.protocols.dssd import Dssd
from outrider.protocols.dssd_candidates import DssdCandidates
from outrider.protocols.protocol import DraftProtocol
from outrider.protocols.token_ids import TokenIds
from outrider.protocols.tslt import Tslt
from outrider.protocols.tslt_tree import TsltTree
from outrider.protocols.wisv_full import WisvFull
from outrider.protocols.wisv_selective import WisvSelective
from outrider.wire.envelope import envelope_bits

PLAINEST: ProtocolName = TokenIds.name  # its messages hold ids only
_PROTOCOLS: dict[ProtocolName, DraftProtocol] = {}
PROTOCOLS: Mapping[ProtocolName, DraftProtocol] = MappingProxyType(_PROTOCOLS)  # in order of registration


def register(protocol: DraftProtocol) -> None:
    """Add a protocol; its name and code must be free."""
    if protocol.name in _PROTOCOLS:
        raise ParameterError("name", f"one that is not in use ({', '.join(_PROTOCOLS)})", protocol.name)
    taken = sorted(other.code for other in _PROTOCOLS.values())
    if protocol.code in taken:
        raise ParameterError("code", f"one that is not in use ({', '.join(map(str, taken))})", protocol.code)
    _PROTOCOLS[protocol.name] = protocol


def unregister(name: ProtocolName) -> None:
    del _PROTOCOLS[name]


def protocol_coded(code: int) -> DraftProtocol | None:
    return next((protocol for protocol in _PROTOCOLS.values() if protocol.code == code), None)


def message_bits(wire: WireFormat, plan: DraftPlan) -> int:
    """Return the exact payload bits of a message with a full block, without a correction in front of it."""
    protocol = PROTOCOLS[plan.protocol]
    return envelope_bits(protocol.expected_bits(wire, plan) + protocol.overhead_bits(wire, plan))


def answer_bits(plan: DraftPlan, wire: WireFormat, support: int) -> int:
    """Compute ``message_bits`` for a request whose truncation leaves ``support`` tokens."""
    return message_bits(replace(wire, top_k=min(wire.top_k or wire.vocab_size, support)), plan)


def tree_protocols() -> tuple[ProtocolName, ...]:
    return tuple(name for name, protocol in _PROTOCOLS.items() if protocol.trees)


def growing_protocols() -> tuple[ProtocolName, ...]:
    return tuple(name for name, protocol in _PROTOCOLS.items() if protocol.grows)


def judged_protocols() -> tuple[ProtocolName, ...]:
    return tuple(name for name, protocol in _PROTOCOLS.items() if protocol.judged)


def untrusted_safe_protocols(protocols: Iterable[ProtocolName], params: SamplingParams) -> tuple[ProtocolName, ...]:
    """Return those of ``protocols``, in order, with which no device can change a response."""
    return tuple(name for name in protocols if not _PROTOCOLS[name].needs_trust(params))


def reproducible_protocols() -> tuple[ProtocolName, ...]:
    """Return the protocols that give a seeded request the target's own tokens for its seed."""
    return tuple(name for name, protocol in _PROTOCOLS.items() if protocol.reproducible)


for _protocol in (TokenIds(), Dsd(), Tslt(), TsltTree(), Dssd(), DssdCandidates(), WisvFull(), WisvSelective()):
    register(_protocol)

NO_TOKENS = DraftPlan(TokenIds.name, 0)  # only brings a drafter's KV up to date
UNJUDGED = TokenIds.name  # verifies like the judged protocols where there is no judge
CORRECTION_ALONE = DraftPlan(Dssd.name, 0)  # a device draws a pending correction and nothing behind it
