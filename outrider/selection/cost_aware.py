"""Policy ``cost_aware``: choose the plan of least cost, where verifier time counts more the more loaded it is.

    cost = (1 - load) * seconds per committed token + load * blocks per batch * verifier seconds per committed token

Up to a factor this is the generation's own time, plus the verifier's time at a price of load / (1 - load) for each of
the blocks that share it. On an idle verifier it equals ``cheapest``. On a saturated one only verifier seconds count:
others' blocks fill the time in which one generation drafts. What follows depends on what batches spend their time on.
Where they read long prefixes, rows are nearly free, and drafts and trees grow with the load. Where they compute, drafts
shrink with the load, and in the end nothing is drafted.

A promised speed is a condition, not a cost. Only plans are compared whose round should end before the response falls
behind,

    round <= expected tokens / promised speed + slack

so a response ahead of its promise uses its slack to relieve the verifier. If no plan keeps the promise, all plans are
compared without it: on a verifier that cannot keep its promises, the plan that is fastest for each generation alone is
the slowest for all together.

The condition is WISP eq. 6 and 12, with the response's ledger in place of a single round.
"""

import numpy as np

from outrider.selection.cheapest import seconds_per_token
from outrider.selection.estimates import Bools, Estimates, Floats
from outrider.selection.ranking import choose_by
from outrider.selection.situation import RoundChoice, RoundSituation, SpeedPromise


class CostAware:
    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        return choose_by(cost_per_token, situation, previous)


def cost_per_token(situation: RoundSituation, estimates: Estimates) -> Floats:
    """Return ``[plans]`` costs; infinite for plans that break the promise, if another plan keeps it."""
    own, load = seconds_per_token(situation, estimates), estimates.load
    keeps = keeps_promise(situation.promise, estimates)
    shared = situation.verifier.batch_blocks * estimates.verifier_s_per_token
    cost = (1.0 - load) * own + load * shared
    return np.where(keeps, cost, np.inf) if keeps.any() else cost


def keeps_promise(promise: SpeedPromise | None, estimates: Estimates) -> Bools:
    """Return ``[plans]``: whether the round should be committed before the response falls behind."""
    if promise is None or promise.tokens_per_s == 0.0:
        return np.ones(len(estimates.round_s), dtype=np.bool_)
    kept: Bools = estimates.round_s <= estimates.expected_tokens / promise.tokens_per_s + promise.slack_s
    return kept
