"""Order of the measured cells, and requests of each user: functions of the seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np

from lab.bench.capacity.log import CLOSED, Cell, arrival_times_s
from lab.bench.harness.recorded_drafts import RecordedResponse
from outrider.contracts.errors import ParameterError
from outrider.contracts.slo import SloClass
from outrider.scheduling.registry import SCHEDULING


@dataclass(frozen=True, slots=True)
class PolicySetting:
    scheduling: str  # the configured policy
    keeps_kv: bool  # whether the verifier keeps KV from one round to the next
    admits: bool = False  # whether admission control is on; else everything is admitted
    drafts: bool = True  # whether devices draft
    stopping: str = "never"  # when devices end a draft, as ``drafters[].stopping.rule``


POLICIES = {
    "sled": PolicySetting("fcfs", keeps_kv=False),
    "centralized": PolicySetting("fcfs", keeps_kv=True, drafts=False),
    **{name: PolicySetting(name, keeps_kv=True) for name in SCHEDULING},
    "wisp_predictor": PolicySetting("wisp", keeps_kv=True, stopping="stop_before"),
    "slo_aware_admission": PolicySetting("slo_aware", keeps_kv=True, admits=True),
}
BASELINE = "fcfs"  # the others are compared with it


@dataclass(frozen=True, slots=True)
class Load:
    """Requests: of a number of users in a closed loop, or at a rate in an open one."""

    users: int
    arrivals: str = CLOSED
    rate_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class UserPlan:
    """One user.

    Attributes:
        responses: those it requests, in its own order, repeatedly. In a closed loop no two users have one in common.
    """

    user: int
    slo: SloClass  # its class
    starts_at_s: float  # its first request
    seed: tuple[int, ...]  # of its pauses and the order of its prompts
    responses: tuple[RecordedResponse, ...]
    pause_s: float  # mean, exponentially distributed
    asks: int | None = None  # number of requests; None: no limit

    def requests(self) -> Iterator[tuple[RecordedResponse, float]]:
        rng = np.random.default_rng((*self.seed, 1))
        for index in islice(cycle(rng.permutation(len(self.responses)).tolist()), self.asks):
            yield self.responses[index], float(rng.exponential(self.pause_s))

    def retries(self) -> Iterator[float]:
        """After each refusal, the share of the advised retry time that it waits; endless."""
        rng = np.random.default_rng((*self.seed, 2))
        while True:
            yield float(rng.uniform(0.5, 1.5))


def cells(policies: Sequence[str], loads: Sequence[Load], repeats: Sequence[int]) -> list[Cell]:
    """All cells: within a repeat every load under every policy, starting with another policy each time."""
    planned = []
    for repeat in repeats:
        for place, load in enumerate(loads):
            turn = (repeat + place) % len(policies)
            planned += [
                Cell(policy, load.users, repeat, load.arrivals, load.rate_per_s)
                for policy in (*policies[turn:], *policies[:turn])
            ]
    return planned


def speed_classes(speeds: Sequence[float]) -> tuple[SloClass, ...]:
    return tuple(SloClass(f"speed_{speed:g}", speed) for speed in speeds)


def user_plans(
    cell: Cell,
    classes: Sequence[SloClass],
    responses: Sequence[RecordedResponse],
    *,
    seed: int,
    pause_s: float,
    stagger_s: float,
) -> list[UserPlan]:
    """The users of a cell: the same under every policy.

    Classes take turns; prompts are dealt out like cards. In an open loop every user sends one request, and prompts are
    dealt again when they are used up.
    """
    own_seeds = [(seed, cell.repeat, cell.users, user) for user in range(cell.users)]
    if cell.arrivals != CLOSED:
        starts_s = arrival_times_s(cell.arrivals, cell.rate_per_s, cell.users, (seed, cell.repeat))
        return [
            UserPlan(
                user,
                classes[user % len(classes)],
                starts_s[user],
                own_seed,
                (responses[user % len(responses)],),
                0.0,
                1,
            )
            for user, own_seed in enumerate(own_seeds)
        ]
    if len(responses) < cell.users:
        raise ParameterError("prompts", f"at least {cell.users} usable recorded responses, one a user", len(responses))
    plans = []
    for user, own_seed in enumerate(own_seeds):
        start_s = float(np.random.default_rng((*own_seed, 0)).uniform(0.0, stagger_s))
        dealt = tuple(responses[user :: cell.users])
        plans.append(UserPlan(user, classes[user % len(classes)], start_s, own_seed, dealt, pause_s))
    return plans
