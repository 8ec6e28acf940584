"""What to do in the next round of a generation. Pure: the caller passes what is known."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundSituation:
    """What the choice depends on."""

    window: int  # the request's own, or the configured one
    remaining_tokens: int  # the response may still take
    drafter_ready: bool  # a drafter is leased and its prefix is computed


def choose_window(situation: RoundSituation) -> int:
    """Tokens to draft in the next round; 0 lets the verifier go on alone.

    A round commits one token more than it accepts, so drafting past ``remaining_tokens - 1`` would be waste.
    """
    if not situation.drafter_ready:
        return 0
    return max(0, min(situation.window, situation.remaining_tokens - 1))
