"""Order in which waiting responses are considered (``outrider.admission.admission``). Pure."""

from collections.abc import Iterable
from itertools import groupby

from outrider.admission.account_places import by_priority
from outrider.admission.fairness import Fairness
from outrider.admission.responses import TrackedResponse
from outrider.admission.room import Bounds
from outrider.admission.state import AdmissionState

_PASSED_SHARE = 0.5  # of a response's wait: until then others may pass it


def promised_in_order(state: AdmissionState, bounds: Bounds) -> list[TrackedResponse]:
    """Return resumed responses, then classes refused too often, then others; accounts take turns in each."""

    def precedence(one: TrackedResponse) -> tuple[bool, bool]:
        return not one.asked.resumed, not state.fairness.is_behind(one.slo.name)

    suspended = [one for one in state.suspended.values() if one.promised]
    waiting = [one for one in state.waiting.values() if one.promised]
    waiting = by_priority(sorted(waiting, key=lambda one: one.asked.asked_at_s))
    both = sorted((*suspended, *waiting), key=precedence)
    return [one for _, alike in groupby(both, precedence) for one in _in_turn(list(alike), state, bounds)]


def best_effort_in_order(state: AdmissionState, bounds: Bounds) -> Iterable[TrackedResponse]:
    """Return suspended responses, then resumed ones, then by arrival; accounts take turns. May be lazy."""
    waiting = [one for one in state.waiting.values() if not one.promised]
    waiting = by_priority(sorted(waiting, key=lambda one: (not one.asked.resumed, one.asked.asked_at_s)))
    suspended = (one for one in state.suspended.values() if not one.promised)
    return _in_turn([*suspended, *waiting], state, bounds)


def keeps_room(one: TrackedResponse, now_s: float, fairness: Fairness) -> bool:
    """Return whether no other response may pass it any more."""
    waited = now_s - one.since_s >= _PASSED_SHARE * one.wait_s
    return fairness.is_behind(one.slo.name) or (waited and not fairness.is_ahead(one.slo.name))


def _in_turn(waiting: list[TrackedResponse], state: AdmissionState, bounds: Bounds) -> Iterable[TrackedResponse]:
    if not state.accounts.several:
        return waiting
    return state.accounts.order(waiting, state.active.values(), bounds.places_of)
