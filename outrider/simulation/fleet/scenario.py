"""What a fleet is: verifiers with their coordinators, a router before them, drafters, and who asks; plain data.

As in the product: each verifier has a coordinator of its own, requests go to the one that has most of their prefix
unless it is overloaded, and whoever is begun leases the drafter with most room. Drafters come and go; so do verifiers,
whose responses go on elsewhere.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, pi, sin
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked

from outrider.admission.rules import AdmissionRules
from outrider.config.schema import Name, Number, PositiveNumber, Window
from outrider.contracts.errors import ConfigError
from outrider.contracts.requests import ProtocolName
from outrider.contracts.slo import BEST_EFFORT, SloClass
from outrider.documents.names import NameIn
from outrider.link.trace import LinkSource
from outrider.protocols.registry import NO_TOKENS, PROTOCOLS
from outrider.routing.prefix_index import MAX_BLOCKS
from outrider.scaling.policy import ScalingRules
from outrider.scheduling.registry import SCHEDULING, Scheduling
from outrider.simulation.acceptance_models import Probability
from outrider.simulation.lengths import Lengths, Spread
from outrider.simulation.scenario import SecondsOrNone, VerifierModel

_FORBID = ConfigDict(extra="forbid")
Often = Annotated[float, Field(gt=0, le=100_000)]


class Routing(StrEnum):
    """How a request finds its coordinator."""

    PREFIX = "prefix"  # the product's: cached prefix, or a home that ingresses agree on, against load
    KNOWN = "known"  # the same without homes: only what an ingress knows itself
    LEAST_LOADED = "least_loaded"  # whatever is cached
    SERVE_LLM = "serve_llm"  # Ray Serve's prefix-aware router
    ROUND_ROBIN = "round_robin"  # in turn, whatever is cached


@checked(frozen=True, slots=True, kw_only=True, config=_FORBID)
class DrafterTraits:
    """Drafters that are alike but for chance, as far as a file says it in the words of the simulation.

    Attributes:
        acceptance: probability that the draft token at each depth is accepted, given that those before it were; the
            last holds for all behind it.
        acceptance_spread: standard deviation, from device to device, of its log-odds.
        prefill_tokens_per_s: of a prompt, before the first draft; None takes no time.
        present_s: mean time until a device leaves; None stays. ``away_s``: mean time until it is back.
    """

    name: Name
    count: PositiveNumber
    acceptance: Annotated[tuple[Probability, ...], Field(min_length=1)]
    window: Window = 4
    acceptance_spread: Spread = 0.0
    speed_spread: Spread = 0.0  # standard deviation of the logarithm of a drafting step's time
    protocol: Annotated[ProtocolName, NameIn(PROTOCOLS)] = NO_TOKENS.protocol
    exchange_s: SecondsOrNone = 0.0  # of every exchange beyond link and steps
    prefill_tokens_per_s: Often | None = None
    max_generations: PositiveNumber = 1  # responses that it drafts for at once
    present_s: Often | None = None
    away_s: SecondsOrNone = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterGroup(DrafterTraits):
    """Drafters that are alike but for chance."""

    step_s: float  # seconds to draft one token, at the median
    link: LinkSource | None = None


@checked(frozen=True, slots=True, config=_FORBID)
class SystemPrompts:
    """Beginnings that conversations have in common: each has one of them, the first ones more often."""

    count: Annotated[int, Field(strict=True, ge=1, le=100_000)]
    tokens: PositiveNumber


@checked(frozen=True, slots=True, config=_FORBID)
class DailyCycle:
    """How often conversations begin, over a day: ``1 + swing * sin`` of its mean, with its peak after a quarter.

    ``later``: by what share of a day all of it comes later.
    """

    period_s: Often = 86_400.0
    swing: Probability = 0.5
    later: Probability = 0.0


@checked(frozen=True, slots=True, config=_FORBID)
class Bursts:
    """Every so often, for a while, conversations begin ``times`` as often."""

    every_s: Often
    lasts_s: Often
    times: Often

    def __post_init__(self) -> None:
        """Refuse a burst without an end."""
        if self.lasts_s > self.every_s:
            raise ConfigError("lasts_s", f"at most every_s ({self.every_s:g})", self.lasts_s)


@checked(frozen=True, slots=True, kw_only=True, config=_FORBID)
class ConversationTraits:
    """Conversations that are alike but for chance, as far as a file says it in the words of the simulation.

    Attributes:
        users: who have one conversation after another; beside or in place of ``conversations_per_s``, that begin
            however many there are.
        prompt: tokens of a conversation's first request beside its system prompt; ``message``: what each later request
            adds to all that was said before. None of the two is said in one turn.
        retries: times that a refused request is repeated.
    """

    name: Name
    prompt: Lengths
    output: Lengths
    users: Number = 0
    conversations_per_s: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    message: Lengths | None = None
    turns: Lengths = Lengths(tokens=1)
    think_s: SecondsOrNone = 0.0  # mean time from a response to the next request, exponentially distributed
    pause_s: SecondsOrNone = 0.0  # likewise between the conversations of a user
    stagger_s: SecondsOrNone = 0.0  # users begin within so many seconds, each instant as likely
    max_context_tokens: PositiveNumber = 32_768  # a conversation that would exceed it is over
    system_prompts: SystemPrompts | None = None
    day: DailyCycle | None = None
    bursts: Bursts | None = None
    retries: Number = 3

    def __post_init__(self) -> None:
        """Refuse traffic without anybody, and turns with nothing to say."""
        if not self.users and not self.conversations_per_s:
            raise ConfigError("users", "a number above 0, or conversations_per_s", self.users)
        if self.message is None and self.turns.most_tokens > 1:
            raise ConfigError("message", "the tokens that each turn adds where there are several", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic(ConversationTraits):
    """Conversations that are alike but for chance."""

    slo: SloClass = BEST_EFFORT

    def rate_at(self, at_s: float) -> float:
        """Conversations that begin in a second, at that time."""
        rate = self.conversations_per_s
        if self.day is not None:
            rate *= 1.0 + self.day.swing * sin(2.0 * pi * (at_s / self.day.period_s - self.day.later))
        if self.bursts is not None and at_s % self.bursts.every_s >= self.bursts.every_s - self.bursts.lasts_s:
            rate *= self.bursts.times
        return rate

    @property
    def most_per_s(self) -> float:
        """The highest rate there is."""
        rate = self.conversations_per_s * (1.0 if self.day is None else 1.0 + self.day.swing)
        return rate * (1.0 if self.bursts is None else max(1.0, self.bursts.times))


@checked(frozen=True, slots=True, config=_FORBID)
class RouterRules:
    """The ingresses' router.

    Attributes:
        ingresses: each remembers for itself what it sent where; requests come to any of them.
    """

    by: Routing = Routing.PREFIX
    ingresses: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 1
    max_blocks: Annotated[int, Field(strict=True, ge=1, le=100_000_000)] = MAX_BLOCKS


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCount:
    """Ray Serve's own policy (2.60): as many replicas as have ``target`` requests each, of a mean over a while.

    Decided every so often; more only once more were wanted for ``up_after_s`` without a break, fewer likewise.
    """

    least: int
    most: int
    target: float
    look_back_s: float = 30.0
    up_after_s: float = 30.0
    down_after_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Verifiers that come and go by demand.

    Attributes:
        by: promises, or requests.
        cold_start_s: from when one is asked for until it takes requests.
        every_s: between two decisions.
        drain_s: in which a verifier that is drained ends what it has; what is left goes on elsewhere. None: as long as
            that takes.
    """

    by: ScalingRules | RequestCount
    cold_start_s: float
    every_s: float = 1.0
    drain_s: float | None = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetScenario:
    """One run.

    Attributes:
        verifier: what each of ``verifiers`` is.
        lost_every_s: mean time until one is lost with its coordinator; ``reload_s`` later it is back, with nothing.
        coordinator_round_s: a coordinator's own computing for a round; ``coordinator_token_s``: for a token committed.
        admission: None begins whatever is asked for.
        scaling: None leaves ``verifiers`` as many as they are; else there are so many at first.
    """

    name: str
    verifiers: int
    verifier: VerifierModel
    drafters: tuple[DrafterGroup, ...]
    traffic: tuple[Traffic, ...]
    duration_s: float
    seed: int = 0
    warmup_s: float = 0.0  # responses that were asked for before are left out of the results
    router: RouterRules = field(default_factory=RouterRules)
    scheduling: Scheduling = SCHEDULING["slo_aware"]
    admission: AdmissionRules | None = None
    lost_every_s: float = inf
    reload_s: float = 60.0
    coordinator_round_s: float = 0.0
    coordinator_token_s: float = 0.0
    scaling: Scaling | None = None
    plans_late: bool = True
