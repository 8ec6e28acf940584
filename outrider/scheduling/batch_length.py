"""How long the next batch should take.

A long batch spends less of its time on the constant part of a pass, and what promises can be kept in all is decided by
that; a short one keeps those waiting less who arrive while it runs. A block that arrives waits for half of the running
batch on average and for all of its own. So the target is half of the time a block is given, which leaves a quarter of
it for bad luck, and what it is given is read off the queue: the shortest time from arrival to deadline is that of a
response without credit (``deadlines.py``), drafting and network already taken off. Longer ones are credit, and lengths
that live on credit use it up.

It is never so short that passes consist of their constant part: one device with a long way to the server, or one that
drafts slowly, must not cost everybody their speed.
"""

import numpy as np

from outrider.scheduling.waiting_arrays import WaitingArrays

_GIVEN_SHARE = 0.5
_LEAST_CONSTANTS = 4.0


def batch_length_s(waiting: WaitingArrays, constant_s: float, longest_s: float) -> float:
    """The target length of the next batch.

    Args:
        waiting: everything pending.
        constant_s: what a batch without blocks would take.
        longest_s: longest target, unless constants alone ask for more, and the target where nothing is promised.
    """
    given_s = waiting.deadline_at_s - waiting.arrived_at_s
    shortest_s = float(given_s[given_s > 0.0].min(initial=np.inf))
    return max(min(_GIVEN_SHARE * shortest_s, longest_s), _LEAST_CONSTANTS * constant_s)
