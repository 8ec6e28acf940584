"""Transition tables of a response, of each of its rounds, and of a correction that a device is to draw.

A transition that is not listed is illegal and raises an error that names state and event.

A *generation* is one response being made; a *round* is one exchange for it: draft, verify, commit. A *deferred
correction* is the token in place of a rejected one where the protocol has the device draw it (DSSD). The device draws
it from the residual of two rows: the target's (its *source*) and its own, which only devices of its model can compute.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from outrider.contracts.errors import IllegalTransitionError


class GenerationState(StrEnum):
    NEW = "new"
    ACTIVE = "active"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


class GenerationEvent(StrEnum):
    STARTED = "started"
    ENDED = "ended"
    FAULT = "fault"
    CLIENT_LEFT = "client_left"


class RoundState(StrEnum):
    """COMMITTED, STALE and LOST are final."""

    REQUESTED = "requested"  # the drafter was asked
    RECEIVED = "received"  # its block is here (or the round has none: window 0)
    QUEUED = "queued"  # in the batcher
    VERIFYING = "verifying"  # in a batch
    RESOLVING = "resolving"  # the verifier waits for the second half of a two-step outcome
    COMMITTED = "committed"
    STALE = "stale"  # its assumption failed; its tokens were never used
    LOST = "lost"  # a process died or a deadline passed


class RoundEvent(StrEnum):
    BLOCK_ARRIVED = "block_arrived"
    DRAFTER_LOST = "drafter_lost"
    ENQUEUED = "enqueued"
    DISPATCHED = "dispatched"
    UNDECIDED = "undecided"
    RESOLVED = "resolved"  # the device's hidden states are here, or it is lost and the mismatches count as rejected
    VERIFIED = "verified"
    OVERTAKEN = "overtaken"  # an earlier round ended otherwise than this one assumed, or another takes its place
    VERIFIER_LOST = "verifier_lost"


class CorrectionState(StrEnum):
    """How far a correction has got that a device is to draw."""

    SETTLED = "settled"  # none is pending: the target draws the next token
    PENDING = "owed"  # its source is here; a drafter of the right model is to draw it
    ORDERED = "ordered"  # ordered together with the next block
    DRAWN = "drawn"  # drawn; if log-probabilities are requested, it is committed only with the verifier's
    ROW_MISSING = "row_missing"  # the source is not known here; the verifier has to send the target's row
    ROW_ORDERED = "row_ordered"


class CorrectionEvent(StrEnum):
    DEFERRED = "deferred"  # the verifier left the token to the device, and sent the source
    ORDERED = "ordered"
    DRAWN = "drawn"
    COMMITTED = "committed"
    NOT_AMONG_CANDIDATES = "not_among_candidates"  # no candidate passed the device's test
    ROW_ORDERED = "row_ordered"
    DRAFTER_LOST = "drafter_lost"
    VERIFIER_LOST = "verifier_lost"
    GIVEN_UP = "given_up"  # no drafter of the right model drew it in time: the target draws it, inexactly


_G, _GE, _R, _RE = GenerationState, GenerationEvent, RoundState, RoundEvent
_C, _CE = CorrectionState, CorrectionEvent

GENERATION_TRANSITIONS: Mapping[tuple[GenerationState, GenerationEvent], GenerationState] = {
    (_G.NEW, _GE.STARTED): _G.ACTIVE,
    (_G.NEW, _GE.FAULT): _G.FAILED,
    (_G.NEW, _GE.CLIENT_LEFT): _G.CANCELLED,
    (_G.ACTIVE, _GE.ENDED): _G.FINISHED,
    (_G.ACTIVE, _GE.FAULT): _G.FAILED,
    (_G.ACTIVE, _GE.CLIENT_LEFT): _G.CANCELLED,
}

ROUND_TRANSITIONS: Mapping[tuple[RoundState, RoundEvent], RoundState] = {
    (_R.REQUESTED, _RE.BLOCK_ARRIVED): _R.RECEIVED,
    (_R.REQUESTED, _RE.DRAFTER_LOST): _R.LOST,
    (_R.REQUESTED, _RE.OVERTAKEN): _R.STALE,
    (_R.RECEIVED, _RE.ENQUEUED): _R.QUEUED,
    (_R.RECEIVED, _RE.OVERTAKEN): _R.STALE,
    (_R.QUEUED, _RE.DISPATCHED): _R.VERIFYING,
    (_R.QUEUED, _RE.OVERTAKEN): _R.STALE,
    (_R.QUEUED, _RE.VERIFIER_LOST): _R.LOST,
    (_R.VERIFYING, _RE.VERIFIED): _R.COMMITTED,
    (_R.VERIFYING, _RE.UNDECIDED): _R.RESOLVING,
    (_R.VERIFYING, _RE.OVERTAKEN): _R.STALE,
    (_R.VERIFYING, _RE.VERIFIER_LOST): _R.LOST,
    (_R.RESOLVING, _RE.RESOLVED): _R.VERIFYING,  # the same block, now with all that decides it
    (_R.RESOLVING, _RE.VERIFIER_LOST): _R.LOST,
}


CORRECTION_TRANSITIONS: Mapping[tuple[CorrectionState, CorrectionEvent], CorrectionState] = {
    (_C.SETTLED, _CE.DEFERRED): _C.PENDING,
    (_C.PENDING, _CE.ORDERED): _C.ORDERED,
    (_C.PENDING, _CE.GIVEN_UP): _C.SETTLED,
    (_C.ORDERED, _CE.DRAWN): _C.DRAWN,
    (_C.ORDERED, _CE.NOT_AMONG_CANDIDATES): _C.ROW_MISSING,
    (_C.ORDERED, _CE.DRAFTER_LOST): _C.PENDING,
    (_C.DRAWN, _CE.COMMITTED): _C.SETTLED,
    (_C.DRAWN, _CE.DEFERRED): _C.PENDING,  # the block it came with was rejected somewhere: the next correction
    (_C.DRAWN, _CE.VERIFIER_LOST): _C.PENDING,  # drawn again: seed and position fix the draw, so it is the same token
    (_C.ROW_MISSING, _CE.ROW_ORDERED): _C.ROW_ORDERED,
    (_C.ROW_MISSING, _CE.GIVEN_UP): _C.SETTLED,
    (_C.ROW_ORDERED, _CE.DEFERRED): _C.PENDING,
    (_C.ROW_ORDERED, _CE.COMMITTED): _C.SETTLED,
    (_C.ROW_ORDERED, _CE.VERIFIER_LOST): _C.ROW_MISSING,
}

_State = TypeVar("_State", bound=StrEnum)
_Event = TypeVar("_Event", bound=StrEnum)


def after(table: Mapping[tuple[_State, _Event], _State], who: str, state: _State, event: _Event) -> _State:
    """Return the state after an event; an ``IllegalTransitionError`` names ``who`` if it cannot happen then."""
    try:
        return table[state, event]
    except KeyError:
        raise IllegalTransitionError(f"{who} that is {state} cannot take {event}") from None
