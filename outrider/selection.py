"""What to do in the next round of a generation. Pure: the caller passes what is known."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundSituation:
    """What the choice depends on."""

    configured_window: int
    requested_window: int | None  # the request's own, 0..k_max
    remaining_tokens: int  # the response may still take
    drafter_ready: bool  # a drafter is leased and its prefix is computed


def choose_window(situation: RoundSituation) -> int:
    """Tokens to draft in the next round; 0 lets the verifier go on alone.

    A round commits one token more than it accepts, so drafting past ``remaining_tokens - 1`` would be waste.
    """
    if not situation.drafter_ready:
        return 0
    wanted = situation.requested_window if situation.requested_window is not None else situation.configured_window
    return max(0, min(wanted, situation.remaining_tokens - 1))
