"""Ray Serve's request-based autoscaling policy (Serve 2.60, reimplemented): the baseline of our own policy."""

from collections import deque
from math import ceil

from lab.simulation.fleet.scenario import RequestCount

_NEAR = 1e-9


class RequestCounting:
    def __init__(self, rules: RequestCount) -> None:
        self._rules = rules
        self._seen: deque[tuple[float, int]] = deque()
        self._direction, self._since_s = 0, 0.0

    def decide(self, now_s: float, running: int, wanted: int, requests: int) -> int:
        """Return the number of replicas to have.

        Args:
            now_s: not before that of the last call.
            running: replicas that take requests; with none the decision stays as it is.
            wanted: the last decision.
            requests: under way or waiting.
        """
        rules, seen = self._rules, self._seen
        seen.append((now_s, requests))
        while now_s - seen[0][0] > rules.look_back_s:
            seen.popleft()
        if not running:
            return wanted
        mean = sum(count for _, count in seen) / len(seen)
        desired = min(max(ceil(mean / rules.target - _NEAR), rules.least), rules.most)
        direction = (desired > wanted) - (desired < wanted)
        if direction != self._direction:
            self._direction, self._since_s = direction, now_s
        delay_s = rules.up_after_s if direction > 0 else rules.down_after_s
        if direction and now_s - self._since_s >= delay_s - _NEAR:
            self._direction = 0
            return desired
        return wanted
