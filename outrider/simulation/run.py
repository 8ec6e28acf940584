"""The event loop: devices, links and verifier under a virtual clock. Deterministic."""

from heapq import heappop, heappush
from math import inf

from outrider.admission.admission import Admission
from outrider.admission.decisions import Asked, Refused
from outrider.admission.rounds import MeasuredRounds
from outrider.admission.rules import AdmissionRules
from outrider.contracts.errors import ParameterError
from outrider.contracts.link import Direction
from outrider.link.emulator import LinkEmulator
from outrider.rounds.account import RoundAccount
from outrider.rounds.load import PresentLoad
from outrider.scheduling.attribution import round_is_late
from outrider.scheduling.ledger import FIRST_TOKEN_S, Ledger
from outrider.selection.arms import ARMS, DRAFT, Arm
from outrider.selection.regime import Regime
from outrider.simulation.chance import link_seed, uniforms
from outrider.simulation.chosen_rounds import ChoosingDevice, GroupChoices
from outrider.simulation.device import SimulatedDevice, device_number
from outrider.simulation.device_account import DeviceAccount
from outrider.simulation.drafted_rounds import NO_DRAFT, GroupDrafts, ModelledDevice, Workload
from outrider.simulation.results import DeviceResults, SimulationResults
from outrider.simulation.scenario import Scenario
from outrider.simulation.server import Given, SimulatedServer, Step
from outrider.simulation.stopped_rounds import GroupPrices, StoppingDevice
from outrider.simulation.stopping import flagging
from outrider.simulation.systems import SystemRules, rules_of
from outrider.simulation.tally import RunTally, percentiles
from outrider.wire.envelope import MAX_NODES

_ASK, _ARRIVE, _GIVE, _END, _TOLD, _PLAN, _DECIDE = range(7)
_JUST_BEFORE_S = 1e-6  # what reaches the verifier with a step's end is too late for the next
_Subject = SimulatedDevice | Given | Step | None
_FIRST_TOKEN_GRACE_S = 5.0  # a device that waits longer for a first token is late from then on
_DECIDED_EVERY_S = 1.0  # while anybody waits, as a coordinator's beat
_RETRIES = 7  # purpose of chance
_RETRY_SPREAD = 0.5  # of the time after which a device is told to try again, either way


def simulate(scenario: Scenario) -> SimulationResults:
    """Run a scenario. The same one gives the same results, batch by batch.

    Raises:
        ParameterError: a response would not fit the verifier's memory, or selection cannot use the cost model.
    """
    _check_memory(scenario)
    rules = rules_of(scenario)
    load = PresentLoad()
    regime = None if scenario.regime is None else Regime([ARMS[name] for name in scenario.arms], scenario.regime, 0.0)
    loop = EventLoop(
        modelled_devices(scenario, rules, load, regime),
        SimulatedServer(scenario.verifier, rules, scenario.seed),
        RunTally(scenario.warmup_s, keep_batch_log=scenario.keep_batch_log),
        load,
        regime,
        duration_s=scenario.duration_s,
        first_token_s=scenario.first_token_s,
        plans_late=scenario.plans_late,
        admission=scenario.admission,
        seed=scenario.seed,
    )
    loop.run()
    return loop.results(scenario.name, scenario.system, scenario.seed)


def modelled_devices(
    scenario: Scenario, rules: SystemRules, load: PresentLoad, regime: Regime | None = None
) -> list[SimulatedDevice]:
    """The devices of all groups, numbered through."""
    devices: list[SimulatedDevice] = []
    remote = rules.speculates and not rules.drafts_on_server
    seed, responses = scenario.seed, scenario.responses_per_device
    for group in scenario.groups:
        drafts, choices = GroupDrafts(group), None
        stopping = group.stopping if group.predictor is None else flagging(group.predictor)
        prices = GroupPrices(drafts, scenario.verifier.planner, load)
        if group.selection is not None and remote:
            choices = GroupChoices(drafts, group.selection, scenario.verifier.planner, load, regime)
        for number in range(len(devices), len(devices) + group.count):
            workload: Workload
            if choices is not None:
                workload = ChoosingDevice(drafts, choices, number, seed, responses)
            elif stopping is not None:
                workload = StoppingDevice(
                    drafts, stopping, prices, number, seed, responses, speculates=rules.speculates, remote=remote
                )
            else:
                workload = ModelledDevice(drafts, number, seed, responses, speculates=rules.speculates, remote=remote)
            link = LinkEmulator(group.link, link_seed(seed, number)) if group.link and remote else None
            account = DeviceAccount(DeviceResults(device=number, group=group.name, slo=group.slo))
            span_s = group.from_s, group.until_s
            devices.append(SimulatedDevice(account, workload, link, group.exchange_s, span_s))
    return devices


class EventLoop:
    """One run."""

    def __init__(
        self,
        devices: list[SimulatedDevice],
        server: SimulatedServer,
        tally: RunTally,
        load: PresentLoad | None = None,
        regime: Regime | None = None,
        *,
        duration_s: float = inf,
        first_token_s: float = FIRST_TOKEN_S,
        plans_late: bool = False,
        admission: AdmissionRules | None = None,
        seed: int = 0,
    ) -> None:
        """Everybody is about to ask for a first response; nobody measures a ``load`` or ``regime`` of None.

        Without ``admission`` every response is begun as soon as it is asked for.
        """
        self._devices, self._server, self._tally, self._load = devices, server, tally, load or PresentLoad()
        self._regime = regime
        self._duration_s, self._warmup_s = duration_s, tally.warmup_s
        self._events: list[tuple[float, int, int, _Subject]] = []
        self._first_token_s = first_token_s
        self._plans_late, self._plan_at_s = plans_late, 0.0  # until then the next plan is put off
        self._seed, self._rounds = seed, MeasuredRounds()
        self._admission = None if admission is None else Admission(admission)
        self._asking: dict[str, SimulatedDevice] = {}  # not begun yet; told nothing of them until then
        self._suspended: dict[str, SimulatedDevice] = {}
        self._halted: set[str] = set()  # of these, who would have begun a round
        self._decides_at_s = inf
        self._sequence = 0
        self._end_s = 0.0

    def run(self) -> None:
        """Until the time is over or everybody is done."""
        for device in self._devices:
            self._ask_next(device, 0.0)
        events, duration_s = self._events, self._duration_s
        while events and events[0][0] <= duration_s:
            now_s, _, kind, subject = heappop(events)
            self._end_s = now_s
            if kind == _ARRIVE:
                assert isinstance(subject, SimulatedDevice)
                self._server.enqueue(subject, now_s)
            elif kind == _GIVE:
                assert isinstance(subject, Given)
                self._server.give(subject)
            elif kind == _END:
                assert isinstance(subject, Step)
                self._ended(subject, now_s)
            elif kind == _TOLD:
                assert isinstance(subject, Step)
                self._told(subject, now_s)
            elif kind == _ASK:
                assert isinstance(subject, SimulatedDevice)
                promised = subject.account.tokens_per_s
                ledger = Ledger(promised, now_s + self._first_token_s if promised else inf)
                subject.ask(now_s, RoundAccount(ledger, self._server.deadlines, self._tally.spikes))
                self._ask(subject, now_s)
            elif kind == _DECIDE:
                self._decide(now_s)
            self._serve(now_s)
        if events:
            self._end_s = duration_s

    def results(self, name: str, system: str, seed: int) -> SimulationResults:
        """What was measured; to be asked once."""
        tally, end_s = self._tally, self._end_s
        return SimulationResults(
            name=name,
            system=system,
            seed=seed,
            measured_s=max(0.0, end_s - self._warmup_s),
            devices=tuple(self._closed(device) for device in self._devices),
            batches=sum(tally.sizes.values()),
            batch_sizes=tuple(sorted(tally.sizes.items())),
            stop_reasons=tuple(sorted(tally.reasons.items())),
            busy_s=tally.busy_s(end_s),
            predicted_s=tally.predicted_s,
            round_times=percentiles(tally.round_s),
            draft_times=percentiles(tally.draft_s),
            link_times=percentiles(tally.link_s),
            queue_times=percentiles(tally.queue_s),
            verify_times=percentiles(tally.verify_s),
            first_token_times=percentiles(tally.first_token_s),
            evictions=tally.evictions,
            recomputed_tokens=tally.recomputed_tokens,
            swapped_out_blocks=tally.swapped_out_blocks,
            swapped_in_blocks=tally.swapped_in_blocks,
            plane=tuple(tally.plane),
            batch_log=tuple(tally.log),
            simulated_rounds=tally.rounds,
            regime=None if self._regime is None else self._regime.report(end_s),
            admission=None if self._admission is None else self._admission.report(),
        )

    def _serve(self, now_s: float) -> None:
        """Have the verifier step if there is anything to do, and tell it who joins."""
        if self._server.dispatch_s > 0.0:
            self._step(now_s)
        if now_s < self._plan_at_s:
            return
        given = self._server.let_in(now_s)
        if given is not None:
            later_s = given.hold_s or self._server.dispatch_s
            if later_s > 0.0:
                self._at(now_s + later_s, _GIVE, given)
            else:
                self._server.give(given)
        if self._server.dispatch_s == 0.0:
            self._step(now_s)

    def _step(self, now_s: float) -> None:
        step = self._server.step(now_s)
        if step is not None:
            self._tally.step(step)
            ends_at_s = step.entry.ends_at_s
            self._at(ends_at_s, _END, step)
            if self._plans_late:
                self._plan_at_s = max(now_s, ends_at_s - self._server.dispatch_s - _JUST_BEFORE_S)
                self._at(self._plan_at_s, _PLAN, step)

    def _ended(self, step: Step, now_s: float) -> None:
        self._server.ended(step)
        if self._server.reply_s > 0.0:
            self._at(now_s + self._server.reply_s, _TOLD, step)
        else:
            self._told(step, now_s)

    def _told(self, step: Step, now_s: float) -> None:
        self._load.batch(len(step.members), self._arm, step.entry.took_s)
        for device in self._server.told(step):
            self._commit(device, now_s, follows=device.number in step.going_on)

    def _commit(self, device: SimulatedDevice, now_s: float, *, follows: bool) -> None:
        """A block was verified: its tokens are committed, and the device goes on; ``follows``: it does so by itself."""
        measured = now_s >= self._warmup_s
        self._tally.rounds += 1
        tokens = device.draft.accepted + 1
        device.committed += tokens
        self._measure(device, tokens, now_s)
        if device.first_at_s is None:
            device.first_at_s = now_s
            device.account.first_tokens(now_s, measured=measured)
            if measured:
                self._tally.first_token_s.append(now_s - device.asked_at_s)
        else:
            device.account.round_committed(tokens, now_s, measured=measured)
            if measured:
                self._tally.round(device, now_s)
            away_s = now_s - device.began_at_s - device.queue_s - device.verify_s
            self._rounds.round(device.own_rows, tokens, away_s, device.arm)
        if not device.follows:
            other_s = now_s - device.arrived_at_s - device.queue_s - device.verify_s
            self._load.round(device.queue_s, other_s, device.arm)
        device.promised.committed(tokens, now_s)
        if follows:
            self._follow(device, now_s)
            return
        if device.committed < device.output_tokens:
            self._draft(device, now_s)
            return
        device.done = True
        if self._regime is not None:
            self._regime.ended(device.name, now_s)
        device.account.end_response(measured=measured)
        self._server.over(device)
        if self._admission is not None:
            kept = device.promised.kept
            self._suspended.pop(device.name, None)
            self._admission.ends(device.name, now_s, device.committed, kept=kept)
            self._decide(now_s)
        self._ask_next(device, now_s)

    @property
    def _arm(self) -> Arm:
        return DRAFT if self._regime is None else self._regime.arm

    def _measure(self, device: SimulatedDevice, tokens: int, now_s: float) -> None:
        """Tell the regime of a committed round; a drafter is ready by a response's first token."""
        if self._regime is None:
            return
        if device.first_at_s is None:
            self._regime.began(device.name, now_s, counts=device.workload.follows_regime)
            self._regime.ready(device.name)
            return
        round_s, promised = now_s - device.began_at_s, device.account.tokens_per_s
        late = round_is_late(promised, tokens, round_s) if promised else None
        self._regime.round(device.name, tokens, round_s, now_s, late=late)

    def _ask(self, device: SimulatedDevice, now_s: float) -> None:
        """A response is asked for. How long it will be, admission is not told."""
        if self._admission is None:
            self._begin(device, now_s)
            return
        device.done = True  # it owes nothing until it is begun
        self._asking[device.name] = device
        self._admission.ask(Asked(device.name, (device.account.results.slo,), device.prompt_tokens, now_s))
        self._decide(now_s)

    def _begin(self, device: SimulatedDevice, now_s: float) -> None:
        device.done = False
        device.arrived_at_s = now_s
        if self._regime is not None:
            self._regime.asked(device.name)
        self._server.enqueue(device, now_s)

    def _decide(self, now_s: float) -> None:
        """Have admission decide, and see to it that it does again while anybody waits."""
        admission, asking = self._admission, self._asking
        assert admission is not None
        decisions = admission.decide(now_s, self._server.now(self._rounds.shape(self._arm)))
        for admitted in decisions.admitted:
            self._begin(asking.pop(admitted.name), now_s)
        for refused in decisions.refused:
            self._refuse(asking.pop(refused.name), refused, now_s)
        for name in decisions.suspended:
            self._suspended[name] = self._devices[device_number(name)]
        for name in decisions.continued:
            device = self._suspended.pop(name)
            if name in self._halted:
                self._halted.remove(name)
                self._draft(device, now_s)
        if admission.waiting and not now_s < self._decides_at_s < inf:
            self._decides_at_s = min(admission.due_at_s, now_s + _DECIDED_EVERY_S)
            self._at(self._decides_at_s, _DECIDE, None)

    def _refuse(self, device: SimulatedDevice, refused: Refused, now_s: float) -> None:
        """Its device tries again when it is told to, more or less."""
        device.account.results.refused += now_s >= self._warmup_s
        (share,) = uniforms(self._seed, device.number, device.round, _RETRIES, 1)
        again_s = now_s + refused.retry_after_s * (1.0 + _RETRY_SPREAD * (2.0 * share - 1.0))
        if again_s < device.span_s[1]:
            self._at(again_s, _ASK, device)

    def _follow(self, device: SimulatedDevice, now_s: float) -> None:
        """The verifier makes the next round by itself; its leave is renewed as long as nothing is to be drafted."""
        left = device.alone_rounds
        device.begin_round(NO_DRAFT, now_s)
        device.follows = True
        remaining_tokens = device.output_tokens - device.committed
        stays_alone = device.workload.stays_alone(device.committed, remaining_tokens, device.promised.promise(now_s))
        if not stays_alone or device.name in self._suspended:
            device.alone_rounds = left
        self._server.follows(device, now_s, left)

    def _draft(self, device: SimulatedDevice, now_s: float) -> None:
        """Begin a round; what happens to it until it arrives depends on nothing else and is known at once."""
        if device.name in self._suspended:
            self._halted.add(device.name)
            return
        remaining_tokens = device.output_tokens - device.committed
        device.arm = DRAFT if self._regime is None else self._regime.arm_of(device.name)
        draft = device.workload.draft(device.committed, remaining_tokens, device.promised.promise(now_s))
        device.begin_round(draft, now_s)
        if draft.bits is None:
            self._server.enqueue(device, now_s)
            return
        self._server.expects(device, now_s)
        arrives_at_s, link = now_s, device.link
        if link is not None:
            arrives_at_s = link.deliver(Direction.DOWN, draft.bits[0], now_s)
        arrives_at_s += draft.draft_s + device.exchange_s
        if link is not None:
            arrives_at_s = link.deliver(Direction.UP, draft.bits[1], arrives_at_s)
        device.arrived_at_s = arrives_at_s
        self._at(arrives_at_s, _ARRIVE, device)

    def _ask_next(self, device: SimulatedDevice, now_s: float) -> None:
        response, (from_s, until_s) = device.workload.begin(), device.span_s
        if response is None:
            return
        asks_at_s = max(now_s, from_s) + response.pause_s
        if asks_at_s < until_s:
            device.prompt_tokens, device.output_tokens = response.prompt_tokens, response.output_tokens
            self._at(asks_at_s, _ASK, device)

    def _at(self, at_s: float, kind: int, subject: _Subject) -> None:
        heappush(self._events, (at_s, self._sequence, kind, subject))
        self._sequence += 1

    def _closed(self, device: SimulatedDevice) -> DeviceResults:
        if not device.done:
            first = device.first_at_s is not None
            owed_from_s = None if first else max(device.asked_at_s, self._warmup_s) + _FIRST_TOKEN_GRACE_S
            most = device.draft.depth + 1 if first else 0
            device.account.close(device.began_at_s, owed_from_s, most, self._end_s)
        return device.account.results


def _check_memory(scenario: Scenario) -> None:
    """A response that never fits would wait for ever."""
    most, block = scenario.verifier.limits.max_memory_blocks, scenario.verifier.kv_block_tokens
    for group in scenario.groups:
        drafted = MAX_NODES if group.selection is not None else max(GroupDrafts(group).shape.nodes, default=0)
        longest = group.prompt.most_tokens + group.output.most_tokens + drafted
        needed = -(-longest // block)
        if most is not None and needed > most:
            raise ParameterError("verifier.limits.max_memory_blocks", f"at least {needed}, as responses are long", most)
