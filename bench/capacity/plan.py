"""Which cells are measured in which order, and what each user asks for: all a function of the seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from bench.capacity.log import Cell
from bench.harness.recorded_drafts import RecordedResponse
from outrider.contracts.errors import ParameterError
from outrider.contracts.slo import SloClass
from outrider.scheduling.registry import SCHEDULING


@dataclass(frozen=True, slots=True)
class PolicySetting:
    """How a policy of the bench is served."""

    scheduling: str  # the configured policy
    keeps_kv: bool  # whether the verifier keeps what it computed from one round to the next


POLICIES = {
    "sled": PolicySetting("fcfs", keeps_kv=False),
    **{name: PolicySetting(name, keeps_kv=True) for name in SCHEDULING},
}


@dataclass(frozen=True, slots=True)
class UserPlan:
    """One user.

    Attributes:
        responses: it asks for, in its own order, again and again. No two users have one in common.
    """

    user: int
    slo: SloClass  # what it is promised
    starts_at_s: float  # its first request
    seed: tuple[int, ...]  # of its pauses and the order of its prompts
    responses: tuple[RecordedResponse, ...]
    pause_s: float  # mean, exponentially distributed

    def requests(self) -> Iterator[tuple[RecordedResponse, float]]:
        """What it asks for, and how long it pauses after it; endless."""
        rng = np.random.default_rng((*self.seed, 1))
        for index in cycle(rng.permutation(len(self.responses)).tolist()):
            yield self.responses[index], float(rng.exponential(self.pause_s))


def cells(policies: Sequence[str], users: Sequence[int], repeats: int) -> list[Cell]:
    """All cells: within a repeat every number of users under every policy, the first one another each time."""
    planned = []
    for repeat in range(repeats):
        for place, count in enumerate(users):
            turn = (repeat + place) % len(policies)
            planned += [Cell(policy, count, repeat) for policy in (*policies[turn:], *policies[:turn])]
    return planned


def speed_classes(speeds: Sequence[float]) -> tuple[SloClass, ...]:
    """A class for each promised speed."""
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

    Classes take turns; prompts are dealt out like cards.
    """
    if len(responses) < cell.users:
        raise ParameterError("prompts", f"at least {cell.users} usable recorded responses, one a user", len(responses))
    plans = []
    for user in range(cell.users):
        own_seed = (seed, cell.repeat, cell.users, user)
        start_s = float(np.random.default_rng((*own_seed, 0)).uniform(0.0, stagger_s))
        dealt = tuple(responses[user :: cell.users])
        plans.append(UserPlan(user, classes[user % len(classes)], start_s, own_seed, dealt, pause_s))
    return plans
