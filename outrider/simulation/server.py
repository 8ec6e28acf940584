"""The verifier, which steps by itself, and the coordinator's side of it, as in the product.

Who is in a step is in the next one too until its block is decided: ``outrider.scheduling.steps`` says who joins and who
is held back, which takes effect ``dispatch_s`` later; what a step brought is known ``reply_s`` after its end. One step
is one pass: what is resident is read, the rest computed, prefixes in chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

from outrider.admission.price import VerifierNow
from outrider.admission.rounds import RoundShape
from outrider.contracts.chunks import chunk_of, pass_costs
from outrider.contracts.cost import BatchWork, CostModel, VerifyCost, work_of
from outrider.scheduling.ledger import DeadlineRule
from outrider.scheduling.policy import PendingVerification
from outrider.scheduling.steps import StepPlanner
from outrider.simulation.chance import normals
from outrider.simulation.device import SimDevice, device_name
from outrider.simulation.memory import KvMemory, Swapped
from outrider.simulation.results import BatchEntry
from outrider.simulation.scenario import VerifierModel
from outrider.simulation.systems import SystemRules

_NOISE = 0  # purpose of chance
_NOISE_BLOCK = 1024
_UNCHUNKED = 2**31


@dataclass(slots=True, eq=False)
class StepChanges:
    """On its way to the verifier: who is in its steps from now on, and who no longer is.

    Attributes:
        hold_s: nobody; after so long there is to be another plan.
    """

    joining: list[SimDevice]
    held_back: list[SimDevice]
    hold_s: float = 0.0


@dataclass(slots=True, eq=False)
class SimStep:
    """One pass over these blocks."""

    entry: BatchEntry  # as the log of batches has it
    members: list[SimDevice]
    costs: list[VerifyCost]  # what is computed and read of each block
    remaining_tokens: list[int]  # of each block, still to compute after it
    going_on: set[int]  # devices whose next round follows by itself; known at its end
    recomputed_tokens: int
    evictions: int
    swapped: Swapped


class SimulatedServer:
    """Knows who waits, who is with the verifier, and the KV memory."""

    def __init__(
        self,
        model: VerifierModel,
        rules: SystemRules,
        seed: int,
        memory: type[KvMemory] = KvMemory,
        *,
        told_late: bool = False,
        logged: bool = True,
    ) -> None:
        """An idle verifier with a ``memory`` of some kind.

        What steps brought may be ``told_late`` in any case. Where steps are not ``logged`` their entries do not say who
        was in them, and predict what they take.
        """
        self._model, self._rules, self._seed = model, rules, seed
        limits = model.limits
        self._limits = limits if rules.keeps_kv else replace(limits, prefill_chunk_tokens=_UNCHUNKED)
        self._planner = StepPlanner(rules.scheduling.policy, self._limits, rules.steps)
        host = model.host
        host_blocks = host.blocks if host is not None and host.prices.copying_pays else 0
        self.memory = memory(limits.max_memory_blocks, model.kv_block_tokens, host_blocks)
        self.dispatch_s = 0.0 if rules.in_engine else model.dispatch_s
        self.reply_s = 0.0 if rules.in_engine else model.reply_s
        self._estimator = model.estimator
        self._logged = logged
        self._told_late = told_late or self.reply_s > 0.0
        self._planned_at_s = 0.0
        self._asking: dict[str, SimDevice] = {}  # whose block is not decided, as far as is known
        self._within: dict[str, SimDevice] = {}  # with the verifier
        self._untold: set[str] = set()  # whose block is decided, which is not known yet
        self.steps = False  # whether one is under way
        self._noise: list[float] = []
        self._noise_blocks = 0

    @property
    def deadlines(self) -> DeadlineRule:
        """What blocks' deadlines come from."""
        return self._rules.scheduling.deadlines

    @property
    def _planner_model(self) -> CostModel:
        """What plans are made with now."""
        return self._model.planner if self._estimator is None else self._estimator.model

    def now(self, shape: RoundShape) -> VerifierNow:
        """As admission sees it, where rounds are of such a shape."""
        blocks, size = self._model.limits.max_memory_blocks, self._model.kv_block_tokens
        return VerifierNow(self._planner_model, shape, None if blocks is None else blocks * size, size)

    def expects(self, device: SimDevice, now_s: float) -> None:
        """A draft is ordered."""
        self._planner.expects(device.name, now_s + device.draft.away_s)
        deadline_at_s = device.promised.deadline_at_s(device.began_at_s, device.draft.expected_tokens)
        self.memory.due(device.number, deadline_at_s)
        device.min_survival = self._planner.min_survival if device.draft.cut_as_ordered else None

    def enqueue(self, device: SimDevice, now_s: float) -> None:
        self._asks(device, now_s)
        device.queued_at_s = now_s
        self._asking[device.name] = device
        self._planner.arrives(device.name, device)

    def follows(self, device: SimDevice, now_s: float, rounds_left: int) -> None:
        """The verifier makes the next round by itself, with so much leave at least; more of it may come too late."""
        self._asks(device, now_s)
        if device.name not in self._within:
            device.alone_rounds = rounds_left

    def over(self, device: SimDevice) -> None:
        self.memory.release(device.number)
        self._planner.over(device.name)

    def _asks(self, device: SimDevice, now_s: float) -> None:
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
        """Plan, if anybody waits; None if all stays as it is."""
        plan = self._planner.plan(now_s, self._planner_model)
        if plan.hold_s:
            return StepChanges([], [], plan.hold_s)
        if not plan.joining and not plan.held_back:
            return None
        for name, tokens in plan.cuts:
            self._asking[name].cut(tokens)
        self._planned_at_s = now_s
        joining, held_back = ([self._asking[name] for name in names] for names in (plan.joining, plan.held_back))
        return StepChanges(joining, held_back)

    def give(self, given: StepChanges) -> None:
        """It reached the verifier: it counts from the next step on."""
        for device in given.held_back:
            self._within.pop(device.name, None)
        for device in given.joining:
            if device.name in self._asking and device.name not in self._untold:
                self._within[device.name] = device

    def step(self, now_s: float) -> SimStep | None:
        """Begin a step; None if one is under way or nobody is with the verifier."""
        if self.steps or not self._within:
            return None
        self.steps = True
        if not self._told_late:
            self._planner.steps()
        members = sorted(self._within.values(), key=lambda device: not device.ahead)
        for device in members:
            device.queue_s += now_s - device.queued_at_s
        predicted_s, numbers = self._foreseen(members) if self._logged else (0.0, ())
        costs, remaining, recomputed = self._compute(members)
        work = work_of(costs)
        evictions, swapped = self._correct_evicted(), self.memory.taken_swapped()
        took_s = self._model.cost_model.predict_work_s(work) + self._drafting_s(members) + self._copying_s(swapped)
        took_s *= self._noise_factor() * (1.0 if self._model.speed is None else self._model.speed(now_s))
        predicted_s = predicted_s if self._logged else took_s
        new, cached = work.new_tokens, work.cached_tokens
        reason = self._planner.reason
        entry = BatchEntry(self._planned_at_s, now_s, took_s, predicted_s, numbers, new, cached, reason)
        return SimStep(entry, members, costs, remaining, set(), recomputed, evictions, swapped)

    def _foreseen(self, members: Sequence[SimDevice]) -> tuple[float, tuple[tuple[int, int], ...]]:
        """What the planner would say that a step of these takes, and who they are."""
        foreseen = [(device.pending().cost, device.own_rows) for device in members]
        predicted = BatchWork()
        for cost in pass_costs(foreseen, self._limits.prefill_chunk_tokens):
            predicted = predicted.plus(cost)
        numbers = tuple((device.number, device.round + device.ahead) for device in members)
        return self._planner_model.predict_work_s(predicted), numbers

    def ended(self, step: SimStep) -> None:
        """The verifier is done with a step; who is not finished or goes on by itself is in the next one."""
        self.steps, ended_at_s = False, step.entry.ends_at_s
        for device, remaining in zip(step.members, step.remaining_tokens, strict=True):
            device.verify_s += step.entry.took_s
            device.queued_at_s = ended_at_s
            if remaining:
                continue
            device.ahead += 1
            if device.goes_on:
                device.alone_rounds -= 1
                step.going_on.add(device.number)
            else:
                self._within.pop(device.name, None)
                self._untold.add(device.name)

    def completed(self, step: SimStep) -> list[SimDevice]:
        """What a step brought is known: the devices whose blocks are decided."""
        decided = []
        if self._estimator is not None:
            self._estimator = self._estimator.observed(step.costs, step.entry.took_s)
        if self._told_late:
            self._planner.steps()
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
        """What one pass does: block by block, what is left of each, and positions that were computed before."""
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
                taken = counted = 0
            chunk_left -= counted
            costs.append(VerifyCost(taken, resident if taken else 0))
            if taken:
                recomputed += max(0, min(resident + taken, device.computed_tokens) - resident)
            remaining.append(lacking - taken)
            computed.append(resident + taken if taken < lacking else device.position + device.draft.accepted)
        for device, tokens in zip(members, computed, strict=True):
            device.computed_tokens = max(device.computed_tokens, tokens)
            if self._rules.keeps_kv:
                memory.shrink(device.number, tokens)
            else:
                memory.drop(device.number)
        return costs, remaining, recomputed

    def _correct_evicted(self) -> int:
        """Blocks whose sequence was evicted are cold now; returns how many sequences were."""
        evicted = self.memory.taken_evicted()
        for number in evicted:
            device = self._asking.get(device_name(number))
            if device is not None:
                self._set_cost(device, VerifyCost(device.total_tokens, 0))
        return len(evicted)

    def _set_cost(self, device: SimDevice, cost: VerifyCost) -> None:
        assert device.verification is not None
        prefix = max(0, cost.new_tokens - device.own_rows)
        device.verification = replace(device.verification, cost=cost, prefix_tokens=prefix)

    def _drafting_s(self, members: Sequence[SimDevice]) -> float:
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

    def _copying_s(self, swapped: Swapped) -> float:
        """What copies to host memory and back add to a pass, which waits for them."""
        host = self._model.host
        return 0.0 if host is None else swapped.out_blocks * host.prices.out_s + swapped.in_blocks * host.prices.in_s

    def _noise_factor(self) -> float:
        """What one pass takes over what it should."""
        if self._model.noise == 0.0:
            return 1.0
        if not self._noise:
            self._noise = normals(self._seed, _NOISE, self._noise_blocks, _NOISE_BLOCK)
            self._noise_blocks += 1
        return exp(self._model.noise * self._noise.pop())
