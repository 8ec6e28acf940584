"""Payload bits per committed token, what they are spent on, and how few there could be.

Parts of a round's two messages: *envelope* (header and checksum, both ways), *ids* (drafted tokens up, the target's
token down), *distribution* (probabilities, rows, candidates), and *rest* (shape, verdict, flags, padding). The parts of
a full block are computed from the format; what the measured messages have beyond these is the distribution's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from bench.harness.statistics import Estimate, ratio
from bench.protocols.rounds import Response
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import ProtocolName
from outrider.wire.bits import id_bits
from outrider.wire.envelope import envelope_bits

GOAL_BITS = 100.0  # token_ids at temperature 1, per committed token


@dataclass(frozen=True, slots=True)
class Bits:
    """One method at one temperature, per committed token.

    Attributes:
        up: payload; likewise ``down`` and ``both``.
        envelope: of ``both``; likewise ``ids``, ``distribution`` and ``rest``.
        drafted: tokens.
        id_limit: ``drafted`` ids and the target's own at log2 of the vocabulary.
        entropy_limit: the same with drafted tokens at the draft's entropy: for a receiver that had the drafter. None
            where it is not known, or nothing is random.
    """

    method: str
    greedy: bool
    up: Estimate
    down: Estimate
    both: Estimate
    envelope: float
    ids: float
    distribution: float
    rest: float
    drafted: float
    id_limit: float
    entropy_limit: float | None


def bits(responses: Sequence[Response], wire: WireFormat, entropy_bits: float | None) -> Bits:
    """Of responses of one method and temperature, on any links; rounds without a draft are left out.

    Args:
        responses: each with a draft somewhere.
        wire: how messages were written.
        entropy_bits: of the draft's distribution, mean over positions.
    """
    rounds = [[one for one in response.rounds if one.timing.drafted_tokens] for response in responses]
    tokens = [sum(one.timing.committed_tokens for one in some) for some in rounds]
    up = [sum(one.timing.up_bits for one in some) for some in rounds]
    down = [sum(one.timing.down_bits for one in some) for some in rounds]
    every = [one for some in rounds for one in some]
    total = sum(tokens)
    drafted, targets = sum(one.timing.drafted_tokens for one in every), len(every)
    # A device that draws its own correction sends that id up, where the target's token would have come down.
    ids = (drafted + targets) * id_bits(wire.vocab_size)
    envelope = targets * 2 * envelope_bits(0)
    both = sum(up) + sum(down)
    plain = responses[0].method == ProtocolName.TOKEN_IDS
    rest = both - ids - envelope if plain else _rest_bits(targets, drafted)
    greedy = responses[0].cell.greedy
    known = entropy_bits is not None and not greedy
    return Bits(
        method=responses[0].method,
        greedy=greedy,
        up=ratio(up, tokens),
        down=ratio(down, tokens),
        both=ratio([one + other for one, other in zip(up, down, strict=True)], tokens),
        envelope=envelope / total,
        ids=ids / total,
        distribution=max(both - ids - envelope - rest, 0.0) / total,
        rest=rest / total,
        drafted=drafted / total,
        id_limit=(drafted + targets) * log2(wire.vocab_size) / total,
        entropy_limit=(drafted * entropy_bits + targets * log2(wire.vocab_size)) / total
        if known and entropy_bits is not None
        else None,
    )


def _rest_bits(rounds: int, drafted: int) -> float:
    """Shape up, verdict and four flags down, each message filled up to a byte: half a byte on the average."""
    length_bits = (max(drafted // rounds, 1)).bit_length()
    return rounds * (2 * length_bits + 4 + 2 * 4)
