"""What a scheduling policy sees and decides. The same call serves coordinator, simulator and tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Protocol

from outrider.contracts.cost import CostModel, VerifyCost
from outrider.contracts.requests import GenerationId


@dataclass(frozen=True, slots=True)
class PendingVerification:
    """One block waiting for the verifier, as the scheduler sees it."""

    generation: GenerationId
    round: int
    arrived_at_s: float  # same clock as now_s
    deadline_at_s: float  # when its response would fall behind, or its first token is due; infinity for best effort
    expected_tokens: float  # committed tokens it should yield, correction or bonus token included
    cost: VerifyCost
    tokens_per_s: float = 0.0  # promised to its response; 0 is best effort
    memory_blocks: int = 0  # KV blocks that have to be resident while it is verified
    before_s: float = 0.0  # seconds its round had taken when it arrived
    survivals: tuple[float, ...] = ()  # of a chain that may be cut: each token is accepted with all before it
    min_survival: float | None = None  # survival above which its tokens are verified, if that is fixed already
    prefix_tokens: int = 0  # of the positions to compute, those that go in chunks, which a pass has one of for all
    first: bool = False  # brings its response's first token


@dataclass(frozen=True, slots=True)
class Promised:
    """What the promises of all active responses need, of those too that are not pending now."""

    load: float = 0.0  # verifier seconds per second, with drafts as they were ordered
    round_s: float = inf  # the shortest time that a round of one of them may take in the long run
    least_load: float = 0.0  # with drafts cut where that makes tokens cheapest: above 1 not all can be kept


NOTHING_PROMISED = Promised()


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one forward pass may hold."""

    max_blocks: int
    max_new_tokens: int  # positions computed in one pass; a single block may exceed it, as it must get on
    prefill_chunk_tokens: int  # of those, positions of prefixes, over all cold blocks
    max_memory_blocks: int | None = None  # KV blocks there are; a single block may exceed them: the verifier refuses it


class StopReason(StrEnum):
    """Why a batch stopped growing; exported as a metric label."""

    QUEUE_EMPTY = "queue_empty"
    MAX_BLOCKS = "max_blocks"
    MAX_NEW_TOKENS = "max_new_tokens"
    MEMORY = "memory"
    DEADLINE = "deadline"  # one more block would have made a member late
    ALONE = "alone"  # who may have cost the verifier its process is in a step by itself
    LENGTH = "length"  # a longer batch would have kept later blocks waiting for too long


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The decision of one epoch. Every pending request is in exactly one of ``batch`` and ``waiting``."""

    batch: tuple[PendingVerification, ...]
    waiting: tuple[PendingVerification, ...]
    reason: StopReason


class SchedulingPolicy(Protocol):
    """Chooses the next batch. Pure: no clock, no memory of earlier calls."""

    def plan(
        self,
        pending: Sequence[PendingVerification],
        now_s: float,
        limits: BatchLimits,
        cost_model: CostModel,
        promised: Promised = NOTHING_PROMISED,
    ) -> BatchPlan:
        """Split ``pending`` into the next batch and the rest; never an empty batch while something is pending."""
        ...
