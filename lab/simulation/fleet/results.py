"""Results of a simulated fleet.

A response is *kept* if it had its promised speed from first token to last (always true without a promise), else *late*.
It is *refused* if the client gave up after its retries, and *unfinished* if the run ended first. Each response that was
requested after the warm-up is exactly one of the four.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import exp, floor, log

from lab.simulation.fleet.scenario import Traffic

_PER_FACTOR = 100  # bins for each factor of e: 1 % wide
_LEAST_S = 1e-6


class TimeHistogram:
    """Histogram of times with bins 1 % wide, so that memory does not grow with their number."""

    __slots__ = ("_bins",)

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        self._bins[floor(_PER_FACTOR * log(max(seconds, _LEAST_S)))] += 1

    def quantile_s(self, share: float) -> float:
        """Return the quantile at ``share``, to 1 %; 0 if there are no times."""
        left = share * self._bins.total()
        for index in sorted(self._bins):
            left -= self._bins[index]
            if left <= 0.0:
                return exp((index + 0.5) / _PER_FACTOR)
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficResults:
    name: str
    slo: str
    tokens_per_s: float  # promised
    asked: int
    kept: int
    late: int
    refused: int
    unfinished: int
    first_token_p50_s: float  # from the request that admission accepted
    first_token_p99_s: float
    goodput_tokens_per_s: float  # committed after the warm-up, also by responses requested before
    kept_goodput_tokens_per_s: float  # of kept responses
    prompt_tokens: int  # of all requests that were sent to a verifier
    hit_tokens: int  # of these, found at the verifier

    @property
    def hit_share(self) -> float:
        """Share of prompt tokens that were found in KV memory."""
        return _share(self.hit_tokens, self.prompt_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaResults:
    busy_share: float
    coordinator_share: float  # of one core
    responses: int  # that ended there
    blocks: int
    steps: int
    evictions: int
    recomputed_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetResults:
    """Results of one run.

    Attributes:
        rounds: committed in the whole run, warm-up and first tokens included; the measure of the simulator's own speed.
    """

    name: str
    seed: int
    measured_s: float
    traffic: tuple[TrafficResults, ...]
    replicas: tuple[ReplicaResults, ...]
    rounds: int
    drafted_rounds: int
    round_p50_s: float  # of a sample, first tokens excluded
    round_p99_s: float
    most_active: int  # responses under way at once, those waiting for admission included
    verifiers_lost: int
    responses_resumed: int
    drafters_lost: int
    drafters_used: int  # that were ever leased
    drafts_lost: int  # rounds begun anew because their drafter was lost
    retries: int

    @property
    def goodput_tokens_per_s(self) -> float:
        return sum(one.goodput_tokens_per_s for one in self.traffic)

    @property
    def hit_share(self) -> float:
        return _share(sum(one.hit_tokens for one in self.traffic), sum(one.prompt_tokens for one in self.traffic))

    @property
    def blocks_per_step(self) -> float:
        return _share(sum(one.blocks for one in self.replicas), sum(one.steps for one in self.replicas))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


@dataclass(slots=True)
class TrafficTally:
    """Counts of one kind of traffic, from the warm-up on, while a fleet is simulated."""

    traffic: Traffic
    asked: int = 0
    kept: int = 0
    late: int = 0
    refused: int = 0
    tokens: int = 0
    kept_tokens: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    first_token: TimeHistogram = field(default_factory=TimeHistogram)

    def results(self, measured_s: float) -> TrafficResults:
        slo, each_s = self.traffic.slo, max(measured_s, 1e-9)
        return TrafficResults(
            name=self.traffic.name,
            slo=slo.name,
            tokens_per_s=slo.tokens_per_s,
            asked=self.asked,
            kept=self.kept,
            late=self.late,
            refused=self.refused,
            unfinished=self.asked - self.kept - self.late - self.refused,
            first_token_p50_s=self.first_token.quantile_s(0.5),
            first_token_p99_s=self.first_token.quantile_s(0.99),
            goodput_tokens_per_s=self.tokens / each_s,
            kept_goodput_tokens_per_s=self.kept_tokens / each_s,
            prompt_tokens=self.prompt_tokens,
            hit_tokens=self.hit_tokens,
        )
