"""Simulate a fleet on one virtual clock: traffic, router, verifiers and drafters, with losses.

Results are a function of the scenario alone: all chance comes from its seed, and events at equal times run in the order
in which they were scheduled.
"""

from collections.abc import Callable
from typing import cast

from lab.simulation.agenda import Agenda
from lab.simulation.chance import hashed
from lab.simulation.device import SimDevice
from lab.simulation.fleet.conversation import Conversation
from lab.simulation.fleet.drafters import DrafterPool, exponential
from lab.simulation.fleet.losses import Losses, SimReplica, around
from lab.simulation.fleet.results import FleetResults, ReplicaResults, TimeHistogram, TrafficTally
from lab.simulation.fleet.routes import Routes
from lab.simulation.fleet.scenario import FleetScenario
from lab.simulation.results import DeviceAccount, DeviceResults
from lab.simulation.server import SimStep
from outrider.admission.decisions import AdmissionRefused
from outrider.contracts.errors import ParameterError
from outrider.scaling.demand import fullness_of_report

_ARRIVAL, _RETRY, _INGRESS, _STAGGER = range(22, 26)  # purposes of chance
_WITHOUT_LIMIT = 1_000_000_000
_FULL_RETRY_S = 1.0  # delay of a retry if no coordinator has a place
_TOLD_EVERY_S = 1.0  # interval of replicas' load reports, as Serve's
_SAMPLED = 16  # one round in 16 is timed
_TICKS = 200


def simulate_fleet(scenario: FleetScenario, progress: Callable[[float], None] | None = None) -> FleetResults:
    """Run a scenario; ``progress`` is called with the virtual time, 200 times in a run.

    Raises:
        ParameterError: a response would not fit a verifier's memory.
    """
    _check_memory(scenario)
    fleet = FleetSimulation(scenario)
    fleet.run(progress)
    return fleet.results()


class FleetSimulation:
    def __init__(self, scenario: FleetScenario) -> None:
        self.scenario, self.agenda = scenario, Agenda()
        admission = scenario.admission
        capacity = _WITHOUT_LIMIT if admission is None else admission.max_active + admission.max_waiting
        self.routes = Routes(scenario.router, capacity)
        self.pool = DrafterPool(scenario.drafters, scenario.seed)
        self.replicas = [SimReplica(number, scenario, self.agenda, self) for number in range(scenario.verifiers)]
        for replica in self.replicas:
            self.routes.add(replica.number)
        self._tallies = [TrafficTally(traffic) for traffic in scenario.traffic]
        self._accounts = [
            DeviceAccount(DeviceResults(device=number, group=traffic.name, slo=traffic.slo))
            for number, traffic in enumerate(scenario.traffic)
        ]
        self._users = sum(traffic.users for traffic in scenario.traffic)
        self._identities = self._requests = self._came = self._retries = 0
        self._rounds = self._drafted = self._active = self._most_active = 0
        self._losses = Losses(scenario, self.agenda, self.pool, self.routes, self.replicas, self)
        self._round_times = TimeHistogram()
        self._asked: dict[int, Conversation] = {}  # those whose response has not ended

    def run(self, progress: Callable[[float], None] | None = None) -> None:
        scenario, first = self.scenario, 0
        for kind, traffic in enumerate(scenario.traffic):
            for number in range(first, first + traffic.users):
                begins_at_s = traffic.stagger_s * hashed(scenario.seed, _STAGGER, number)
                self.agenda.at(begins_at_s, self._start_conversation, (kind, number))
            first += traffic.users
            if traffic.most_per_s:
                self._await_arrival(kind, 0.0)
        self._losses.begin()
        if scenario.admission is not None:
            self.agenda.at(_TOLD_EVERY_S, self._heartbeat, None)
        if progress is not None:
            self.agenda.at(0.0, self._tick, progress)
        self.agenda.run(scenario.duration_s)

    def results(self) -> FleetResults:
        measured_s = max(0.0, self.agenda.now_s - self.scenario.warmup_s)
        each_s, end_s = max(measured_s, 1e-9), max(self.agenda.now_s, 1e-9)
        return FleetResults(
            name=self.scenario.name,
            seed=self.scenario.seed,
            measured_s=measured_s,
            traffic=tuple(tally.results(measured_s) for tally in self._tallies),
            replicas=tuple(
                ReplicaResults(
                    busy_share=min(1.0, replica.counts.busy_s / each_s),
                    coordinator_share=replica.coordinator_s / end_s,
                    responses=replica.responses,
                    blocks=replica.counts.blocks,
                    steps=replica.counts.steps,
                    evictions=replica.counts.evictions,
                    recomputed_tokens=replica.counts.recomputed_tokens,
                )
                for replica in self.replicas
            ),
            rounds=self._rounds,
            drafted_rounds=self._drafted,
            round_p50_s=self._round_times.quantile_s(0.5),
            round_p99_s=self._round_times.quantile_s(0.99),
            most_active=self._most_active,
            verifiers_lost=self._losses.verifiers,
            responses_resumed=self._losses.responses,
            drafters_lost=self.pool.losses,
            drafters_used=self.pool.used,
            drafts_lost=self._losses.drafts,
            retries=self._retries,
        )

    def conversation(self, number: int) -> Conversation:
        return self._asked[number]

    def under_way(self) -> list[Conversation]:
        """Return conversations whose response was requested after the warm-up and has not ended, by number."""
        return [self._asked[number] for number in sorted(self._asked) if self._asked[number].counted]

    def admitted(self, device: SimDevice, now_s: float) -> None:
        conversation = cast("Conversation", device)
        conversation.lease(now_s)
        conversation.autonomous_rounds = conversation.drafts.autonomous_rounds

    def stepped(self, step: SimStep) -> None:
        """Do nothing: verifiers count their steps."""

    def first_token(self, device: SimDevice, now_s: float) -> None:
        conversation = cast("Conversation", device)
        self._rounds += 1
        tally = self._tallies[conversation.kind]
        tally.tokens += now_s >= self.scenario.warmup_s
        if conversation.counted:
            tally.first_token.add(now_s - conversation.asked_at_s)

    def round(self, device: SimDevice, tokens: int, now_s: float) -> None:
        conversation = cast("Conversation", device)
        self._rounds += 1
        self._drafted += conversation.draft.nodes > 0
        if now_s >= self.scenario.warmup_s:
            self._tallies[conversation.kind].tokens += tokens
            if self._rounds % _SAMPLED == 0:
                self._round_times.add(now_s - conversation.began_at_s)

    def over(self, device: SimDevice, now_s: float) -> None:
        conversation = cast("Conversation", device)
        assert conversation.replica is not None
        self.replicas[conversation.replica].responses += now_s >= self.scenario.warmup_s
        conversation.release()
        self.detach(conversation)
        del self._asked[conversation.number]
        if not conversation.counted:
            return
        tally = self._tallies[conversation.kind]
        if conversation.promised.kept:
            tally.kept += 1
            tally.kept_tokens += conversation.output_tokens
        else:
            tally.late += 1

    def next(self, device: SimDevice, now_s: float) -> None:
        """Schedule the next turn, or its user's next conversation; one that arrived by itself has none."""
        conversation = cast("Conversation", device)
        pause = conversation.go_on(self.scenario.seed)
        if pause is None:
            for number in conversation.replicas:
                self.replicas[number].memory.drop(conversation.number)
            conversation.replicas.clear()
            if conversation.number >= self._users:
                return
            pause = self._begin(conversation)
        self.agenda.at(now_s + pause, self.request, conversation)

    def refused(self, device: SimDevice, refused: AdmissionRefused, now_s: float) -> None:
        """Handle a refusal by a coordinator: the client retries or gives up."""
        conversation = cast("Conversation", device)
        assert conversation.replica is not None
        self.replicas[conversation.replica].memory.release(conversation.number)
        self.detach(conversation)
        self._retry(conversation, refused.retry_after_s, now_s)

    def _start_conversation(self, who: tuple[int, int], now_s: float) -> None:
        kind, number = who
        conversation = Conversation(
            self.scenario.traffic[kind], kind, number, self._accounts[kind], self.agenda, self.pool
        )
        self._begin(conversation)
        self.request(conversation, now_s)

    def _begin(self, conversation: Conversation) -> float:
        self._identities += 1
        return conversation.begin(self.scenario.seed, self._identities)

    def _thin_arrival(self, kind: int, now_s: float) -> None:
        """Begin a conversation with probability rate / highest rate: thinning (Lewis and Shedler 1979).

        Candidates arrive as a Poisson process of the highest rate; what is accepted has the rate of the moment.
        """
        traffic = self.scenario.traffic[kind]
        if hashed(self.scenario.seed, _ARRIVAL, self._came, 1) * traffic.most_per_s < traffic.rate_at(now_s):
            self._start_conversation((kind, self._users + self._came), now_s)
        self._await_arrival(kind, now_s)

    def _await_arrival(self, kind: int, now_s: float) -> None:
        self._came += 1
        mean_s = 1.0 / self.scenario.traffic[kind].most_per_s
        self.agenda.at(
            now_s + exponential(hashed(self.scenario.seed, _ARRIVAL, self._came), mean_s), self._thin_arrival, kind
        )

    def request(self, conversation: Conversation, now_s: float) -> None:
        """Route a new response, a retry, or a response that its verifier lost."""
        tally = self._tallies[conversation.kind]
        if conversation.number not in self._asked:
            conversation.counted = now_s >= self.scenario.warmup_s
            tally.asked += conversation.counted
            self._asked[conversation.number] = conversation
        self._requests += 1
        ingress = int(self.scenario.router.ingresses * hashed(self.scenario.seed, _INGRESS, self._requests))
        chosen = self.routes.send(conversation.digests(), ingress)
        if chosen is None:
            self._retry(conversation, _FULL_RETRY_S, now_s)
            return
        replica, conversation.replica = self.replicas[chosen], chosen
        conversation.replicas.add(chosen)
        self._active += 1
        self._most_active = max(self._most_active, self._active)
        found = replica.memory.open(conversation.number, conversation.system, conversation.system_tokens)
        if conversation.counted and conversation.done:
            tally.prompt_tokens += conversation.prompt_tokens
            tally.hit_tokens += min(found, conversation.prompt_tokens - 1)
        if conversation.done:
            replica.verifier.ask(conversation, now_s)
        else:
            replica.verifier.resume(conversation, now_s)

    def _heartbeat(self, _: object, now_s: float) -> None:
        for number in self.routes.up:
            report = self.replicas[number].verifier.report()
            if report is not None:
                self.routes.report(number, fullness_of_report(report))
        self.agenda.at(now_s + _TOLD_EVERY_S, self._heartbeat, None)

    def _retry(self, conversation: Conversation, after_s: float, now_s: float) -> None:
        conversation.attempts += 1
        if (
            conversation.attempts <= conversation.traffic.retries or not conversation.done
        ):  # a begun response is never refused: its ingress resumes it
            self._retries += 1
            share = hashed(self.scenario.seed, _RETRY, conversation.number, self._requests)
            self.agenda.at(now_s + after_s * around(share), self.request, conversation)
            return
        self._tallies[conversation.kind].refused += conversation.counted
        del self._asked[conversation.number]
        conversation.turn = conversation.turns  # nothing follows it
        self.next(conversation, now_s)

    def detach(self, conversation: Conversation) -> None:
        assert conversation.replica is not None
        replica, conversation.replica = self.replicas[conversation.replica], None
        self.routes.ended(replica.number)
        self._active -= 1

    def _tick(self, progress: Callable[[float], None], now_s: float) -> None:
        progress(now_s)
        self.agenda.at(now_s + self.scenario.duration_s / _TICKS, self._tick, progress)


def _check_memory(scenario: FleetScenario) -> None:
    """Refuse a response that never fits: it would wait for ever."""
    most, block_tokens = scenario.verifier.limits.max_memory_blocks, scenario.verifier.kv_block_tokens
    drafted = max((group.window for group in scenario.drafters), default=0)
    for traffic in scenario.traffic:
        system = 0 if traffic.system_prompts is None else traffic.system_prompts.tokens
        longest = system + traffic.prompt.most_tokens + traffic.output.most_tokens
        if traffic.turns.most_tokens > 1:
            longest = max(longest, traffic.max_context_tokens)
        needed = -(-(longest + drafted) // block_tokens)
        if most is not None and needed > most:
            raise ParameterError(
                "verifiers.server.kv_tokens",
                f"at least {needed * block_tokens}, as responses are long",
                most * block_tokens,
            )
