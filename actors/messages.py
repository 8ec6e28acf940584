"""What crosses between coordinator, verifier, drafter and fleet: one call per batch, one lease per generation."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from outrider.admission.decisions import AdmissionReport
from outrider.contracts.cost import VerifyCost
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import (
    Block,
    KvUsage,
    OpenGeneration,
    Outcome,
    PromptLookupGrant,
    Resolution,
    Verified,
)
from outrider.costs.profiles import ProfiledOn
from outrider.models.head_file import HeadInfo
from outrider.sampling.noise import NOISE_VERSION
from outrider.selection.speculation_tuner import TunerReport

if TYPE_CHECKING:
    from outrider.config.schema import DrafterGroupConfig


@dataclass(frozen=True, slots=True)
class Closing:
    """A generation to forget; its full blocks stay in the prefix cache iff ``keep_cache``."""

    generation: GenerationId
    keep_cache: bool


@dataclass(frozen=True, slots=True)
class VerifyCall:
    """Everything a verifier is told at once: it takes effect with its next step, in the order of the fields.

    Attributes:
        session: what is under way from an earlier one is given up.
        number: of the call within its session: calls may overtake one another on their way.
        grants: how far generations that are under way may go from now on: the last round they may make.
        lookups: what they may draft by themselves.
        dues: of generations that are open: seconds from now until their responses fall behind what they are promised,
            infinity where nothing is. Durations, as no two machines' clocks agree.
        prefill_order: which of those in the steps share the chunk of a pass first, until another order is told;
            others behind them. None: as before.
    """

    closings: tuple[Closing, ...] = ()
    openings: tuple[OpenGeneration, ...] = ()
    blocks: tuple[Block, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    grants: tuple[tuple[GenerationId, int], ...] = ()
    lookups: tuple[tuple[GenerationId, PromptLookupGrant | None], ...] = ()
    dues: tuple[tuple[GenerationId, float], ...] = ()
    prefill_order: tuple[GenerationId, ...] | None = None
    session: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a generation could not be opened: it is ``too_long`` for the engine, or opening it went wrong."""

    reason: str
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class StepReply:
    """What one step of the verifier brought, and where the time went.

    Attributes:
        outcomes: of blocks, of rounds that followed by themselves, of resolutions: those that were part of the step.
        refused_openings: why a generation could not be opened.
        engine_s: forward pass and acceptance.
        idle_s: the engine had nothing to do before.
        opening_s: between these two: it took in calls.
        computed: by the pass, of each block that computed something.
        evicted: who lost KV to make room, and how many leading positions of it need no computing still.
        faults: kinds of what went wrong with passes, each time; whatever it was did not reach other blocks.
        suspects: the engine is lost, and these were in the pass that it was lost with. The process ends.
    """

    outcomes: tuple[Outcome, ...]
    refused_openings: dict[GenerationId, Refusal]
    engine_s: float
    idle_s: float
    usage: KvUsage
    computed: tuple[VerifyCost, ...]
    session: int = 0  # of the calls that were taken in last
    evicted: tuple[tuple[GenerationId, int], ...] = ()
    faults: tuple[str, ...] = ()
    suspects: tuple[GenerationId, ...] = ()
    opening_s: float = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        """In columns: most outcomes are one token of a generation that decodes alone."""
        rest = (
            self.refused_openings,
            self.engine_s,
            self.idle_s,
            self.usage,
            self.session,
            self.evicted,
            self.faults,
            self.suspects,
            self.opening_s,
        )
        return _reply_from, (*_columns(self.outcomes), _flat(self.computed), *rest)


def _columns(outcomes: Sequence[Outcome]) -> tuple[list[GenerationId], bytes, list[tuple[int, Outcome]]]:
    """Names, rounds and tokens of those that are a token each; the others by their place."""
    names, numbers, others = list[GenerationId](), array("q"), list[tuple[int, Outcome]]()
    for place, outcome in enumerate(outcomes):
        if isinstance(outcome, Verified) and outcome.only_token is not None:
            names.append(outcome.generation)
            numbers.extend((outcome.round, outcome.only_token))
        else:
            others.append((place, outcome))
    return names, numbers.tobytes(), others


def _flat(costs: Sequence[VerifyCost]) -> bytes:
    return array("q", [number for cost in costs for number in (cost.new_tokens, cost.cached_tokens)]).tobytes()


def _reply_from(
    names: list[GenerationId],
    numbers: bytes,
    others: list[tuple[int, Outcome]],
    computed: bytes,
    refused_openings: dict[GenerationId, Refusal],
    engine_s: float,
    idle_s: float,
    usage: KvUsage,
    *rest: Any,
) -> StepReply:
    rounds_and_tokens, costs = array("q", numbers), array("q", computed)
    outcomes: list[Outcome] = [
        Verified(name, number, (), token_id)
        for name, number, token_id in zip(names, rounds_and_tokens[::2], rounds_and_tokens[1::2], strict=True)
    ]
    for place, outcome in others:  # in order
        outcomes.insert(place, outcome)
    done = tuple(map(VerifyCost, costs[::2], costs[1::2]))
    return StepReply(tuple(outcomes), refused_openings, engine_s, idle_s, usage, done, *rest)


PROTOCOL_VERSION = 6  # of what drafters are asked and answer; raised when any of it changes


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Who an engine is: what must agree between a drafter and its target (``actors.handshake``)."""

    name: str
    model_hash: str
    token_map_hash: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_context_tokens: int
    protocol_version: int = PROTOCOL_VERSION
    noise_version: int = NOISE_VERSION
    machine: ProfiledOn | None = None  # of a verifier: where its times are measured

    @property
    def target(self) -> str:
        """What a verifier's tokens depend on besides a request: another one may go on otherwise."""
        made = () if self.machine is None else (self.machine.engine, self.machine.dtype)
        return "/".join((self.model_hash, *made, f"noise {self.noise_version}"))


@dataclass(frozen=True, slots=True)
class Answer:
    """A drafter's message (``outrider.wire``) and the seconds it worked on it: the rest of the call is the link's.

    ``data`` is empty if the drafter does not hold the generation at all.
    """

    data: bytes
    drafter_s: float


class SentSegments(NamedTuple):
    """TCP segments that carried something, and of these, those that had to be sent again."""

    segments: int = 0
    resent: int = 0


class DrafterHoldings(NamedTuple):
    """What a drafter says of itself when it is asked now and then. Tuples, as they are small on the way up.

    Attributes:
        generations: in its memory.
        segments: TCP segments with data that it has sent to who called it, since it began; of these, ``resent``.
    """

    generations: tuple[GenerationId, ...]
    segments: int = 0
    resent: int = 0


_DRAFTER_PREFIX = "drafter-"


@dataclass(frozen=True, slots=True, order=True)
class DrafterId:
    """One drafter actor; also its actor name."""

    group: str
    index: int

    @property
    def actor_name(self) -> str:
        """Name under which the actor is registered in Ray."""
        return f"{_DRAFTER_PREFIX}{self.group}-{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Cheaper than what a dataclass does by itself: a heartbeat may have one for each of its streams."""
        return DrafterId, (self.group, self.index)

    @classmethod
    def named(cls, actor_name: str) -> "DrafterId | None":
        """Whose name this is; None of what is no drafter."""
        group, _, index = actor_name.removeprefix(_DRAFTER_PREFIX).rpartition("-")
        found = cls(group, int(index)) if group and index.isdecimal() else None
        return found if found is not None and found.actor_name == actor_name else None


class DrafterState(StrEnum):
    """Whether a drafter may be leased."""

    STARTING = "starting"  # its node has not joined, or it loads its model
    READY = "ready"
    SUSPECT = "suspect"  # it failed somebody and is being probed
    REFUSED = "refused"  # it may not draft for this target; tried again after a while


@dataclass(frozen=True, slots=True)
class DrafterStatus:
    """One drafter, as the fleet sees it."""

    name: str
    group: str
    state: DrafterState
    reason: str | None  # why it is refused
    generations: int  # leased to it
    capacity: int
    held: int | None = None  # generations in its memory when it was last asked; None if it was not


DrafterRow = tuple[str, str, DrafterState, str | None, int, int, int | None]  # the fields of a ``DrafterStatus``


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Which drafters are to run, and for which target. Those of the newest coordinator hold (``settings_order``)."""

    groups: tuple["DrafterGroupConfig", ...]
    target: str
    token_map_hash: str  # the target's
    heads: Mapping[str, HeadInfo] = field(default_factory=dict)  # who judges mismatches, by draft model
    models: Mapping[str, str] = field(default_factory=dict)  # hashes that devices must have, by group, where known


@dataclass(frozen=True, slots=True)
class SloRounds:
    """Rounds of responses that were promised one speed."""

    rounds: int = 0
    late_queue: int = 0  # slower than promised, each taken alone, by cause
    late_compute: int = 0
    behind: int = 0  # with which a response as a whole fell behind


@dataclass(frozen=True, slots=True)
class LinkReport:
    """A drafter's link as it was measured last, net of what is lost on it."""

    rtt_s: float
    up_bps: float
    down_bps: float


@dataclass(frozen=True, slots=True)
class CoordinatorReport:
    """What a coordinator is doing; counters since its start."""

    id: str
    verifier: str  # ready | restarting
    uptime_s: float
    generations: int = 0
    queued_generations: int = 0
    queued_blocks: int = 0
    rounds: int = 0
    speculative_rounds: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    trimmed_tokens: int = 0  # drafted, and neither accepted nor rejected
    committed_tokens: int = 0
    verifier_idle_s: float = 0.0
    kv: KvUsage | None = None
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    slo: Mapping[str, SloRounds] = field(default_factory=dict)  # by class
    regime: TunerReport | None = None
    admission: AdmissionReport | None = None
    machine: ProfiledOn | None = None  # what its verifier computes with
    target: str = ""  # which it is (``ModelCard.target``); "": not known yet
    links: Mapping[str, LinkReport] = field(default_factory=dict)  # by drafter, of those it knows
    faults: Mapping[str, int] = field(default_factory=dict)  # by kind, of those that ever were


@dataclass(frozen=True, slots=True)
class FleetSums:
    """How many drafters of a group are in a state, and the generations leased to all of a group.

    ``sent``: by group, what its devices have sent up since the fleet began, as they say.
    """

    drafters: Mapping[tuple[str, DrafterState], int]
    leases: Mapping[str, int]
    sent: Mapping[str, SentSegments] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """Drafters and coordinators of one cluster."""

    drafters: tuple[DrafterStatus, ...]
    coordinators: tuple[CoordinatorReport, ...]
