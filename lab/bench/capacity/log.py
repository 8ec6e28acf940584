"""Arrivals of a cell of ``outrider bench capacity``, and its record: every response, round and batch.

Times are seconds since the cell's start.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from outrider.contracts.cost import VerifyCost
from outrider.contracts.requests import GenerationId
from outrider.contracts.slo import SloClass
from outrider.rounds.timing import RoundTiming

CLOSED = "closed"  # users who send the next request after the answer

BURST_S = 2.0  # mean length of a burst
_BURST_FACTOR = 3.0  # rate within a burst over the mean rate
_SEEDS = {"poisson": 1, "bursts": 2}


def arrival_times_s(arrivals: str, rate_per_s: float, count: int, seed: tuple[int, ...]) -> tuple[float, ...]:
    """The first ``count`` times, ascending, in seconds from the start; ``arrivals`` is a key of ``OPEN``."""
    rng = np.random.default_rng((*seed, _SEEDS[arrivals]))
    return OPEN[arrivals](rate_per_s, count, rng)


def _poisson(rate_per_s: float, count: int, rng: np.random.Generator) -> tuple[float, ...]:
    return tuple(np.cumsum(rng.exponential(1.0 / rate_per_s, count)).tolist())


def _bursts(rate_per_s: float, count: int, rng: np.random.Generator) -> tuple[float, ...]:
    """On-off process: Poisson at three times the rate for two seconds on average, then nothing for twice as long."""

    def times_s() -> Iterator[float]:
        began_s = 0.0
        while True:
            length_s, pause_s = rng.exponential(BURST_S), rng.exponential((_BURST_FACTOR - 1.0) * BURST_S)
            inside = rng.poisson(_BURST_FACTOR * rate_per_s * length_s)
            yield from (began_s + np.sort(rng.uniform(0.0, length_s, inside))).tolist()
            began_s += length_s + pause_s

    return tuple(islice(times_s(), count))


OPEN: Mapping[str, Callable[[float, int, np.random.Generator], tuple[float, ...]]] = {
    "poisson": _poisson,
    "bursts": _bursts,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: a policy under a load."""

    policy: str  # of the batches; see ``lab.bench.capacity.plan.POLICIES``
    users: int  # in a closed loop each sends requests repeatedly, in an open one at most once
    repeat: int  # decides the requests, which are the same under every policy
    arrivals: str = CLOSED
    rate_per_s: float = 0.0  # requests per second of an open loop

    @property
    def load(self) -> str:
        """Name of the load, whatever the policy."""
        return f"{self.users} users" if self.arrivals == CLOSED else f"{self.arrivals} {self.rate_per_s:g}/s"

    @property
    def name(self) -> str:
        return f"{self.policy}-{self.load.replace(' ', '-').replace('/', '-per-')}-{self.repeat}"


@dataclass(frozen=True, slots=True)
class RoundEntry:
    """A committed round. ``committed_at_s``: of its tokens."""

    committed_at_s: float
    timing: RoundTiming


@dataclass(frozen=True, slots=True)
class ResponseEntry:
    user: int  # number of the user and its device
    number: int
    slo: SloClass
    prompt_tokens: int
    asked_at_s: float
    rounds: tuple[RoundEntry, ...]
    ended_at_s: float | None  # commit of its last token; None while in progress
    as_recorded: bool  # whether its tokens are the recorded ones, so that drafts were the drafter's
    refused_at_s: float | None = None  # when it was refused; its user may have retried

    @property
    def kept(self) -> bool:
        """Whether it ended with the promised speed from its first token to its last."""
        if self.ended_at_s is None:
            return False
        tokens = sum(entry.timing.committed_tokens for entry in self.rounds[1:])
        return tokens >= self.slo.tokens_per_s * (self.ended_at_s - self.rounds[0].committed_at_s)


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One step of the verifier."""

    sent_at_s: float  # when the call that started it was sent; for one that followed at once, the reply before
    members: tuple[tuple[GenerationId, int, VerifyCost], ...]  # generation, round, and what was computed of its block
    engine_s: float

    @property
    def costs(self) -> tuple[VerifyCost, ...]:
        return tuple(cost for _, _, cost in self.members)


@dataclass(frozen=True, slots=True)
class CellLog:
    cell: Cell
    warmup_s: float  # commits before it do not count
    ended_at_s: float  # when enough responses had ended and the rest was cancelled
    responses: tuple[ResponseEntry, ...]
    batches: tuple[BatchEntry, ...]
    strays: int  # drafts requested behind unrecorded tokens
    faults: tuple[str, ...]  # of devices, reported by the coordinator

    @property
    def measured_s(self) -> float:
        return self.ended_at_s - self.warmup_s
