"""One verifier with its coordinator in a fleet: it may be lost and come back, and counts what it did."""

from typing import cast

from lab.simulation.agenda import Agenda
from lab.simulation.fleet.conversation import Conversation
from lab.simulation.fleet.scenario import FleetScenario
from lab.simulation.memory import KvMemory
from lab.simulation.scenario import fleet_rules
from lab.simulation.server import SimulatedServer, StepCounts
from lab.simulation.sim_verifier import CoordinatorCpu, SimVerifier, VerifierListener


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
