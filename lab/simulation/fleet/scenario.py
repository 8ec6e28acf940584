"""Description of a simulated fleet: verifiers with their coordinators, router, drafters and traffic.

As in the product, each verifier has a coordinator of its own. A request goes to the coordinator with most of its prefix
unless that one is overloaded. A response leases the drafter with the smallest share of its slots in use. Drafters and
verifiers are lost and come back; responses of a lost verifier go on elsewhere.
"""

from dataclasses import dataclass, field
from math import inf, pi, sin
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked

from lab.simulation.acceptance_models import Probability
from lab.simulation.lengths import Lengths, Spread
from lab.simulation.scenario import CoordinatorRules, Drafting, SecondsOrNone, VerifierModel
from outrider.admission.rules import AdmissionRules
from outrider.config.values import Name, Number, PositiveNumber
from outrider.contracts.errors import ConfigError
from outrider.contracts.slo import BEST_EFFORT, SloClass
from outrider.link.trace import LinkSource
from outrider.routing.prefix_index import MAX_BLOCKS
from outrider.scheduling.registry import SCHEDULING, Scheduling

_FORBID = ConfigDict(extra="forbid")
Often = Annotated[float, Field(gt=0, le=100_000)]


@checked(frozen=True, slots=True, kw_only=True, config=_FORBID)
class DrafterTraits(Drafting):
    """Drafters of one kind, with their spread: the fields that a file and the simulation have in common.

    Attributes:
        present_s: mean time until a device leaves; None stays. ``away_s``: mean time until it is back.
    """

    acceptance_spread: Spread = 0.0  # standard deviation, from device to device, of its log-odds
    speed_spread: Spread = 0.0  # standard deviation of the logarithm of a drafting step's time
    prefill_tokens_per_s: Often | None = None  # of a prompt, before the first draft; None takes no time
    max_generations: PositiveNumber = 1  # responses that it drafts for at once
    present_s: Often | None = None
    away_s: SecondsOrNone = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterGroup(DrafterTraits):
    step_s: float  # seconds to draft one token, at the median
    link: LinkSource | None = None


@checked(frozen=True, slots=True, config=_FORBID)
class SystemPrompts:
    """System prompts that conversations share. Each conversation has one of them, with probability ~ 1 / rank."""

    count: Annotated[int, Field(strict=True, ge=1, le=100_000)]
    tokens: PositiveNumber


@checked(frozen=True, slots=True, config=_FORBID)
class DailyCycle:
    """Rate of new conversations over a day: ``1 + swing * sin`` times the mean, with its peak after a quarter.

    ``later`` delays the cycle by this share of a day.
    """

    period_s: Often = 86_400.0
    swing: Probability = 0.5
    later: Probability = 0.0


@checked(frozen=True, slots=True, config=_FORBID)
class Bursts:
    """At the end of every ``every_s``, for ``lasts_s``, conversations begin ``times`` as often."""

    every_s: Often
    lasts_s: Often
    times: Often

    def __post_init__(self) -> None:
        if self.lasts_s > self.every_s:
            raise ConfigError("lasts_s", f"at most every_s ({self.every_s:g})", self.lasts_s)


@checked(frozen=True, slots=True, kw_only=True, config=_FORBID)
class ConversationTraits:
    """Conversations of one kind: the fields that a file and the simulation have in common.

    Attributes:
        users: number of users, each with one conversation after another (closed loop). ``conversations_per_s`` begin
            independently of them (open loop); one of the two may be 0.
        message: tokens that each later request adds to the conversation so far; None where there is one turn only.
    """

    name: Name
    prompt: Lengths  # tokens of a conversation's first request after its system prompt
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
    retries: Number = 3  # times that a refused request is repeated

    def __post_init__(self) -> None:
        if not self.users and not self.conversations_per_s:
            raise ConfigError("users", "a number above 0, or conversations_per_s", self.users)
        if self.message is None and self.turns.most_tokens > 1:
            raise ConfigError("message", "the tokens that each turn adds, if there are several turns", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic(ConversationTraits):
    slo: SloClass = BEST_EFFORT

    def rate_at(self, at_s: float) -> float:
        """Return the rate of new conversations at a time, in 1/s."""
        rate = self.conversations_per_s
        if self.day is not None:
            rate *= 1.0 + self.day.swing * sin(2.0 * pi * (at_s / self.day.period_s - self.day.later))
        if self.bursts is not None and at_s % self.bursts.every_s >= self.bursts.every_s - self.bursts.lasts_s:
            rate *= self.bursts.times
        return rate

    @property
    def most_per_s(self) -> float:
        """An upper bound of ``rate_at``, in 1/s."""
        rate = self.conversations_per_s * (1.0 if self.day is None else 1.0 + self.day.swing)
        return rate * (1.0 if self.bursts is None else max(1.0, self.bursts.times))


@checked(frozen=True, slots=True, config=_FORBID)
class RouterRules:
    """The ingresses' router.

    Attributes:
        ingresses: number of ingresses; a request comes to a random one, and each knows only what it sent itself.
    """

    ingresses: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 1
    max_blocks: Annotated[int, Field(strict=True, ge=1, le=100_000_000)] = MAX_BLOCKS


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetScenario:
    """One run.

    Attributes:
        lost_every_s: mean time until a verifier is lost with its coordinator; after ``reload_s`` it is back, empty.
        coordinator_round_s: a coordinator's CPU time for a round; ``coordinator_token_s``: for a committed token.
    """

    name: str
    verifiers: int
    verifier: VerifierModel  # the model of each of the ``verifiers``
    drafters: tuple[DrafterGroup, ...]
    traffic: tuple[Traffic, ...]
    duration_s: float
    seed: int = 0
    warmup_s: float = 0.0  # responses requested before this time are left out of the results
    router: RouterRules = field(default_factory=RouterRules)
    scheduling: Scheduling = SCHEDULING["slo_aware"]
    admission: AdmissionRules | None = None  # None begins every response as soon as it is requested
    lost_every_s: float = inf
    reload_s: float = 60.0
    coordinator_round_s: float = 0.0
    coordinator_token_s: float = 0.0
    plans_late: bool = True

    @property
    def coordinator(self) -> CoordinatorRules:
        return CoordinatorRules(admission=self.admission, plans_late=self.plans_late, plans_once=self.plans_late)
