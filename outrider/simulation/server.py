"""The verifier and the queue before it, as the product's batcher runs it.

While a batch runs the next one is sent shortly before the running one is expected to end; at most two calls are under
way. A call's blocks are computed one pass after another: what is resident is read, the rest computed, prefixes in
chunks; a block that is not finished goes back into the queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf

from outrider.contracts.chunks import chunk_of, pass_costs
from outrider.contracts.cost import BatchWork, VerifyCost
from outrider.scheduling.ledger import DeadlineRule
from outrider.scheduling.policy import BatchPlan, PendingVerification
from outrider.simulation.chance import normals
from outrider.simulation.device import SimulatedDevice, device_name
from outrider.simulation.memory import KvMemory
from outrider.simulation.results import BatchEntry
from outrider.simulation.scenario import VerifierModel
from outrider.simulation.systems import SystemRules

_NOISE = 0  # purpose of chance
_NOISE_BLOCK = 1024
_UNCHUNKED = 2**31


@dataclass(slots=True, eq=False)
class Flight:
    """A call under way: one pass over these blocks."""

    entry: BatchEntry  # as the log of batches has it
    members: list[SimulatedDevice]
    remaining_tokens: list[int]  # of each block, still to compute after it
    expected_end_at_s: float
    recomputed_tokens: int
    evictions: int


class SimulatedServer:
    """Owns the queue, the calls under way and the KV memory."""

    def __init__(self, model: VerifierModel, rules: SystemRules, seed: int) -> None:
        """An idle verifier."""
        self._model, self._rules, self._seed = model, rules, seed
        limits = model.limits
        self._limits = limits if rules.keeps_kv else replace(limits, prefill_chunk_tokens=_UNCHUNKED)
        self.memory = KvMemory(limits.max_memory_blocks, model.kv_block_tokens)
        self._dispatch_s = 0.0 if rules.in_engine else model.dispatch_s
        self.reply_s = 0.0 if rules.in_engine else model.reply_s
        self._most_flights = 1 if rules.in_engine else 2
        self._queue: dict[str, SimulatedDevice] = {}
        self._flights: list[Flight] = []
        self._free_at_s = 0.0
        self._noise: list[float] = []
        self._noise_blocks = 0

    @property
    def deadlines(self) -> DeadlineRule:
        """What blocks' deadlines come from."""
        return self._rules.scheduling.deadlines

    def enqueue(self, device: SimulatedDevice, now_s: float) -> None:
        """A block arrived."""
        terms = device.promised.terms(device.began_at_s, device.draft.expected_tokens)
        total = device.total_tokens
        resident = self.memory.resident_tokens(device.number)
        device.pending = PendingVerification(
            device.name,
            device.round,
            now_s,
            terms.deadline_at_s,
            terms.expected_tokens,
            VerifyCost(total - resident, resident),
            terms.tokens_per_s,
            -(-total // self._model.kv_block_tokens),
        )
        device.queued_at_s = now_s
        self._queue[device.name] = device

    def plan(self, now_s: float) -> Flight | None:
        """Send a batch if it is time to; None if not (``due_at_s`` tells when to ask again)."""
        if not self._queue or self.due_at_s > now_s:
            return None
        pending = [device.pending for device in self._queue.values() if device.pending is not None]
        plan = self._rules.scheduling.policy.plan(pending, now_s, self._limits, self._model.planner)
        return self._dispatch(plan, now_s)

    @property
    def due_at_s(self) -> float:
        """When the next batch may be sent: infinity while two calls are under way."""
        flights = self._flights
        if len(flights) >= self._most_flights:
            return inf
        return flights[0].expected_end_at_s - self._model.stage_lead_s if flights else 0.0

    @property
    def waiting(self) -> bool:
        """Whether a block waits for a batch."""
        return bool(self._queue)

    def landed(self, flight: Flight, now_s: float) -> list[SimulatedDevice]:
        """A call came back: the devices whose blocks are verified, the others' wait again."""
        self._flights.remove(flight)
        decided = []
        for device, remaining in zip(flight.members, flight.remaining_tokens, strict=True):
            device.verify_s += flight.entry.took_s
            if remaining == 0:
                decided.append(device)
                continue
            self._set_cost(device, VerifyCost(remaining, device.total_tokens - remaining))
            device.queued_at_s = now_s
            self._queue[device.name] = device
        return decided

    def _dispatch(self, plan: BatchPlan, now_s: float) -> Flight:
        queue, limits, model = self._queue, self._limits, self._model
        members = [queue.pop(block.generation) for block in plan.batch]
        foreseen = zip((block.cost for block in plan.batch), (device.own_rows for device in members), strict=True)
        predicted = BatchWork()
        for cost in pass_costs(foreseen, limits.prefill_chunk_tokens):
            predicted = predicted.plus(cost)
        predicted_s = model.planner.predict_work_s(predicted)
        starts_at_s = max(now_s + self._dispatch_s, self._free_at_s)
        for device in members:
            device.queue_s += starts_at_s - device.queued_at_s
        work, remaining, recomputed = self._compute(members)
        evictions = self._correct_waiting()
        took_s = (model.cost_model.predict_work_s(work) + self._drafting_s(members)) * self._noise_factor()
        self._free_at_s = starts_at_s + took_s
        expected_start_at_s = max([now_s, *(flight.expected_end_at_s for flight in self._flights)])
        numbers = tuple((device.number, device.round) for device in members)
        new, cached = work.new_tokens, work.cached_tokens
        entry = BatchEntry(now_s, starts_at_s, took_s, predicted_s, numbers, new, cached, plan.reason)
        flight = Flight(entry, members, remaining, expected_start_at_s + predicted_s, recomputed, evictions)
        self._flights.append(flight)
        return flight

    def _compute(self, members: Sequence[SimulatedDevice]) -> tuple[BatchWork, list[int], int]:
        """What one pass does: its work, what is left of each block, and positions that were computed before."""
        memory, chunk_left = self.memory, self._limits.prefill_chunk_tokens
        numbers = [device.number for device in members]
        new = interactions = cached = recomputed = 0
        remaining, computed = [], []
        for device in members:
            total, resident = device.total_tokens, memory.resident_tokens(device.number)
            fits = memory.hold(device.number, total, numbers)
            lacking = total - resident
            taken, counted = chunk_of(lacking, device.own_rows, chunk_left) if fits else (0, 0)
            chunk_left -= counted
            if taken:
                new += taken
                interactions += (resident + taken) * taken
                cached += resident
                recomputed += max(0, min(resident + taken, device.computed_tokens) - resident)
            remaining.append(lacking - taken)
            computed.append(resident + taken if taken < lacking else device.position + device.draft.accepted)
        for device, tokens in zip(members, computed, strict=True):
            device.computed_tokens = max(device.computed_tokens, tokens)
            if self._rules.keeps_kv:
                memory.shrink(device.number, tokens)
            else:
                memory.drop(device.number)
        return BatchWork(new, interactions, cached), remaining, recomputed

    def _correct_waiting(self) -> int:
        """Blocks in the queue whose sequence was evicted are cold now; returns how many sequences were."""
        evicted = self.memory.taken_evicted()
        for number in evicted:
            device = self._queue.get(device_name(number))
            if device is not None:
                self._set_cost(device, VerifyCost(device.total_tokens, 0))
        return len(evicted)

    def _set_cost(self, device: SimulatedDevice, cost: VerifyCost) -> None:
        assert device.pending is not None
        device.pending = replace(device.pending, cost=cost)

    def _drafting_s(self, members: Sequence[SimulatedDevice]) -> float:
        """Passes of the draft model in the batch's own time: one for each depth, over all that draft so deep."""
        model = self._model.draft_cost_model
        if model is None or not self._rules.drafts_on_server:
            return 0.0
        seconds = 0.0
        for depth in range(max((device.draft.depth for device in members), default=0)):
            work = BatchWork()
            for device in members:
                draft = device.draft
                if depth < draft.depth:
                    work = work.plus(VerifyCost(-(-draft.nodes // draft.depth), device.position + depth))
            seconds += model.predict_work_s(work)
        return seconds

    def _noise_factor(self) -> float:
        """What one pass takes over what it should."""
        if self._model.noise == 0.0:
            return 1.0
        if not self._noise:
            self._noise = normals(self._seed, _NOISE, self._noise_blocks, _NOISE_BLOCK)
            self._noise_blocks += 1
        return exp(self._model.noise * self._noise.pop())
