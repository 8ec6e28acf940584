"""How long the next batch should take.

A long batch spends less of its time on the constant part of a pass, and what promises can be kept in all is decided by
that; a short one keeps those waiting less who arrive while it runs. In batches of length L the constant c takes c / L
of the time, and a promised load rho the rest as long as L >= c / (1 - rho). Bad luck wants time too: a share of all of
it, without which a load that fluctuates is above what its batches bear every now and then, and nearly half of what is
left. So batches are about twice as long as they need to be where there is time, and many times as long where there is
little. Neither how much waits nor how urgent it is comes into it: a deadline that cuts a batch short spends time on
constants, which makes more blocks urgent, which makes batches shorter still.

What the load asks for has an end where the fastest promise could not be kept any more. A response waits for half of
the running batch on average and for all of its own, so one and a half batches and its drafting have to fit between two
of its rounds; its prompt waits for passes too, each of which has one chunk for prompts. About a third of the time
between its rounds leaves room for all of that. Where more is promised than can be kept, that is the length: who comes
first still can be served in time. A promise that asks for batches which are constants for the most part does not get
them.

What is promised is not all that is asked for: who is served faster than promised asks for more, and prompts of
responses that nobody knows of yet want to be computed. Where little is promised the load would have batches that are
half constants, and one prompt a batch of its own, while everybody else waits. So none is meant to be shorter than ten
constants where a third of the time is promised or less; the more is promised, the less of that, as who is promised a
speed has less time to wait.

While more is promised than can be kept, short batches keep nobody's promise in the end, and spend time that would bring
tokens: a batch may be twenty constants long then, which leaves a twentieth to them.

Best effort is no load, and takes what is over: where any of it waits a batch may be longer, as long as those who are
promised a speed and come while it runs need not mind.
"""

from outrider.scheduling.policy import Promised

_SPARE = 1.75
_RESERVE = 0.05  # of the verifier's time, for bad luck
_LEAST_CONSTANTS = 2.0
_EASY_CONSTANTS = 10.0  # at the least, where so much of the time is spare
_EASY_SPARE = 2.0 / 3.0
_MOST_CONSTANTS = 10.0  # that the promised rounds leave it at least
_OVERLOADED_CONSTANTS = 20.0  # a batch may take while not all promises can be kept
_ROUND_SHARE = 0.35
_FILLED_ROUND_SHARE = 0.25


def batch_length_s(promised: Promised, constant_s: float, longest_s: float) -> float:
    """The target length of the next batch.

    Args:
        promised: by all active responses.
        constant_s: what a batch without blocks would take.
        longest_s: longest target, unless constants alone ask for more.
    """
    most_s = max(min(_ROUND_SHARE * promised.round_s, longest_s), _MOST_CONSTANTS * constant_s)
    spare = 1.0 - _RESERVE - promised.load
    length_s = _SPARE * constant_s / spare if spare > 0.0 else most_s
    easy = min(1.0, max(0.0, 1.0 - promised.load) / _EASY_SPARE)
    least = _OVERLOADED_CONSTANTS if promised.least_load > 1.0 else max(_LEAST_CONSTANTS, _EASY_CONSTANTS * easy)
    return max(min(length_s, most_s), least * constant_s)


def filled_length_s(length_s: float, promised: Promised, longest_s: float) -> float:
    """How long a batch of that length may be with best effort in it."""
    return max(length_s, min(_FILLED_ROUND_SHARE * promised.round_s, longest_s))
