"""Payload bits per committed token, and the parts of envelope and token ids, for any protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from lab.bench.harness.statistics import Estimate, ratio
from lab.bench.protocols.rounds import Response
from outrider.contracts.exchanged import WireFormat
from outrider.wire.bits import id_bits
from outrider.wire.envelope import envelope_bits

GOAL_BITS = 100.0  # token_ids at temperature 1, per committed token


@dataclass(frozen=True, slots=True)
class Bits:
    """One method at one temperature, per committed token.

    Attributes:
        envelope: part of ``both`` in headers and checksums, both ways; ``ids``: in draft tokens up, the target's token
            down; ``rest``: in distributions, shapes, verdicts, padding.
    """

    method: str
    greedy: bool
    up: Estimate  # payload; likewise ``down`` and ``both``
    down: Estimate
    both: Estimate
    envelope: float
    ids: float
    rest: float
    drafted: float  # tokens
    id_limit: float  # ``drafted`` ids and the target's own at log2 of the vocabulary


def bits(responses: Sequence[Response], wire: WireFormat) -> Bits:
    """Bits of responses of one method and temperature, on any links; rounds without a draft are left out.

    Args:
        responses: each with at least one draft.
        wire: format of the messages.
    """
    rounds = [[one.timing for one in response.rounds if one.timing.drafted_tokens] for response in responses]
    tokens = [sum(one.committed_tokens for one in some) for some in rounds]
    up = [sum(one.up_bits for one in some) for some in rounds]
    down = [sum(one.down_bits for one in some) for some in rounds]
    both = [one + other for one, other in zip(up, down, strict=True)]
    drafted, targets = sum(one.drafted_tokens for some in rounds for one in some), sum(map(len, rounds))
    # A device that draws its own correction sends that id up; otherwise the target's token comes down.
    ids, envelope = (drafted + targets) * id_bits(wire.vocab_size), targets * 2 * envelope_bits(0)
    total = sum(tokens)
    return Bits(
        method=responses[0].method,
        greedy=responses[0].cell.greedy,
        up=ratio(up, tokens),
        down=ratio(down, tokens),
        both=ratio(both, tokens),
        envelope=envelope / total,
        ids=ids / total,
        rest=(sum(both) - ids - envelope) / total,
        drafted=drafted / total,
        id_limit=(drafted + targets) * log2(wire.vocab_size) / total,
    )
