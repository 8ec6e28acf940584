"""Simulate the verifier's steps (continuous batching) and the coordinator's view of them, as in the product.

A block stays in every step until it is decided. ``outrider.scheduling.steps`` plans which blocks join and which are
held back. A plan takes effect after ``dispatch_s``, and a step's result is known ``reply_s`` after its end. One step is
one forward pass: resident KV is read, everything else is computed, long prefixes in chunks.

So there are two views of a block: ``_asking`` is what the coordinator knows, ``_within`` what the verifier has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

from lab.simulation.chance import normals
from lab.simulation.device import SimDevice, device_name
from lab.simulation.memory import KvMemory, Swapped
from lab.simulation.results import BatchEntry
from lab.simulation.scenario import SystemRules, VerifierModel
from outrider.admission.response_load import VerifierNow
from outrider.admission.rounds import RoundShape
from outrider.contracts.chunks import chunk_of, pass_costs
from outrider.contracts.cost import BatchWork, VerifyCost, work_of
from outrider.scheduling.ledger import DeadlineRule
from outrider.scheduling.policy import PendingVerification
from outrider.scheduling.steps import StepPlanner

_NOISE = 0  # purpose of chance
_NOISE_BLOCK = 1024


class PassTimes:
    def __init__(self, model: VerifierModel, seed: int) -> None:
        self._model, self._seed = model, seed
        self._noise: list[float] = []
        self._noise_blocks = 0

    def took_s(self, work: BatchWork, swapped: Swapped) -> float:
        """Return the time of a pass; advances the noise."""
        took_s = self._model.cost_model.predict_work_s(work) + self._copying_s(swapped)
        return took_s * self._noise_factor()

    def _copying_s(self, swapped: Swapped) -> float:
        """Return the time of copies to host memory and back, which a pass waits for."""
        host = self._model.host
        return 0.0 if host is None else swapped.out_blocks * host.prices.out_s + swapped.in_blocks * host.prices.in_s

    def _noise_factor(self) -> float:
        """Draw a pass's time over the cost model's: lognormal with median 1."""
        if self._model.noise == 0.0:
            return 1.0
        if not self._noise:
            self._noise = normals(self._seed, _NOISE, self._noise_blocks, _NOISE_BLOCK)
            self._noise_blocks += 1
        return exp(self._model.noise * self._noise.pop())


_UNCHUNKED = 2**31


@dataclass(slots=True, eq=False)
class StepChanges:
    """A plan on its way to the verifier: which devices' blocks join its steps, and which no longer take part."""

    joining: list[SimDevice]
    held_back: list[SimDevice]
    hold_s: float = 0.0  # above 0, no block joins yet, and the next plan is made after this time


@dataclass(slots=True, eq=False)
class SimStep:
    entry: BatchEntry  # for the log of batches
    members: list[SimDevice]
    remaining_tokens: list[int]  # of each block: positions still to compute after this step
    going_on: set[int]  # numbers of devices in an autonomous run that goes on; filled when the step ends
    recomputed_tokens: int
    evictions: int
    swapped: Swapped


@dataclass(slots=True)
class StepCounts:
    """Sums over a verifier's steps that begin at ``since_s`` or later."""

    since_s: float = 0.0
    steps: int = 0
    blocks: int = 0
    busy_s: float = 0.0
    evictions: int = 0
    recomputed_tokens: int = 0
    swapped_out_blocks: int = 0
    swapped_in_blocks: int = 0

    def add(self, step: SimStep) -> None:
        if step.entry.starts_at_s < self.since_s:
            return
        self.steps += 1
        self.blocks += len(step.members)
        self.busy_s += step.entry.took_s
        self.evictions += step.evictions
        self.recomputed_tokens += step.recomputed_tokens
        self.swapped_out_blocks += step.swapped.out_blocks
        self.swapped_in_blocks += step.swapped.in_blocks


class SimulatedServer:
    """The blocks that wait, the blocks that the verifier has, and the KV memory."""

    def __init__(
        self,
        model: VerifierModel,
        rules: SystemRules,
        seed: int,
        counts: StepCounts | None = None,
        *,
        told_late: bool = False,
        logged: bool = True,
    ) -> None:
        """Create an idle verifier; its steps are added to ``counts``.

        ``told_late``: results become known after a step's end even if ``reply_s`` is 0 (a coordinator's CPU time).
        Without ``logged``, entries of steps do not list their members, and their predicted time is the time they take.
        """
        self._model, self._rules = model, rules
        self.counts = StepCounts() if counts is None else counts
        self._times = PassTimes(model, seed)
        limits = model.limits
        self._limits = limits if rules.keeps_kv else replace(limits, prefill_chunk_tokens=_UNCHUNKED)
        self._planner = StepPlanner(rules.scheduling.policy, self._limits, rules.steps)
        host = model.host
        host_blocks = host.blocks if host is not None and host.prices.copying_pays else 0
        self.memory = KvMemory(limits.max_memory_blocks, model.kv_block_tokens, host_blocks)
        self.dispatch_s = 0.0 if rules.in_engine else model.dispatch_s
        self.reply_s = 0.0 if rules.in_engine else model.reply_s
        self._logged = logged
        self._told_late = told_late or self.reply_s > 0.0
        self._planned_at_s = 0.0
        self._asking: dict[str, SimDevice] = {}  # blocks that are undecided as far as the coordinator knows
        self._within: dict[str, SimDevice] = {}  # blocks that take part in the verifier's steps
        self._untold: set[str] = set()  # blocks that are decided, which the coordinator does not know yet
        self.is_stepping = False  # whether a step is under way

    def kv_is_short(self) -> bool:
        return self._planner.kv_is_short

    @property
    def deadlines(self) -> DeadlineRule:
        return self._rules.scheduling.deadlines

    def now(self, shape: RoundShape) -> VerifierNow:
        """Return the verifier as admission sees it, for rounds of this shape."""
        blocks, size = self._model.limits.max_memory_blocks, self._model.kv_block_tokens
        return VerifierNow(self._model.cost_model, shape, None if blocks is None else blocks * size, size)

    def expect(self, device: SimDevice, now_s: float) -> None:
        """Announce the block of a draft that was just ordered: the planner may wait for it."""
        self._planner.expect(device.name, now_s + device.draft.away_s)
        deadline_at_s = device.promised.deadline_at_s(device.began_at_s, device.draft.expected_tokens)
        self.memory.due(device.number, deadline_at_s)
        device.min_survival = self._planner.min_survival if device.draft.cut_as_ordered else None

    def enqueue(self, device: SimDevice, now_s: float) -> None:
        self._set_pending(device, now_s)
        device.queued_at_s = now_s
        self._asking[device.name] = device
        self._planner.add(device.name, device)

    def continue_run(self, device: SimDevice, now_s: float, rounds_left: int) -> None:
        """Queue the next round of an autonomous run, of which ``rounds_left`` more are granted.

        A larger grant takes effect only if the verifier still has the block: otherwise the run has ended there already.
        """
        self._set_pending(device, now_s)
        if device.name not in self._within:
            device.autonomous_rounds = rounds_left

    def over(self, device: SimDevice) -> None:
        self.memory.release(device.number)
        self._planner.over(device.name)

    def _set_pending(self, device: SimDevice, now_s: float) -> None:
        draft, memory = device.draft, self.memory
        deadline_at_s = device.promised.deadline_at_s(device.began_at_s, draft.expected_tokens)
        memory.due(device.number, deadline_at_s)
        total = device.prompt_tokens + device.committed + device.ahead + draft.nodes
        resident = min(total - 1, memory.resident_tokens(device.number))
        device.verification = PendingVerification(
            device.name,
            device.round,
            now_s,
            deadline_at_s,
            draft.expected_tokens,
            VerifyCost(total - resident, resident),
            device.promised.tokens_per_s,
            -(-total // self._model.kv_block_tokens),
            0.0 if device.first_at_s is None else now_s - device.began_at_s,
            draft.survivals,
            device.min_survival,
            max(0, total - resident - draft.nodes - 1),
            device.first_at_s is None,
        )

    def let_in(self, now_s: float) -> StepChanges | None:
        """Plan the next steps; return None if nothing changes."""
        plan = self._planner.plan(now_s, self._model.cost_model)
        if plan.hold_s:
            return StepChanges([], [], plan.hold_s)
        if not plan.joining and not plan.held_back:
            return None
        for name, tokens in plan.cuts:
            self._asking[name].cut(tokens)
        self._planned_at_s = now_s
        joining, held_back = ([self._asking[name] for name in names] for names in (plan.joining, plan.held_back))
        return StepChanges(joining, held_back)

    def apply(self, changes: StepChanges) -> None:
        """Apply a plan that has reached the verifier, from the next step on."""
        for device in changes.held_back:
            self._within.pop(device.name, None)
        for device in changes.joining:
            if device.name in self._asking and device.name not in self._untold:  # decided meanwhile: not verified twice
                self._within[device.name] = device

    def step(self, now_s: float) -> SimStep | None:
        """Begin a step; return None if one is under way or there are no blocks."""
        if self.is_stepping or not self._within:
            return None
        self.is_stepping = True
        if not self._told_late:
            self._planner.note_step()
        members = sorted(self._within.values(), key=lambda device: not device.ahead)
        for device in members:
            device.queue_s += now_s - device.queued_at_s
        predicted_s, numbers = self._foreseen(members) if self._logged else (0.0, ())
        costs, remaining, recomputed = self._compute(members)
        work = work_of(costs)
        evictions, swapped = self._correct_evicted(), self.memory.taken_swapped()
        took_s = self._times.took_s(work, swapped)
        predicted_s = predicted_s if self._logged else took_s
        new, cached = work.new_tokens, work.cached_tokens
        reason = self._planner.reason
        entry = BatchEntry(self._planned_at_s, now_s, took_s, predicted_s, numbers, new, cached, reason)
        step = SimStep(entry, members, remaining, set(), recomputed, evictions, swapped)
        self.counts.add(step)
        return step

    def _foreseen(self, members: Sequence[SimDevice]) -> tuple[float, tuple[tuple[int, int], ...]]:
        """Return the time that the planner's cost model predicts for a step, and its members with their rounds."""
        foreseen = [(device.pending().cost, device.own_rows) for device in members]
        predicted = BatchWork()
        for cost in pass_costs(foreseen, self._limits.prefill_chunk_tokens):
            predicted = predicted.plus(cost)
        numbers = tuple((device.number, device.round + device.ahead) for device in members)
        return self._model.cost_model.predict_work_s(predicted), numbers

    def ended(self, step: SimStep) -> None:
        """End a step. Unfinished blocks and autonomous runs stay for the next one, the others are decided."""
        self.is_stepping, ended_at_s = False, step.entry.ends_at_s
        for device, remaining in zip(step.members, step.remaining_tokens, strict=True):
            device.verify_s += step.entry.took_s
            device.queued_at_s = ended_at_s
            if remaining:
                continue
            device.ahead += 1
            if device.goes_on:
                device.autonomous_rounds -= 1
                step.going_on.add(device.number)
            else:
                self._within.pop(device.name, None)
                self._untold.add(device.name)

    def completed(self, step: SimStep) -> list[SimDevice]:
        """Take note of a step's result; return the devices whose blocks are decided."""
        decided = []
        if self._told_late:
            self._planner.note_step()
        for device, remaining in zip(step.members, step.remaining_tokens, strict=True):
            if remaining:
                self._set_cost(device, VerifyCost(remaining, device.total_tokens - remaining))
                continue
            decided.append(device)
            device.ahead -= 1
            if device.number not in step.going_on:
                del self._asking[device.name]
                self._untold.discard(device.name)
                self._planner.withdraw(device.name)
        return decided

    def _compute(self, members: Sequence[SimDevice]) -> tuple[list[VerifyCost], list[int], int]:
        """Return what a pass does for each block, what is left of each, and the positions that it recomputes in all."""
        memory, chunk_left = self.memory, self._limits.prefill_chunk_tokens
        numbers = [device.number for device in members]
        recomputed = 0
        costs, remaining, computed = list[VerifyCost](), [], []
        for device in members:
            total = device.total_tokens
            resident = min(total - 1, memory.resident_tokens(device.number))
            lacking = total - resident
            taken, counted = chunk_of(lacking, device.own_rows, chunk_left)
            if taken and not memory.hold(device.number, resident + taken, numbers):
                taken = counted = 0  # no memory for it in this pass; it stays for the next
            chunk_left -= counted
            costs.append(VerifyCost(taken, resident if taken else 0))
            if taken:
                recomputed += max(
                    0, min(resident + taken, device.computed_tokens) - resident
                )  # computed before, evicted
            remaining.append(lacking - taken)
            computed.append(resident + taken if taken < lacking else device.position + device.draft.accepted)
        # Rejected rows take memory as long as the pass runs, so it is freed only when all members have theirs.
        for device, tokens in zip(members, computed, strict=True):
            device.computed_tokens = max(device.computed_tokens, tokens)
            if self._rules.keeps_kv:
                memory.shrink(device.number, tokens)
            else:
                memory.drop(device.number)
        return costs, remaining, recomputed

    def _correct_evicted(self) -> int:
        """Set the planned cost of evicted sequences' blocks to the whole prefix; return how many were evicted."""
        evicted = self.memory.taken_evicted()
        for number in evicted:
            self._planner.note_evicted(device_name(number))
            device = self._asking.get(device_name(number))
            if device is not None:
                self._set_cost(device, VerifyCost(device.total_tokens, 0))
        return len(evicted)

    def _set_cost(self, device: SimDevice, cost: VerifyCost) -> None:
        assert device.verification is not None
        prefix = max(0, cost.new_tokens - device.own_rows)
        device.verification = replace(device.verification, cost=cost, prefill_tokens=prefix)
