"""Add verifiers (with a cold start) and drain them as the scaling policy decides, and count verifier seconds."""

from collections.abc import Callable, Sequence

from lab.simulation.agenda import Agenda
from lab.simulation.fleet.request_count import RequestCounting
from lab.simulation.fleet.routes import Routes
from lab.simulation.fleet.scenario import FleetScenario
from lab.simulation.fleet.sim_replica import SimReplica
from outrider.scaling.demand import demand_of, load_of_report
from outrider.scaling.policy import ScalingInput, ScalingRules, ScalingState, decide


class Scaled:
    """Scaling of one fleet. The verifier added last is drained first: Serve's choice knows no loads.

    Without a ``scaling`` in the scenario the first verifiers stay, and only their seconds are counted.
    """

    def __init__(
        self,
        scenario: FleetScenario,
        agenda: Agenda,
        routes: Routes,
        replicas: Sequence[SimReplica],
        add: Callable[[], SimReplica],
        resume: Callable[[SimReplica, float], None],
    ) -> None:
        """Begin with the fleet's first ``replicas``.

        ``add`` makes one more; ``resume`` moves a removed one's responses to others.
        """
        self._scaling, self._warmup_s, self._agenda, self._routes = scenario.scaling, scenario.warmup_s, agenda, routes
        self._add, self._resume = add, resume
        self._running = list(replicas)  # those that take requests, by when they began to
        self._draining: set[SimReplica] = set()
        self._off: list[SimReplica] = []
        self._starting: dict[int, float] = {}  # starts under way, and since when
        self._nth_start = 0
        self._wanted = len(self._running)
        self._since_s = dict.fromkeys(self._running, 0.0)
        self._paid_s = 0.0
        self.started, self.most = 0, len(self._running)
        self._memory = ScalingState()
        by = None if self._scaling is None else self._scaling.by
        self._rules = by if isinstance(by, ScalingRules) else None
        self._counting = None if by is None or isinstance(by, ScalingRules) else RequestCounting(by)

    def begin(self) -> None:
        """Schedule the first decision."""
        if self._scaling is not None:
            self._agenda.at(0.0, self._look, None)

    def paid_s(self, now_s: float) -> float:
        """Return verifier seconds since the warm-up, starts and drains included."""
        since = (*self._since_s.values(), *self._starting.values())
        return self._paid_s + sum(self._paid(since_s, now_s) for since_s in since)

    def lost(self, replica: SimReplica) -> None:
        """Take note that a response has ended at, or moved from, ``replica``; a drained one ends with its last."""
        if replica in self._draining and not replica.under_way:
            self._draining.remove(replica)
            self._gone(replica)

    def _paid(self, since_s: float, until_s: float) -> float:
        return max(0.0, until_s - max(since_s, self._warmup_s))

    def _gone(self, replica: SimReplica) -> None:
        self._paid_s += self._paid(self._since_s.pop(replica), self._agenda.now_s)
        replica.verifier.lose()
        self._off.append(replica)

    def _look(self, _: object, now_s: float) -> None:
        assert self._scaling is not None
        self._wanted = self._decided(now_s)
        there = len(self._running) + len(self._starting)
        for _nth in range(self._wanted - there):
            self._nth_start += 1
            self._starting[self._nth_start] = now_s
            self._agenda.at(now_s + self._scaling.cold_start_s, self._up, self._nth_start)
        for _nth in range(there - self._wanted):
            self._fewer(now_s)
        self.most = max(self.most, len(self._running) + len(self._starting) + len(self._draining))
        self._agenda.at(now_s + self._scaling.every_s, self._look, None)

    def _decided(self, now_s: float) -> int:
        if self._counting is not None:
            requests = sum(replica.under_way for replica in self._running)
            return self._counting.decide(now_s, len(self._running), self._wanted, requests)
        assert self._rules is not None
        reports = [replica.verifier.report() for replica in self._running]
        demand = demand_of([load_of_report(one) for one in reports if one is not None])
        found, active = (None, 0.0) if demand is None else (demand.all, demand.active)
        seen = ScalingInput(now_s, len(self._running), self._wanted, found, active)
        decision, self._memory = decide(self._rules, self._memory, seen)
        return decision.count

    def _up(self, start: int, _: float) -> None:
        """Add a verifier whose cold start is over, unless the start was cancelled."""
        since_s = self._starting.pop(start, None)
        if since_s is None:
            return
        if self._off:
            replica = self._off.pop()
            replica.up()
        else:
            replica = self._add()
        self._since_s[replica] = since_s
        self._running.append(replica)
        self._routes.add(replica.number)
        self.started += 1

    def _fewer(self, now_s: float) -> None:
        """Cancel the newest start under way; if there is none, drain the verifier that was added last."""
        if self._starting:
            self._paid_s += self._paid(self._starting.pop(max(self._starting)), now_s)
            return
        replica = self._running.pop()
        self._routes.drop(replica.number)
        if not replica.under_way:
            self._gone(replica)
            return
        self._draining.add(replica)
        if self._scaling is not None and self._scaling.drain_s is not None:
            self._agenda.at(now_s + self._scaling.drain_s, self._remove_drained, (replica, replica.lives))

    def _remove_drained(self, of: tuple[SimReplica, int], now_s: float) -> None:
        """Remove a drained verifier whose ``drain_s`` is over; its responses go on elsewhere."""
        replica, lives = of
        if replica in self._draining and replica.lives == lives:  # else it ended, and may have been started again
            self._resume(replica, now_s)
