"""What a simulated fleet did: plain data.

A response is *kept* if from its first token to its last it came at its promised speed (one that is promised nothing
always is), else *late*; *refused* if the client gave up after its retries, or *unfinished* when the time was over. Each
that was asked for after the warm-up is exactly one of the four.
"""

from collections import Counter
from dataclasses import dataclass
from math import exp, floor, log

_PER_FACTOR = 100  # bins for each factor of e: 1 % wide
_LEAST_S = 1e-6


class TimeHistogram:
    """Times in bins of 1 %: any number of them in little memory."""

    __slots__ = ("_bins",)

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        self._bins[floor(_PER_FACTOR * log(max(seconds, _LEAST_S)))] += 1

    def quantile_s(self, share: float) -> float:
        """So many of them are no longer, to 1 %; 0 of none."""
        left = share * self._bins.total()
        for index in sorted(self._bins):
            left -= self._bins[index]
            if left <= 0.0:
                return exp((index + 0.5) / _PER_FACTOR)
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficResults:
    """Of one kind of traffic."""

    name: str
    slo: str
    tokens_per_s: float  # promised
    asked: int
    kept: int
    late: int
    refused: int
    unfinished: int
    first_token_p50_s: float  # from the request that was let in
    first_token_p99_s: float
    goodput_tokens_per_s: float  # committed from the warm-up on, of responses asked for before it, too
    kept_goodput_tokens_per_s: float  # of responses that ended in time
    prompt_tokens: int  # of all requests that were sent to a verifier
    hit_tokens: int  # of these, found at the verifier

    @property
    def hit_share(self) -> float:
        """Of prompts, found in KV memory."""
        return _share(self.hit_tokens, self.prompt_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaResults:
    """Of one verifier and its coordinator."""

    busy_share: float
    coordinator_share: float  # of one core
    responses: int  # that ended there
    blocks: int
    steps: int
    evictions: int
    recomputed_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetResults:
    """Of one run.

    Attributes:
        rounds: committed, of the whole run, first ones included: what a simulator's speed is measured by.
    """

    name: str
    seed: int
    measured_s: float
    traffic: tuple[TrafficResults, ...]
    replicas: tuple[ReplicaResults, ...]
    rounds: int
    drafted_rounds: int
    round_p50_s: float  # of a sample, behind first tokens
    round_p99_s: float
    most_active: int  # responses under way at once, those waiting to be begun included
    verifiers_lost: int
    responses_resumed: int
    drafters_lost: int
    drafters_used: int  # that were ever leased
    drafts_lost: int  # rounds that were begun anew as their drafter had left
    retries: int
    verifier_s: float = 0.0  # that there was a verifier, its start and its end included: what is paid for
    most_verifiers: int = 0
    verifiers_started: int = 0  # beside those there were at first

    @property
    def promised_kept(self) -> float:
        """Of responses that were asked for with a promise and have come to an end, so many are kept."""
        promised = [one for one in self.traffic if one.tokens_per_s]
        return _share(sum(one.kept for one in promised), sum(one.asked - one.unfinished for one in promised))

    @property
    def goodput_tokens_per_s(self) -> float:
        return sum(one.goodput_tokens_per_s for one in self.traffic)

    @property
    def hit_share(self) -> float:
        """Of all prompts' tokens, found in KV memory."""
        return _share(sum(one.hit_tokens for one in self.traffic), sum(one.prompt_tokens for one in self.traffic))

    @property
    def blocks_per_step(self) -> float:
        return _share(sum(one.blocks for one in self.replicas), sum(one.steps for one in self.replicas))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
