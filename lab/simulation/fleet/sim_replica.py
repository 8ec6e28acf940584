"""One verifier with its coordinator in a fleet: it may be lost and come back, and counts what it did."""

from typing import Protocol, cast

from lab.simulation.agenda import Agenda
from lab.simulation.coordinator_cpu import CoordinatorCpu
from lab.simulation.device import SimDevice
from lab.simulation.fleet.conversation import Conversation
from lab.simulation.fleet.scenario import FleetScenario
from lab.simulation.memory import KvMemory
from lab.simulation.server import SimStep, SimulatedServer
from lab.simulation.sim_verifier import SimVerifier
from lab.simulation.systems import fleet_rules
from outrider.admission.decisions import AdmissionRefused


class ResponseListener(Protocol):
    """Receives what happens to the responses of all verifiers of a fleet."""

    def began(self, conversation: Conversation, now_s: float) -> None:
        """Handle the commit of a response's first token."""
        ...

    def round(self, conversation: Conversation, tokens: int, now_s: float) -> None:
        """Handle the commit of a round after the first token."""
        ...

    def over(self, conversation: Conversation) -> None:
        """Handle the commit of a response's last token."""
        ...

    def next(self, conversation: Conversation, now_s: float) -> None:
        """Handle the release of an ended response's place."""
        ...

    def refused(self, conversation: Conversation, retry_after_s: float, now_s: float) -> None:
        """Handle a refusal by admission."""
        ...


class SimReplica:
    """The ``VerifierListener`` of a simulated verifier, which is replaced by an empty one after a loss."""

    def __init__(self, number: int, scenario: FleetScenario, agenda: Agenda, listener: ResponseListener) -> None:
        self.number, self._scenario, self._agenda, self._listener = number, scenario, agenda, listener
        self.busy_s = self.cpu_s = 0.0  # those of lost verifiers included; ``busy_s`` from the warm-up on
        self.steps = self.blocks = self.evictions = self.recomputed_tokens = self.responses = 0
        self.lives = 0
        self.under_way = 0  # responses that were sent here and have not ended
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
        server = SimulatedServer(scenario.verifier, rules, seed % 2**63, told_late=computes, logged=False)
        self.memory = server.memory
        self._cpu = CoordinatorCpu(scenario.coordinator_round_s, scenario.coordinator_token_s)
        self.verifier = SimVerifier(
            self._agenda,
            server,
            self,
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

    def begins(self, device: SimDevice, now_s: float) -> None:
        """Lease a drafter as soon as a response begins."""
        conversation = cast("Conversation", device)
        conversation.lease(now_s)
        conversation.alone_rounds = conversation.drafts.alone_rounds

    def stepped(self, step: SimStep) -> None:
        if step.entry.starts_at_s >= self._scenario.warmup_s:
            self.busy_s += step.entry.took_s
            self.steps += 1
            self.blocks += len(step.members)
            self.evictions += step.evictions
            self.recomputed_tokens += step.recomputed_tokens

    def began(self, device: SimDevice, now_s: float) -> None:
        self._listener.began(cast("Conversation", device), now_s)

    def round(self, device: SimDevice, tokens: int, now_s: float) -> None:
        self._listener.round(cast("Conversation", device), tokens, now_s)

    def over(self, device: SimDevice, now_s: float) -> None:
        self.responses += now_s >= self._scenario.warmup_s
        self._listener.over(cast("Conversation", device))

    def next(self, device: SimDevice, now_s: float) -> None:
        self._listener.next(cast("Conversation", device), now_s)

    def refused(self, device: SimDevice, refused: AdmissionRefused, now_s: float) -> None:
        self._listener.refused(cast("Conversation", device), refused.retry_after_s, now_s)
