"""Queues to try policies on, and a small loop of devices around one verifier, both under a virtual clock."""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.scheduling.active_promises import ActivePromises
from outrider.scheduling.ledger import Ledger
from outrider.scheduling.policy import BatchLimits, PendingVerification, SchedulingPolicy

NOW_S = 100.0
COSTS = LinearCostModel(3.314e-5, 3.45e-8, 4.62e-6, 1.486e-2)  # WISP table 12
GUARDED_COSTS = LinearCostModel(3.314e-5, 3.45e-8, 4.62e-6, 1.486e-2, relative_guard=0.1)
ROOMY = BatchLimits(max_blocks=256, max_new_tokens=4096, prefill_chunk_tokens=512)

INFINITY = float("inf")


def block(name: str, *, waited_s: float = 0.0, slack_s: float = INFINITY, **more: object) -> PendingVerification:
    """A warm block of a response at 4 tokens/s, or of one without a promise."""
    settings: dict[str, object] = {
        "generation": name,
        "round": 0,
        "arrived_at_s": NOW_S - waited_s,
        "deadline_at_s": NOW_S + slack_s,
        "expected_tokens": 2.0,
        "cost": VerifyCost(6, 500),
        "tokens_per_s": 4.0 if slack_s < INFINITY else 0.0,
    }
    return PendingVerification(**{**settings, **more})  # type: ignore[arg-type]


_speeds = st.sampled_from([2.0, 4.0, 6.0, 8.0])
_slacks_s = st.sampled_from([-1.0, 0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 2.0])
_costs = st.one_of(
    st.builds(VerifyCost, st.integers(1, 9), st.integers(0, 3000)),
    st.builds(VerifyCost, st.integers(1, 900), st.just(0)),
)
_alike = {
    "generation": st.text("abcd", min_size=1, max_size=3),
    "round": st.integers(0, 3),
    "waited_s": st.sampled_from([0.0, 0.1, 0.6, 3.0, 11.0, 30.0]),
    "expected_tokens": st.sampled_from([1.0, 2.5, 4.0]),
    "cost": _costs,
    "memory_blocks": st.integers(0, 60),
    "first": st.booleans(),
}


def _pending(generation: str, **settings: object) -> PendingVerification:
    return block(generation, **settings)  # type: ignore[arg-type]


queues = st.lists(
    st.one_of(
        st.builds(_pending, **_alike, slack_s=_slacks_s, tokens_per_s=_speeds),
        st.builds(_pending, **_alike),
    ),
    max_size=24,
    unique_by=lambda p: (p.generation, p.round),
)
limits = st.builds(
    BatchLimits,
    max_blocks=st.sampled_from([1, 2, 5, 256]),
    max_new_tokens=st.sampled_from([8, 64, 600, 8192]),
    prefill_chunk_tokens=st.sampled_from([1, 64, 512]),
    max_memory_blocks=st.sampled_from([None, 0, 50, 200]),
)


def pass_costs(blocks: Sequence[PendingVerification], limits: BatchLimits) -> list[VerifyCost]:
    """What one pass computes of each."""
    return [VerifyCost(min(p.cost.new_tokens, limits.prefill_chunk_tokens), p.cost.cached_tokens) for p in blocks]


@dataclass(slots=True)
class Device:
    """One response that never ends, and what became of its rounds."""

    ledger: Ledger
    prefill_tokens: int
    round: int = 0
    tokens: int = 0
    waits_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Served:
    """What a policy made of so many devices."""

    devices: list[Device]
    ended_at_s: float

    @property
    def at_their_speed(self) -> int:
        """Devices that had their promised speed from the start to the end, one that waits counting all of it.

        Up to a round's tokens may be missing: they are under way when the clock stops.
        """
        return sum(
            device.ledger.first_at_s is not None
            and device.tokens + _EXPECTED_TOKENS
            >= 0.97 * device.ledger.tokens_per_s * (self.ended_at_s - device.ledger.first_at_s)
            for device in self.devices
        )

    @property
    def tokens(self) -> int:
        return sum(device.tokens for device in self.devices)

    @property
    def longest_wait_s(self) -> float:
        return max(max(device.waits_s, default=INFINITY) for device in self.devices)


_WINDOW, _ACCEPTANCE = 5, 0.7
_EXPECTED_TOKENS = (1.0 - _ACCEPTANCE ** (_WINDOW + 1)) / (1.0 - _ACCEPTANCE)


def serve(
    policy: SchedulingPolicy, speeds: Sequence[float], duration_s: float, *, away_s: float = 0.13, seed: int = 0
) -> Served:
    """Devices draft and travel for ``away_s``, wait for a batch, commit what was accepted, and begin again.

    What still waits at the end has its wait counted up to there.
    """
    rng = random.Random(seed)
    devices = [Device(Ledger(speed), rng.randint(300, 800)) for speed in speeds]
    coming = [(rng.random(), index) for index in range(len(devices))]
    heapq.heapify(coming)
    pending: dict[int, PendingVerification] = {}
    active, now_s = ActivePromises(), 0.0
    while now_s < duration_s:
        if not pending:
            now_s = max(now_s, coming[0][0])
        while coming and coming[0][0] <= now_s:
            arrived_at_s, index = heapq.heappop(coming)
            device = devices[index]
            pending[index] = PendingVerification(
                generation=str(index),
                round=device.round,
                arrived_at_s=arrived_at_s,
                deadline_at_s=device.ledger.deadline_at_s(_EXPECTED_TOKENS),
                expected_tokens=_EXPECTED_TOKENS,
                cost=VerifyCost(_WINDOW + 1, device.prefill_tokens),
                tokens_per_s=device.ledger.tokens_per_s,
            )
            active.arrived([(pending[index], 0)], arrived_at_s, COSTS)
        plan = policy.plan(list(pending.values()), now_s, ROOMY, COSTS, active.promised(now_s))
        now_s += COSTS.predict_s([p.cost for p in plan.batch])
        for member in plan.batch:
            index = int(member.generation)
            device = devices[index]
            del pending[index]
            accepted = next((k for k in range(_WINDOW) if rng.random() >= _ACCEPTANCE), _WINDOW)
            if device.ledger.first_at_s is not None:
                device.tokens += accepted + 1
            device.ledger = device.ledger.committed(accepted + 1, now_s)
            device.round += 1
            device.waits_s.append(now_s - member.arrived_at_s)
            heapq.heappush(coming, (now_s + away_s * (1.0 + 0.2 * rng.random()), index))
    for index, waiting in pending.items():
        devices[index].waits_s.append(now_s - waiting.arrived_at_s)
    return Served(devices, now_s)
