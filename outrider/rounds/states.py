"""Transition tables of a response, of one of its rounds, and of a pending correction.

What is not listed is illegal and raises, naming state and event.

A *generation* is one response being made; a *round* is one draft -> verify -> feedback exchange for it. A *deferred
correction* is the token behind a rejection where the protocol leaves it to the device (DSSD): the device draws it from
the residual of the target's row, its *source*, and its own, which no other draft model knows.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from outrider.contracts.errors import IllegalTransitionError


class GenerationState(StrEnum):
    """Life of one response."""

    NEW = "new"
    ACTIVE = "active"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


class GenerationEvent(StrEnum):
    """What can happen to a response."""

    STARTED = "started"
    ENDED = "ended"
    FAULT = "fault"
    CLIENT_LEFT = "client_left"


class RoundState(StrEnum):
    """Life of one round."""

    REQUESTED = "requested"  # the drafter was asked
    RECEIVED = "received"  # its block is here (or the round has none: window 0)
    QUEUED = "queued"  # in the batcher
    VERIFYING = "verifying"  # in a batch
    RESOLVING = "resolving"  # the verifier waits for the second half of a two-step outcome
    COMMITTED = "committed"
    STALE = "stale"  # its assumption failed; its tokens were never used
    LOST = "lost"  # a process died or a deadline passed


class RoundEvent(StrEnum):
    """What can happen to a round."""

    BLOCK_ARRIVED = "block_arrived"
    DRAFTER_LOST = "drafter_lost"
    ENQUEUED = "enqueued"
    DISPATCHED = "dispatched"
    UNDECIDED = "undecided"
    RESOLVED = "resolved"  # what the verifier asked for is here, or the drafter is lost and all it asked about rejected
    VERIFIED = "verified"
    OVERTAKEN = "overtaken"  # an earlier round ended otherwise than this one assumed
    VERIFIER_LOST = "verifier_lost"


class CorrectionState(StrEnum):
    """Whether the next token is a device's to draw, and how far that has got."""

    SETTLED = "settled"  # it is not
    PENDING = "owed"  # its source is here; a drafter of the right model is to draw it
    ORDERED = "ordered"  # it is asked for, with the next block
    DRAWN = "drawn"  # it is here; with log-probabilities it is committed only when the verifier has told its own
    ROW_MISSING = "row_missing"  # the source is not known here (any more); the verifier is to be asked for the row
    ROW_ORDERED = "row_ordered"


class CorrectionEvent(StrEnum):
    """What can happen to it."""

    DEFERRED = "deferred"  # the verifier left it to the device, and told the source
    ORDERED = "ordered"
    DRAWN = "drawn"
    COMMITTED = "committed"
    NOT_AMONG_CANDIDATES = "not_among_candidates"  # the device took none of those it was sent
    ROW_ORDERED = "row_ordered"
    DRAFTER_LOST = "drafter_lost"
    VERIFIER_LOST = "verifier_lost"
    GIVEN_UP = "given_up"  # no drafter of the right model drew it in time: the target does, inexactly


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
    (_R.RESOLVING, _RE.RESOLVED): _R.VERIFYING,
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
    (_C.DRAWN, _CE.DEFERRED): _C.PENDING,
    (_C.DRAWN, _CE.VERIFIER_LOST): _C.PENDING,
    (_C.ROW_MISSING, _CE.ROW_ORDERED): _C.ROW_ORDERED,
    (_C.ROW_MISSING, _CE.GIVEN_UP): _C.SETTLED,
    (_C.ROW_ORDERED, _CE.DEFERRED): _C.PENDING,
    (_C.ROW_ORDERED, _CE.COMMITTED): _C.SETTLED,
    (_C.ROW_ORDERED, _CE.VERIFIER_LOST): _C.ROW_MISSING,
}

_State = TypeVar("_State", bound=StrEnum)
_Event = TypeVar("_Event", bound=StrEnum)


def after(table: Mapping[tuple[_State, _Event], _State], who: str, state: _State, event: _Event) -> _State:
    """Follow a table.

    Args:
        table: one of this module's.
        who: whose it is, for the message.
        state: before.
        event: that happened.

    Raises:
        IllegalTransitionError: the event cannot happen in this state.
    """
    try:
        return table[state, event]
    except KeyError:
        raise IllegalTransitionError(f"{who} that is {state} cannot take {event}") from None
