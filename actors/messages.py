"""Defines the messages between coordinator, verifier, drafter and fleet."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

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
from outrider.selection.tuning.report import TunerReport
from outrider.versions import VERSIONS
from outrider.wire.replies import SentSegments

if TYPE_CHECKING:
    from outrider.config.drafters import DrafterGroupConfig
    from outrider.config.gateway import GatewayConfig


@dataclass(frozen=True, slots=True)
class Closing:
    """A generation to drop; its full KV blocks stay in the prefix cache iff ``keep_cache``."""

    generation: GenerationId
    keep_cache: bool


@dataclass(frozen=True, slots=True)
class VerifyCall:
    """One call to a verifier: it takes effect with the next step; closings first, then openings, blocks and the rest.

    Attributes:
        session: a new session gives up all that is under way from earlier ones.
        number: of the call within its session, from 0; the verifier orders calls by it, as they may overtake another.
        grants: the last round that an autonomous run may make.
        lookups: how an autonomous run may draft by prompt lookup.
        dues: seconds from now until a response falls behind its promise, infinity without one. They are durations, as
            the clocks of two machines differ.
        prefill_order: generations that share a pass's prefill chunk first, until another order comes; others follow
            them. None: as before.
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
    """Why a generation could not be opened: it is ``too_long`` for the engine, or opening it failed."""

    reason: str
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class StepReply:
    """Outcomes and times of one step of the verifier.

    Attributes:
        evicted: generations that lost KV to make room, with the number of leading positions that are still resident.
        suspects: if not empty, the engine is lost: the generations of its last pass. The process ends after this reply.
    """

    outcomes: tuple[Outcome, ...]  # of the step's blocks, autonomous rounds and resolutions
    refused_openings: dict[GenerationId, Refusal]  # why generations could not be opened
    engine_s: float  # duration of forward pass and acceptance
    idle_s: float  # time without work before the step
    usage: KvUsage
    computed: tuple[VerifyCost, ...]  # cost of each block that computed something in the pass
    session: int = 0  # of the calls that were taken in last
    evicted: tuple[tuple[GenerationId, int], ...] = ()
    faults: tuple[str, ...] = ()  # kind of each fault of a pass; other blocks were not affected
    suspects: tuple[GenerationId, ...] = ()
    opening_s: float = 0.0  # time between idle and engine, spent applying calls

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle outcomes in columns, as most are one token of an autonomous run."""
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
    """Names, rounds and tokens of one-token outcomes; the others by index."""
    names, numbers, others = list[GenerationId](), array("q"), list[tuple[int, Outcome]]()
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Verified) and outcome.only_token is not None:
            names.append(outcome.generation)
            numbers.extend((outcome.round, outcome.only_token))
        else:
            others.append((index, outcome))
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
    *rest: Any,
) -> StepReply:
    rounds_and_tokens, costs = array("q", numbers), array("q", computed)
    outcomes: list[Outcome] = [
        Verified(name, number, (), token_id)
        for name, number, token_id in zip(names, rounds_and_tokens[::2], rounds_and_tokens[1::2], strict=True)
    ]
    for index, outcome in others:  # in order
        outcomes.insert(index, outcome)
    done = tuple(map(VerifyCost, costs[::2], costs[1::2]))
    return StepReply(tuple(outcomes), refused_openings, engine_s, idle_s, rest[0], done, *rest[1:])


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A verifier's model; ``outrider.wire.replies.DrafterCard`` is a drafter's."""

    name: str
    model_hash: str
    token_map_hash: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_context_tokens: int
    noise_version: int = VERSIONS.noise.newest
    machine: ProfiledOn | None = None  # where its times are measured

    @property
    def target(self) -> str:
        """All that a verifier's tokens depend on besides the request: only an equal one may resume a response."""
        made = () if self.machine is None else (self.machine.engine, self.machine.dtype)
        return "/".join((self.model_hash, *made, f"noise {self.noise_version}"))


_DRAFTER_PREFIX = "drafter-"


@dataclass(frozen=True, slots=True, order=True)
class DrafterId:
    """One drafter actor, also its actor name; or one process of a device that dialled in."""

    group: str
    index: int
    incarnation: int = 0  # of a device: what is said about an earlier process of it is not about this one

    @property
    def actor_name(self) -> str:
        return f"{_DRAFTER_PREFIX}{self.group}-{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle faster than a dataclass does by default: a heartbeat may have one for each response."""
        return DrafterId, (self.group, self.index, self.incarnation)

    @property
    def place(self) -> "DrafterId":
        """Its place in the group, whichever process has it."""
        return DrafterId(self.group, self.index) if self.incarnation else self

    @classmethod
    def named(cls, actor_name: str) -> "DrafterId | None":
        """Return the drafter of an actor's name; None if it is not a drafter's."""
        group, _, index = actor_name.removeprefix(_DRAFTER_PREFIX).rpartition("-")
        found = cls(group, int(index)) if group and index.isdecimal() else None
        return found if found is not None and found.actor_name == actor_name else None


class DrafterState(StrEnum):
    STARTING = "starting"  # its node has not joined, or it loads its model
    READY = "ready"
    SUSPECT = "suspect"  # reported, and being probed
    REFUSED = "refused"  # failed the handshake, or broken; started again after a pause


@dataclass(frozen=True, slots=True)
class DialledStatus:
    """Of a drafter that is a device which has dialled in; what it has carried since it joined, as the kernel counts."""

    device: str
    gateway: str
    down_bits: int
    up_bits: int


@dataclass(frozen=True, slots=True)
class DrafterStatus:
    name: str
    group: str
    state: DrafterState
    reason: str | None  # why it is refused
    generations: int  # leased to it
    capacity: int
    held: int | None = None  # generations in its memory when it was last asked; None if it was not
    dialled: DialledStatus | None = None  # None: it is an actor


# the fields of a ``DrafterStatus``
DrafterRow = tuple[str, str, DrafterState, str | None, int, int, int | None, DialledStatus | None]


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    name: str
    address: str  # that devices dial; "": it does not run
    devices: int = 0
    connections: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)  # dials, by reason, since it was started
    fault: str | None = None  # why it does not run


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Drafters that are to run, and their target. Those of the newest coordinator apply (``settings_order``)."""

    groups: tuple["DrafterGroupConfig", ...]
    target: str
    token_map_hash: str  # the target's
    heads: Mapping[str, HeadInfo] = field(default_factory=dict)  # decision heads by draft model
    models: Mapping[str, str] = field(default_factory=dict)  # required model hash by group, where one is configured
    gateway: "GatewayConfig | None" = None


@dataclass(frozen=True, slots=True)
class SloRounds:
    rounds: int = 0
    late_queue: int = 0  # late rounds by cause: queue
    late_compute: int = 0  # and compute
    behind: int = 0  # commits while behind the promised speed


@dataclass(frozen=True, slots=True)
class LinkReport:
    """A drafter's link as it was measured last; rates are net of losses."""

    rtt_s: float
    up_bps: float
    down_bps: float


@dataclass(frozen=True, slots=True)
class CoordinatorReport:
    """A coordinator's state, with counters since its start."""

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
    target: str = ""  # ``ModelCard.target`` of its verifier; "": not known yet
    links: Mapping[str, LinkReport] = field(default_factory=dict)  # by drafter, where measured
    faults: Mapping[str, int] = field(default_factory=dict)  # by kind, without zeros


@dataclass(frozen=True, slots=True)
class FleetSums:
    """Numbers of drafters by group and state, and of leases by group.

    ``sent``: by group, TCP segments that its devices say they have sent since the fleet's start. ``carried_bytes``: by
    group and direction, what devices that dialled in have carried; ``refused``: dials by reason; likewise.
    ``strikes``: of the drafters with most, by actor name; ``gateways``: how many are wanted and running.
    """

    drafters: Mapping[tuple[str, DrafterState], int]
    leases: Mapping[str, int]
    sent: Mapping[str, SentSegments] = field(default_factory=dict)
    carried_bytes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    strikes: Mapping[str, int] = field(default_factory=dict)
    gateways: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetStatus:
    drafters: tuple[DrafterStatus, ...]
    coordinators: tuple[CoordinatorReport, ...]
    gateways: tuple[GatewayStatus, ...] = ()
