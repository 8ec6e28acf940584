"""Simulate verifiers (with their coordinators) and drafters that are lost and return; resume the work they had."""

from collections.abc import Sequence
from typing import Protocol, cast

from lab.simulation.agenda import Agenda
from lab.simulation.chance import hashed
from lab.simulation.fleet.conversation import Conversation
from lab.simulation.fleet.drafters import DrafterPool, exponential
from lab.simulation.fleet.routes import Routes
from lab.simulation.fleet.scenario import FleetScenario
from lab.simulation.memory import KvMemory
from lab.simulation.scenario import fleet_rules
from lab.simulation.server import SimulatedServer, StepCounts
from lab.simulation.sim_verifier import CoordinatorCpu, SimVerifier, VerifierListener
from outrider.routing.resuming import PAUSE_SPREAD, pause_s


class SimReplica:
    """A simulated verifier, which is replaced by an empty one after a loss."""

    def __init__(self, number: int, scenario: FleetScenario, agenda: Agenda, listener: VerifierListener) -> None:
        self.number, self._scenario, self._agenda, self._listener = number, scenario, agenda, listener
        self.counts = StepCounts(scenario.warmup_s)  # those of lost verifiers included, as in ``cpu_s``
        self.cpu_s = 0.0
        self.responses = self.lives = 0
        self.memory: KvMemory
        self.verifier: SimVerifier
        self._cpu: CoordinatorCpu
        self.up()

    def up(self) -> None:
        """Start an empty verifier, with a seed of its own for each life."""
        scenario = self._scenario
        rules = fleet_rules(scenario.scheduling)
        seed = (scenario.seed << 32) + (self.lives << 20) + self.number if self.number or self.lives else scenario.seed
        computes = scenario.coordinator_round_s + scenario.coordinator_token_s > 0.0
        server = SimulatedServer(scenario.verifier, rules, seed % 2**63, self.counts, told_late=computes, logged=False)
        self.memory = server.memory
        self._cpu = CoordinatorCpu(scenario.coordinator_round_s, scenario.coordinator_token_s)
        self.verifier = SimVerifier(
            self._agenda,
            server,
            self._listener,
            scenario.coordinator,
            cpu=self._cpu if computes else None,
        )
        self.lives += 1

    def lose(self) -> list[Conversation]:
        """Lose the verifier; return the conversations whose responses were under way or waited there."""
        self.cpu_s += self._cpu.busy_s
        self._cpu.busy_s = 0.0
        return cast("list[Conversation]", self.verifier.lose())

    @property
    def is_up(self) -> bool:
        return not self.verifier.down

    @property
    def coordinator_s(self) -> float:
        return self.cpu_s + self._cpu.busy_s


_LOSS, _LEAVING, _RESUMED = range(26, 29)  # purposes of chance
_NOTICED_S = 1.0  # from a drafter's loss until its coordinator knows of it


def around(share: float) -> float:
    """Return a factor around 1, which spreads retries that were given the same delay."""
    return 1.0 + PAUSE_SPREAD * (2.0 * share - 1.0)


class Responses(Protocol):
    """The responses under way in a fleet."""

    def conversation(self, number: int) -> Conversation: ...

    def detach(self, conversation: Conversation) -> None: ...

    def request(self, conversation: Conversation, now_s: float) -> None:
        """Route a response, also one that was begun elsewhere."""
        ...


class Losses:
    """Losses of one fleet.

    Each of n devices is lost after an exponentially distributed time with mean m. So the next loss among all of them
    is exponential with mean m / n, and strikes each equally: one event at a time on the agenda is enough.
    """

    def __init__(
        self,
        scenario: FleetScenario,
        agenda: Agenda,
        pool: DrafterPool,
        routes: Routes,
        replicas: Sequence[SimReplica],
        responses: Responses,
    ) -> None:
        """Create losses of ``replicas`` and of the pool's drafters; ``responses`` are resumed elsewhere."""
        self._scenario, self._agenda, self._pool = scenario, agenda, pool
        self._routes, self._replicas, self._responses = routes, replicas, responses
        self._nth_loss = self._nth_leaving = self._nth_left = 0
        self.verifiers = 0  # lost ones; ``responses``: resumed elsewhere; ``drafts``: lost with their drafter
        self.responses = self.drafts = 0

    def begin(self) -> None:
        self._await_loss(0.0)
        for index, table in enumerate(self._pool.tables):
            if table.group.present_s is not None:
                self._await_leaving(index, 0.0)

    def _await_loss(self, now_s: float) -> None:
        self._nth_loss += 1
        mean_s = self._scenario.lost_every_s / self._scenario.verifiers
        at_s = now_s + exponential(hashed(self._scenario.seed, _LOSS, self._nth_loss), mean_s)
        self._agenda.at(
            at_s,
            self._lose_verifier,
            int(self._scenario.verifiers * hashed(self._scenario.seed, _LOSS, self._nth_loss, 1)),
        )

    def _lose_verifier(self, number: int, now_s: float) -> None:
        replica = self._replicas[number]
        if replica.is_up:
            self.verifiers += 1
            self._routes.drop(number)
            self._resume(replica, now_s)
            self._agenda.at(now_s + self._scenario.reload_s, self._restore_verifier, replica)
        self._await_loss(now_s)

    def _resume(self, replica: SimReplica, now_s: float) -> None:
        """Send the responses of a verifier, begun or waiting, to others after the product's pause."""
        self._nth_left += 1
        for conversation in replica.lose():
            conversation.release()
            self._responses.detach(conversation)
            conversation.ahead = 0
            self.responses += not conversation.done
            share = hashed(self._scenario.seed, _RESUMED, conversation.number, self._nth_left)
            self._agenda.at(now_s + pause_s(1) * around(share), self._responses.request, conversation)

    def _restore_verifier(self, replica: SimReplica, _: float) -> None:
        replica.up()
        self._routes.add(replica.number)

    def _await_leaving(self, index: int, now_s: float) -> None:
        group = self._pool.tables[index].group
        assert group.present_s is not None
        self._nth_leaving += 1
        after_s = exponential(hashed(self._scenario.seed, _LEAVING, self._nth_leaving), group.present_s / group.count)
        self._agenda.at(now_s + after_s, self._lose_next, index)

    def _lose_next(self, index: int, now_s: float) -> None:
        """Lose a device of a group, unless it is away already; rounds that it drafts for are begun anew."""
        number = self._pool.any_of(index, hashed(self._scenario.seed, _LEAVING, self._nth_leaving, 1))
        drafter = self._pool.drafter(number)
        if drafter.present:
            for orphan in self._pool.depart(number):
                conversation = self._responses.conversation(orphan)
                conversation.drafter = None
                if conversation.draft.bits is not None and conversation.arrived_at_s > now_s:
                    conversation.arrived_at_s = now_s + _NOTICED_S  # voids the arrival that is on the agenda
                    self.drafts += 1
                    self._agenda.at(conversation.arrived_at_s, self._redraft, (conversation, conversation.replica))
            away_s = exponential(
                hashed(self._scenario.seed, _LEAVING, self._nth_leaving, 2), drafter.tables.group.away_s
            )
            self._agenda.at(now_s + away_s, self._restore_drafter, number)
        self._await_leaving(index, now_s)

    def _restore_drafter(self, number: int, now_s: float) -> None:
        self._pool.restore(number, now_s)

    def _redraft(self, whose: tuple[Conversation, int | None], now_s: float) -> None:
        conversation, replica = whose
        if replica is not None and conversation.replica == replica and conversation.arrived_at_s == now_s:
            self._replicas[replica].verifier.again(conversation, now_s)
