"""What a cell of ``outrider bench capacity`` leaves: every response, round, batch and decision. Plain data.

Times are seconds since the cell's begin.
"""

from dataclasses import dataclass

from lab.bench.capacity.arrivals import CLOSED
from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.requests import GenerationId
from outrider.contracts.slo import SloClass
from outrider.rounds.timing import RoundTiming
from outrider.scheduling.policy import BatchLimits, PendingVerification, Promised, StopReason


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: a policy under a load."""

    policy: str  # of the batches; see ``lab.bench.capacity.plan.POLICIES``
    users: int  # in a closed loop each asks again and again, in an open one no more than once
    repeat: int  # what users ask for is a function of it, and the same under every policy
    arrivals: str = CLOSED
    rate_per_s: float = 0.0  # responses asked for in an open loop

    @property
    def load(self) -> str:
        """What is asked for, whatever the policy."""
        return f"{self.users} users" if self.arrivals == CLOSED else f"{self.arrivals} {self.rate_per_s:g}/s"

    @property
    def name(self) -> str:
        return f"{self.policy}-{self.load.replace(' ', '-').replace('/', '-per-')}-{self.repeat}"


@dataclass(frozen=True, slots=True)
class RoundEntry:
    """A committed round. ``committed_at_s``: when its tokens were."""

    committed_at_s: float
    timing: RoundTiming


@dataclass(frozen=True, slots=True)
class ResponseEntry:
    """A response, finished or not."""

    user: int  # whose; its device's number
    number: int
    slo: SloClass
    prompt_tokens: int
    asked_at_s: float
    rounds: tuple[RoundEntry, ...]
    ended_at_s: float | None  # when its last token was committed; None while it goes on
    as_recorded: bool  # whether its tokens are those of the recording, so that drafts were what the drafter drafts
    refused_at_s: float | None = None  # when it was not let in; its user may have come back

    @property
    def begun_at_s(self) -> float:
        """When it was let in; it has a round at least."""
        return self.rounds[0].committed_at_s - self.rounds[0].timing.total_s

    @property
    def kept(self) -> bool:
        """Whether it ended, from its first token to its last as fast as promised."""
        if self.ended_at_s is None:
            return False
        tokens = sum(entry.timing.committed_tokens for entry in self.rounds[1:])
        return tokens >= self.slo.tokens_per_s * (self.ended_at_s - self.rounds[0].committed_at_s)


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One step of the verifier.

    Attributes:
        sent_at_s: what made it begin was sent; where it followed another step at once, that one was told.
        replied_at_s: it was told.
        members: generation, round, and what was really computed of its block.
        idle_s: the engine had nothing to do before.
    """

    sent_at_s: float
    replied_at_s: float
    members: tuple[tuple[GenerationId, int, VerifyCost], ...]
    engine_s: float
    idle_s: float

    @property
    def costs(self) -> tuple[VerifyCost, ...]:
        return tuple(cost for _, _, cost in self.members)


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """What a policy was given and what it chose. Times are the coordinator's own: exactly what the policy saw."""

    now_s: float
    pending: tuple[PendingVerification, ...]
    limits: BatchLimits
    promised: Promised
    cost_model: LinearCostModel
    batch: tuple[tuple[GenerationId, int], ...]
    reason: StopReason


@dataclass(frozen=True, slots=True)
class CellLog:
    cell: Cell
    warmup_s: float  # what was committed before does not count
    ended_at_s: float  # when enough had ended, and it was broken off
    responses: tuple[ResponseEntry, ...]
    batches: tuple[BatchEntry, ...]
    decisions: tuple[DecisionEntry, ...]
    strays: int  # drafts asked for behind tokens that were not recorded
    faults: tuple[str, ...]  # what the coordinator found wrong with devices

    @property
    def measured_s(self) -> float:
        return self.ended_at_s - self.warmup_s
