"""Policy ``cost_aware``: count the verifier's time the more, the more loaded the verifier is.

    cost = (1 - load) * seconds per committed token + load * blocks per batch * verifier seconds per committed token

that is, up to a factor, the generation's own time and the verifier's at a price of load / (1 - load) for each of the
blocks that share it. Idle, this is ``cheapest``. Saturated, verifier seconds are all that counts: the time in which one
generation drafts is filled by others' blocks and costs nobody anything. What that means depends on what a batch spends
its time on. Where it reads long prefixes, rows come for nothing and drafts and trees grow with the load; where it
computes, they shrink, and in the end nothing is drafted.

A promised speed is a condition, not a cost. Only plans whose round is expected to be over before the response is
behind are compared,

    round <= expected tokens / promised speed + slack

so whoever is ahead of its promise spends what it has to spare on the verifier's relief. If no plan keeps it, all are
compared as if nothing were promised: on a verifier that cannot keep its promises, everybody's own fastest plan is the
slowest for all.

The condition is WISP eq. 6 and 12 with the response's ledger in place of one round's.
"""

from dataclasses import dataclass

import numpy as np

from outrider.selection.cheapest import seconds_per_token
from outrider.selection.estimates import Bools, Estimates, Floats
from outrider.selection.ranking import DEFAULT_HABITS, SwitchingHysteresis, choose_by
from outrider.selection.situation import RoundChoice, RoundSituation, SpeedPromise


@dataclass(frozen=True, slots=True)
class CostAware:
    """Policy ``cost_aware``: among all allowed protocols, windows and tree shapes."""

    habits: SwitchingHysteresis = DEFAULT_HABITS

    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        """The plan of the lowest cost to generation and verifier together."""
        return choose_by(cost_per_token, situation, previous, self.habits)


def cost_per_token(situation: RoundSituation, estimates: Estimates) -> Floats:
    """The cost: seconds of the generation and of the verifier, infinite for a plan that breaks what another keeps."""
    own, load = seconds_per_token(situation, estimates), estimates.load
    keeps = keeps_promise(situation.promise, estimates)
    shared = situation.verifier.batch_blocks * estimates.verifier_s_per_token
    cost = (1.0 - load) * own + load * shared
    return np.where(keeps, cost, np.inf) if keeps.any() else cost


def keeps_promise(promise: SpeedPromise | None, estimates: Estimates) -> Bools:
    """``[plans]``: whose round is expected to be committed before the response is behind."""
    if promise is None or promise.tokens_per_s == 0.0:
        return np.ones(len(estimates.round_s), dtype=np.bool_)
    kept: Bools = estimates.round_s <= estimates.expected_tokens / promise.tokens_per_s + promise.slack_s
    return kept
