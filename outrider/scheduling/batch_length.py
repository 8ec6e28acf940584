"""Compute the target length of the next batch, in seconds, from the promised load.

The fixed cost c of a pass takes c / L of the time in batches of length L, so a promised load rho can be served if
L >= c / (1 - rho). A reserve is needed on top: a fluctuating load would otherwise exceed what its batches bear now and
then. So the target is 1.75 c / (0.95 - rho): about twice the least length where there is time, many times it where
there is little. Neither the queue's length nor its urgency counts. A deadline that cut a batch short would spend more
time on fixed costs, which makes more blocks urgent, which cuts batches further.

*Upper bound.* A response waits for half of the running batch on average and for all of its own. So one and a half
batches and its drafting have to fit between two of its rounds; its prompt waits for passes too, each with one chunk for
prompts. A batch of about a third of the time between its rounds allows all that. Where more is promised than can be
kept, that bound is the length, so the most urgent can still be in time. It is never below 10 c: a promise that
would need shorter batches is not obeyed, as they would be fixed costs for the most part.

*Lower bound.* The promised load is not all of the demand: responses served faster than promised use more, and prompts
of new responses are not in it. At low load the formula alone gives batches that are half fixed costs, and a batch
for each prompt. So a batch is at least 10 c long up to a promised load of a third. The bound falls to 2 c as the load
grows, because promised responses then have less time to wait.

*Overload.* While more is promised than can be kept, short batches keep no promise in the end and lose tokens. The
target is then at least 20 c, which leaves a twentieth of the time to fixed costs.

*Best effort* is not in the load. Where some waits, a batch may be longer, up to a length that promised responses which
arrive while it runs can bear.
"""

from outrider.scheduling.policy import Promised

_SPARE = 1.75  # over the least length c / (1 - reserve - rho)
_RESERVE = 0.05  # share of the verifier's time kept for fluctuations of the load
_LEAST_CONSTANTS = 2.0  # lower bound at high load, in fixed costs of a pass
_EASY_CONSTANTS = 10.0  # lower bound where at least ``_EASY_SPARE`` of the time is not promised
_EASY_SPARE = 2.0 / 3.0
_MOST_CONSTANTS = 10.0  # the upper bound is at least this long
_OVERLOADED_CONSTANTS = 20.0  # lower bound while not all promises can be kept
_ROUND_SHARE = 0.35  # upper bound: share of the shortest time between promised rounds
_FILLED_ROUND_SHARE = 0.25  # the same for a batch with best effort in it


def batch_length_s(promised: Promised, constant_s: float, longest_s: float) -> float:
    """Return the target length of the next batch; ``constant_s`` is the predicted time of one without blocks.

    ``longest_s`` is the upper bound of the target, unless the bounds in fixed costs exceed it.
    """
    most_s = max(min(_ROUND_SHARE * promised.round_s, longest_s), _MOST_CONSTANTS * constant_s)
    spare = 1.0 - _RESERVE - promised.load
    length_s = _SPARE * constant_s / spare if spare > 0.0 else most_s  # no length serves a load above 1 - reserve
    easy = min(1.0, max(0.0, 1.0 - promised.load) / _EASY_SPARE)
    # ``least_load`` counts drafts as cut: only above 1 can no schedule keep all promises.
    least = _OVERLOADED_CONSTANTS if promised.least_load > 1.0 else max(_LEAST_CONSTANTS, _EASY_CONSTANTS * easy)
    return max(min(length_s, most_s), least * constant_s)


def best_effort_length_s(length_s: float, promised: Promised, longest_s: float) -> float:
    """Return how long a batch of target ``length_s`` may be with best effort in it."""
    return max(length_s, min(_FILLED_ROUND_SHARE * promised.round_s, longest_s))
