"""A fleet under one virtual clock: conversations, the router, and all that comes and goes. Deterministic."""

from collections.abc import Callable

from outrider.contracts.errors import ParameterError
from outrider.scaling.demand import fullness_of_report
from outrider.simulation.agenda import Agenda
from outrider.simulation.chance import hashed
from outrider.simulation.device_account import DeviceAccount
from outrider.simulation.fleet.conversation import Conversation
from outrider.simulation.fleet.drafters import DrafterPool, exponential
from outrider.simulation.fleet.losses import Losses, around
from outrider.simulation.fleet.results import FleetResults, SiteResults, TimeHistogram
from outrider.simulation.fleet.routes import Routes
from outrider.simulation.fleet.scaled import Scaled
from outrider.simulation.fleet.scenario import FleetScenario
from outrider.simulation.fleet.sim_replica import SimReplica
from outrider.simulation.fleet.tally import TrafficTally
from outrider.simulation.results import DeviceResults

_ARRIVAL, _RETRY, _INGRESS, _STAGGER = range(22, 26)  # purposes of chance
_WITHOUT_LIMIT = 1_000_000_000
_FULL_RETRY_S = 1.0  # where no coordinator has a place
_TOLD_EVERY_S = 1.0  # as often as Serve asks a replica how full it is
_SAMPLED = 16  # one round in so many is timed
_TICKS = 200


def simulate_fleet(scenario: FleetScenario, progress: Callable[[float], None] | None = None) -> FleetResults:
    """Run a scenario; ``progress`` is told what time it is, every now and then. The same one gives the same results.

    Raises:
        ParameterError: a response would not fit a verifier's memory.
    """
    _check_memory(scenario)
    fleet = FleetSimulation(scenario)
    fleet.run(progress)
    return fleet.results()


class FleetSimulation:
    """One run."""

    def __init__(self, scenario: FleetScenario) -> None:
        """Everybody is about to begin."""
        self.scenario, self.agenda = scenario, Agenda()
        admission = scenario.admission
        capacity = _WITHOUT_LIMIT if admission is None else admission.max_active + admission.max_waiting
        self.routes = Routes(scenario.router, capacity)
        self.pool = DrafterPool(scenario.drafters, scenario.seed)
        self.sites = [SimReplica(number, self) for number in range(scenario.verifiers)]
        for site in self.sites:
            self.routes.add(site.number)
        self._tallies = [TrafficTally(traffic) for traffic in scenario.traffic]
        self._accounts = [
            DeviceAccount(DeviceResults(device=number, group=traffic.name, slo=traffic.slo))
            for number, traffic in enumerate(scenario.traffic)
        ]
        self._users = sum(traffic.users for traffic in scenario.traffic)
        self._identities = self._requests = self._came = self._retries = 0
        self._rounds = self._drafted = self._active = self._most_active = 0
        self._losses = Losses(self)
        self._scaled = Scaled(self, self._losses)
        self._round_times = TimeHistogram()
        self._asked: dict[int, Conversation] = {}  # whose response has not ended

    def run(self, progress: Callable[[float], None] | None = None) -> None:
        """Until the time is over."""
        scenario, first = self.scenario, 0
        for kind, traffic in enumerate(scenario.traffic):
            for number in range(first, first + traffic.users):
                begins_at_s = traffic.stagger_s * hashed(scenario.seed, _STAGGER, number)
                self.agenda.at(begins_at_s, self._comes, (kind, number))
            first += traffic.users
            if traffic.most_per_s:
                self._await_arrival(kind, 0.0)
        self._losses.begin()
        self._scaled.begin()
        if scenario.admission is not None and self.routes.asks:
            self.agenda.at(_TOLD_EVERY_S, self._told, None)
        if progress is not None:
            self.agenda.at(0.0, self._tick, progress)
        self.agenda.run(scenario.duration_s)

    def results(self) -> FleetResults:
        """What was measured."""
        measured_s = max(0.0, self.agenda.now_s - self.scenario.warmup_s)
        each_s, end_s = max(measured_s, 1e-9), max(self.agenda.now_s, 1e-9)
        return FleetResults(
            name=self.scenario.name,
            seed=self.scenario.seed,
            measured_s=measured_s,
            traffic=tuple(tally.results(measured_s) for tally in self._tallies),
            sites=tuple(
                SiteResults(
                    busy_share=min(1.0, site.busy_s / each_s),
                    coordinator_share=site.coordinator_s / end_s,
                    responses=site.responses,
                    blocks=site.blocks,
                    steps=site.steps,
                    evictions=site.evictions,
                    recomputed_tokens=site.recomputed_tokens,
                )
                for site in self.sites
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
            verifier_s=self._scaled.paid_s(self.agenda.now_s),
            most_verifiers=self._scaled.most,
            verifiers_started=self._scaled.started,
        )

    def under_way(self) -> list[Conversation]:
        """Whose response was asked for after the warm-up and has not ended, by number."""
        return [self._asked[number] for number in sorted(self._asked) if self._asked[number].counted]

    def began(self, talk: Conversation, now_s: float) -> None:
        """Its first token was committed."""
        self._rounds += 1
        tally = self._tallies[talk.kind]
        tally.tokens += now_s >= self.scenario.warmup_s
        if talk.counted:
            tally.first_token.add(now_s - talk.asked_at_s)

    def round(self, talk: Conversation, tokens: int, now_s: float) -> None:
        """Tokens behind the first were committed."""
        self._rounds += 1
        self._drafted += talk.draft.nodes > 0
        if now_s >= self.scenario.warmup_s:
            self._tallies[talk.kind].tokens += tokens
            if self._rounds % _SAMPLED == 0:
                self._round_times.add(now_s - talk.began_at_s)

    def over(self, talk: Conversation) -> None:
        """A response has all its tokens."""
        talk.release()
        self.leave(talk)
        del self._asked[talk.number]
        if not talk.counted:
            return
        tally = self._tallies[talk.kind]
        if talk.promised.kept:
            tally.kept += 1
            tally.kept_tokens += talk.output_tokens
        else:
            tally.late += 1

    def next(self, talk: Conversation, now_s: float) -> None:
        """The next turn, or the next conversation of its user, if it has one."""
        pause = talk.go_on(self.scenario.seed)
        if pause is None:
            for site in talk.sites:
                site.memory.drop(talk.number)
            talk.sites.clear()
            if talk.number >= self._users:
                return
            pause = self._begin(talk)
        self.agenda.at(now_s + pause, self.request, talk)

    def refused(self, talk: Conversation, retry_after_s: float, now_s: float) -> None:
        """A coordinator does not let it in: the client comes again, or gives up."""
        assert talk.site is not None
        talk.site.memory.leave(talk.number)
        self.leave(talk)
        self._retry(talk, retry_after_s, now_s)

    def _comes(self, who: tuple[int, int], now_s: float) -> None:
        kind, number = who
        talk = Conversation(self.scenario.traffic[kind], kind, number, self._accounts[kind], self.agenda, self.pool)
        self._begin(talk)
        self.request(talk, now_s)

    def _begin(self, talk: Conversation) -> float:
        self._identities += 1
        return talk.begin(self.scenario.seed, self._identities)

    def _arrives(self, kind: int, now_s: float) -> None:
        """A candidate for a conversation came: thinned to the rate of the moment."""
        traffic = self.scenario.traffic[kind]
        if hashed(self.scenario.seed, _ARRIVAL, self._came, 1) * traffic.most_per_s < traffic.rate_at(now_s):
            self._comes((kind, self._users + self._came), now_s)
        self._await_arrival(kind, now_s)

    def _await_arrival(self, kind: int, now_s: float) -> None:
        self._came += 1
        mean_s = 1.0 / self.scenario.traffic[kind].most_per_s
        self.agenda.at(
            now_s + exponential(hashed(self.scenario.seed, _ARRIVAL, self._came), mean_s), self._arrives, kind
        )

    def request(self, talk: Conversation, now_s: float) -> None:
        """Route a response that is asked for, or that was lost."""
        tally = self._tallies[talk.kind]
        if talk.number not in self._asked:
            talk.counted = now_s >= self.scenario.warmup_s
            tally.asked += talk.counted
            self._asked[talk.number] = talk
        self._requests += 1
        ingress = int(self.scenario.router.ingresses * hashed(self.scenario.seed, _INGRESS, self._requests))
        chosen = self.routes.send(talk.digests(), ingress)
        if chosen is None:
            self._retry(talk, _FULL_RETRY_S, now_s)
            return
        site = talk.site = self.sites[chosen]
        talk.sites.add(site)
        site.under_way += 1
        self._active += 1
        self._most_active = max(self._most_active, self._active)
        found = site.memory.opens(talk.number, talk.system, talk.system_tokens)
        if talk.counted and talk.done:
            tally.prompt_tokens += talk.prompt_tokens
            tally.hit_tokens += min(found, talk.prompt_tokens - 1)
        if talk.done:
            site.lane.ask(talk, now_s)
        else:
            site.lane.resume(talk, now_s)

    def _told(self, _: object, now_s: float) -> None:
        """Everybody that is up says how full it is."""
        for number in self.routes.up:
            report = self.sites[number].lane.report()
            if report is not None:
                self.routes.told(number, fullness_of_report(report))
        self.agenda.at(now_s + _TOLD_EVERY_S, self._told, None)

    def _retry(self, talk: Conversation, after_s: float, now_s: float) -> None:
        talk.attempts += 1
        if talk.attempts <= talk.traffic.retries or not talk.done:  # what has been begun is its ingress's to resume
            self._retries += 1
            share = hashed(self.scenario.seed, _RETRY, talk.number, self._requests)
            self.agenda.at(now_s + after_s * around(share), self.request, talk)
            return
        self._tallies[talk.kind].refused += talk.counted
        del self._asked[talk.number]
        talk.turn = talk.turns  # nothing follows it
        self.next(talk, now_s)

    def leave(self, talk: Conversation) -> None:
        """It is not under way any more where it was."""
        assert talk.site is not None
        site, talk.site = talk.site, None
        self.routes.ended(site.number)
        site.under_way -= 1
        self._active -= 1
        self._scaled.left(site)

    def _tick(self, progress: Callable[[float], None], now_s: float) -> None:
        progress(now_s)
        self.agenda.at(now_s + self.scenario.duration_s / _TICKS, self._tick, progress)


def _check_memory(scenario: FleetScenario) -> None:
    """A response that never fits would wait for ever."""
    most, block = scenario.verifier.limits.max_memory_blocks, scenario.verifier.kv_block_tokens
    drafted = max((group.window for group in scenario.drafters), default=0)
    for traffic in scenario.traffic:
        system = 0 if traffic.system_prompts is None else traffic.system_prompts.tokens
        longest = system + traffic.prompt.most_tokens + traffic.output.most_tokens
        if traffic.turns.most_tokens > 1:
            longest = max(longest, traffic.max_context_tokens)
        needed = -(-(longest + drafted) // block)
        if most is not None and needed > most:
            raise ParameterError(
                "verifiers.server.kv_tokens", f"at least {needed * block}, as responses are long", most * block
            )
