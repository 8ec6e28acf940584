"""Simulate one verifier and the devices that share it, on a virtual clock.

The policies are the product's own; devices, links, KV memory and pass times are modelled (``scenario``). Results are a
function of the scenario alone: all chance comes from its seed, and events at equal times run in a fixed order.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from math import inf

import numpy as np

from lab.simulation.agenda import Agenda
from lab.simulation.chance import link_seed, uniforms
from lab.simulation.device import SimDevice
from lab.simulation.drafted_rounds import GroupDrafts, ModelledDevice, Workload
from lab.simulation.results import BatchEntry, DeviceAccount, DeviceResults, Percentiles, PlanePoint, SimulationResults
from lab.simulation.scenario import CoordinatorRules, Scenario, SystemRules, rules_of
from lab.simulation.server import SimStep, SimulatedServer, StepCounts
from lab.simulation.sim_verifier import SimVerifier
from lab.simulation.stopped_rounds import GroupPrices, StoppingDevice
from lab.simulation.stopping import flagging
from outrider.admission.decisions import AdmissionRefused
from outrider.contracts.errors import ParameterError
from outrider.link.emulator import LinkEmulator
from outrider.rounds.present_load import PresentLoad
from outrider.scheduling.attribution import SpikeDetector
from outrider.scheduling.policy import StopReason

_SAMPLE = 4096  # points of the queue-compute plane, at most


class RunTally:
    def __init__(self, warmup_s: float, *, keep_batch_log: bool) -> None:
        self.warmup_s, self._keep_batch_log = warmup_s, keep_batch_log
        self.spikes = SpikeDetector()
        self.round_s, self.draft_s, self.link_s = array("d"), array("d"), array("d")
        self.queue_s, self.verify_s, self.first_token_s = array("d"), array("d"), array("d")
        self.rounds = 0
        self.sizes: Counter[int] = Counter()
        self.reasons: Counter[StopReason] = Counter()
        self.predicted_s = 0.0
        self.log: list[BatchEntry] = []
        self._spans: list[tuple[float, float]] = []  # begin and end of passes
        self.plane: list[PlanePoint] = []  # a sample
        self._plane_stride, self._plane_seen = 1, 0

    def step(self, step: SimStep) -> None:
        entry = step.entry
        if self._keep_batch_log:
            self.log.append(entry)
        self._spans.append((entry.starts_at_s, entry.ends_at_s))
        self.spikes.batch(entry.took_s)
        if entry.starts_at_s >= self.warmup_s:
            self.sizes[len(entry.members)] += 1
            self.reasons[entry.reason] += 1
            self.predicted_s += entry.predicted_s

    def round(self, device: SimDevice, now_s: float) -> None:
        """Count a round that is committed after the warm-up and is not a response's first."""
        cause = self.spikes.cause(device.verify_s)
        round_s, draft_s = now_s - device.began_at_s, device.draft.draft_s
        late = device.account.judge_round(device.draft.nodes, device.draft.accepted, round_s, cause)
        self.round_s.append(round_s)
        self.draft_s.append(draft_s)
        self.link_s.append(device.arrived_at_s - device.began_at_s - draft_s)
        self.queue_s.append(device.queue_s)
        self.verify_s.append(device.verify_s)
        if self._plane_seen % self._plane_stride == 0:
            if len(self.plane) == _SAMPLE:  # full: keep every other point, and add half as often from now on
                self.plane, self._plane_stride = self.plane[::2], 2 * self._plane_stride
            speed = device.account.tokens_per_s
            self.plane.append(PlanePoint(device.queue_s, device.verify_s, speed, cause if late else None))
        self._plane_seen += 1

    def busy_s(self, end_s: float) -> float:
        return sum(max(0.0, min(end, end_s) - max(begin, self.warmup_s)) for begin, end in self._spans)


def percentiles(times_s: "Sequence[float] | array[float]") -> Percentiles:
    if not times_s:
        return Percentiles(0, 0.0, 0.0, 0.0)
    values = np.asarray(times_s, dtype=np.float64)
    p50, p99 = np.percentile(values, (50, 99)).tolist()
    return Percentiles(len(values), float(values.mean()), p50, p99)


_FIRST_TOKEN_GRACE_S = 5.0  # a device that waits longer for a first token is late from then on
_ADMITTING_ALL = CoordinatorRules()
_RETRIES = 7  # purpose of chance
_RETRY_SPREAD = 0.5  # a refused device retries after 0.5 to 1.5 times the refusal's ``retry_after_s``


def simulate(scenario: Scenario) -> SimulationResults:
    """Run a scenario; the same scenario gives the same results, batch by batch.

    Raises:
        ParameterError: a response would not fit the verifier's memory.
    """
    _check_memory(scenario)
    rules = rules_of(scenario)
    load = PresentLoad()
    priced = any(group.stopping is not None and group.stopping.rule is None for group in scenario.groups)
    loop = EventLoop(
        modelled_devices(scenario, rules, load),
        SimulatedServer(scenario.verifier, rules, scenario.seed, StepCounts(scenario.warmup_s)),
        RunTally(scenario.warmup_s, keep_batch_log=scenario.keep_batch_log),
        load if priced else None,
        scenario,
        seed=scenario.seed,
    )
    loop.run(scenario.duration_s)
    return loop.results(scenario.name, scenario.system, scenario.seed)


def modelled_devices(scenario: Scenario, rules: SystemRules, load: PresentLoad) -> list[SimDevice]:
    """Build the devices of all groups; device numbers continue from group to group."""
    devices: list[SimDevice] = []
    seed, responses = scenario.seed, scenario.responses_per_device
    for group in scenario.groups:
        drafts = GroupDrafts(group)
        stopping = group.stopping if group.predictor is None else flagging(group.predictor)
        prices = GroupPrices(drafts, scenario.verifier.cost_model, load)
        for number in range(len(devices), len(devices) + group.count):
            workload: Workload
            if stopping is not None:
                workload = StoppingDevice(
                    drafts, stopping, prices, number, seed, responses, speculative=rules.speculative
                )
            else:
                workload = ModelledDevice(drafts, number, seed, responses, speculative=rules.speculative)
            link = LinkEmulator(group.link, link_seed(seed, number)) if group.link and rules.speculative else None
            account = DeviceAccount(DeviceResults(device=number, group=group.name, slo=group.slo))
            span_s = group.from_s, group.until_s
            devices.append(SimDevice(account, workload, link, group.exchange_s, span_s))
    return devices


class EventLoop:
    """One run: a simulated verifier, and devices that each request one response after another.

    It is the verifier's ``VerifierListener``: it schedules requests and retries, and counts what was measured.
    """

    def __init__(
        self,
        devices: list[SimDevice],
        server: SimulatedServer,
        tally: RunTally,
        load: PresentLoad | None = None,
        rules: CoordinatorRules = _ADMITTING_ALL,
        *,
        seed: int = 0,
    ) -> None:
        """Prepare a run in which no response has been requested yet.

        ``load`` is updated with what is measured, if given.
        """
        self._devices, self._tally, self._seed = devices, tally, seed
        self._memory, self._counts, self._warmup_s = server.memory, server.counts, tally.warmup_s
        self._agenda = Agenda()
        self._verifier = SimVerifier(self._agenda, server, self, rules, load=load)

    def run(self, duration_s: float = inf) -> None:
        """Run until ``duration_s`` is over or all devices are done."""
        for device in self._devices:
            self.next(device, 0.0)
        self._agenda.run(duration_s)

    def results(self, name: str, system: str, seed: int) -> SimulationResults:
        """Return what was measured. Call it once: it closes the accounts of unfinished responses."""
        tally, counts, end_s = self._tally, self._counts, self._agenda.now_s
        return SimulationResults(
            name=name,
            system=system,
            seed=seed,
            measured_s=max(0.0, end_s - self._warmup_s),
            devices=tuple(self._closed(device) for device in self._devices),
            batches=counts.steps,
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
            evictions=counts.evictions,
            recomputed_tokens=counts.recomputed_tokens,
            swapped_out_blocks=counts.swapped_out_blocks,
            swapped_in_blocks=counts.swapped_in_blocks,
            plane=tuple(tally.plane),
            batch_log=tuple(tally.log),
            simulated_rounds=tally.rounds,
            admission=self._verifier.report(),
        )

    def admitted(self, device: SimDevice, now_s: float) -> None:
        """Do nothing: a device drafts for itself, so there is none to lease."""

    def stepped(self, step: SimStep) -> None:
        self._tally.step(step)

    def first_token(self, device: SimDevice, now_s: float) -> None:
        measured = self._count(now_s)
        device.account.first_tokens(now_s, measured=measured)
        if measured:
            self._tally.first_token_s.append(now_s - device.asked_at_s)

    def round(self, device: SimDevice, tokens: int, now_s: float) -> None:
        measured = self._count(now_s)
        device.account.round_committed(tokens, now_s, measured=measured)
        if measured:
            self._tally.round(device, now_s)

    def over(self, device: SimDevice, now_s: float) -> None:
        device.account.end_response(measured=now_s >= self._warmup_s)

    def next(self, device: SimDevice, now_s: float) -> None:
        """Forget the response's KV, and schedule the device's next request unless it has none or its span is over."""
        self._memory.drop(device.number)
        response, (from_s, until_s) = device.workload.begin(), device.span_s
        if response is None:
            return
        asks_at_s = max(now_s, from_s) + response.pause_s
        if asks_at_s < until_s:
            device.prompt_tokens, device.output_tokens = response.prompt_tokens, response.output_tokens
            self._agenda.at(asks_at_s, self._verifier.ask, device)

    def refused(self, device: SimDevice, refused: AdmissionRefused, now_s: float) -> None:
        """Schedule a retry. Retry times are spread, so that devices refused together do not return together."""
        device.account.results.refused += now_s >= self._warmup_s
        (share,) = uniforms(self._seed, device.number, device.round, _RETRIES, 1)
        again_s = now_s + refused.retry_after_s * (1.0 + _RETRY_SPREAD * (2.0 * share - 1.0))
        if again_s < device.span_s[1]:
            self._agenda.at(again_s, self._verifier.ask, device)

    def _count(self, now_s: float) -> bool:
        self._tally.rounds += 1
        return now_s >= self._warmup_s

    def _closed(self, device: SimDevice) -> DeviceResults:
        """Close a device's account. Unfinished responses count, or the slowest would drop out of the rates."""
        if not device.done:
            first = device.first_at_s is not None
            due_from_s = None if first else max(device.asked_at_s, self._warmup_s) + _FIRST_TOKEN_GRACE_S
            most = device.draft.depth + 1 if first else 0
            device.account.close(device.began_at_s, due_from_s, most, self._agenda.now_s)
        return device.account.results


def _check_memory(scenario: Scenario) -> None:
    """Refuse a response that never fits: it would wait for ever."""
    most, block_tokens = scenario.verifier.limits.max_memory_blocks, scenario.verifier.kv_block_tokens
    for group in scenario.groups:
        drafted = max(GroupDrafts(group).shape.nodes, default=0)
        longest = group.prompt.most_tokens + group.output.most_tokens + drafted
        needed = -(-longest // block_tokens)
        if most is not None and needed > most:
            raise ParameterError("verifier.limits.max_memory_blocks", f"at least {needed}, as responses are long", most)
