"""Rounds and responses as a service would have told of them."""

from lab.bench.protocols.plan import Cell, Response, Round
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.requests import ProtocolName
from outrider.link.profiles import LinkProfile
from outrider.rounds.timing import RoundTiming

CELL = Cell(LinkProfile(1e6, 1e6, 0.05), 1.0)
PAIR = DraftPlan("token_ids", 2)


def timing(
    drafted: int = 2, accepted: int = 1, protocol: ProtocolName = "token_ids", verify_s: float = 0.06
) -> RoundTiming:
    """A round of a draft; one without if ``drafted`` is 0. Everything else takes 0.01 s."""
    if not drafted:
        return RoundTiming(None, 0, 0, 1, 0.0, 0.0, 0.0, verify_s, verify_s + 0.01)
    total_s = 0.02 + 0.3 + verify_s + 0.01
    return RoundTiming(protocol, drafted, accepted, accepted + 1, 0.02, 0.3, 0.0, verify_s, total_s, 4000, 1000)


def response(method: str, *timings: RoundTiming, cell: Cell = CELL, prompt: int = 0, row_requests: int = 0) -> Response:
    """All of its rounds count; the client saw 0.5 s more than they took."""
    rounds = tuple(
        Round(one, None if one.protocol is None else DraftPlan(one.protocol, one.drafted_tokens)) for one in timings
    )
    all_s = sum(one.total_s for one in timings)
    sent = (sum(one.up_bits for one in timings), sum(one.down_bits for one in timings))
    return Response(cell, method, 0, prompt, all_s + 0.5, rounds, row_requests, (all_s, *sent), sent, ())
