"""Define what a scheduling policy sees and decides. Coordinator, simulator and tests make the same call."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Protocol

from outrider.contracts.cost import CostModel, VerifyCost
from outrider.contracts.requests import GenerationId


@dataclass(frozen=True, slots=True)
class PendingVerification:
    generation: GenerationId
    round: int
    arrived_at_s: float  # same clock as now_s
    deadline_at_s: float  # when its response falls behind, or its first token is due; infinity: best effort, doomed
    expected_tokens: float  # tokens it should commit, correction or bonus token included
    cost: VerifyCost
    tokens_per_s: float = 0.0  # speed promised to its response; 0 is best effort
    memory_blocks: int = 0  # KV blocks that have to be resident while it is verified
    elapsed_s: float = 0.0  # seconds its round had taken when it arrived
    # of a chain that may be cut: probability that each token and all before it are accepted
    survivals: tuple[float, ...] = ()
    # tokens above this survival are verified, if that was fixed when the draft was ordered
    min_survival: float | None = None
    prefill_tokens: int = 0  # positions of ``cost.new_tokens`` computed in chunks; a pass has one chunk for all
    first: bool = False  # brings its response's first token


@dataclass(frozen=True, slots=True)
class Promised:
    """Needs of all active responses with a promise, whether or not they have a block pending."""

    load: float = 0.0  # verifier seconds per second, with drafts as ordered
    round_s: float = inf  # shortest mean time between the rounds of one response that its promise allows
    # the same load with drafts cut to where tokens are cheapest; above 1 not all promises can be kept
    least_load: float = 0.0
    kv_is_short: bool = False  # they need more KV than there is, and some was evicted


NOTHING_PROMISED = Promised()


@dataclass(frozen=True, slots=True)
class BatchLimits:
    max_blocks: int
    max_new_tokens: int  # positions computed in one pass; a single block may exceed it, or it would never run
    prefill_chunk_tokens: int  # prefix positions among them, over all cold blocks
    # KV blocks of the verifier; a single block may exceed it, and the verifier refuses it
    max_memory_blocks: int | None = None


class StopReason(StrEnum):
    """Why a batch stopped growing; exported as a metric label."""

    QUEUE_EMPTY = "queue_empty"
    MAX_BLOCKS = "max_blocks"
    MAX_NEW_TOKENS = "max_new_tokens"
    MEMORY = "memory"
    DEADLINE = "deadline"  # one more block would have made one of the batch late
    ALONE = "alone"  # a crash suspect steps by itself
    LENGTH = "length"  # the batch has its target length


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Decision of one policy call. Every pending block is in exactly one of ``batch`` and ``waiting``."""

    batch: tuple[PendingVerification, ...]
    waiting: tuple[PendingVerification, ...]
    reason: StopReason


class SchedulingPolicy(Protocol):
    """Chooses the next batch. Pure: no clock, no state between calls."""

    def plan(
        self,
        pending: Sequence[PendingVerification],
        now_s: float,
        limits: BatchLimits,
        cost_model: CostModel,
        promised: Promised = NOTHING_PROMISED,
    ) -> BatchPlan:
        """Split ``pending`` into the next batch and the rest; the batch is empty only if ``pending`` is."""


class QueueOnly:
    """Base of policies that ignore ``promised``: nobody has to count it for them."""

    __slots__ = ()
