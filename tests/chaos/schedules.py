"""What is to happen, drawn from a seed before anything runs: streams, and the faults that meet them. Pure.

A fault strikes when the streams together have brought so many tokens, so that a slow machine meets it in the same
state as a fast one; how long it lasts is told in seconds, as what it has to outlast (deadlines, probes) is.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Any

from tests.chaos.agents.asks import Agent, Api, Ask


class FaultKind(StrEnum):
    """What is done to a process, its links, or the application."""

    KILL = "kill"  # as a power cut would
    STOP = "stop"  # and let it continue later
    HANG = "hang"  # its engine, while its event loop goes on answering
    SLOW = "slow"  # links to and from it, a few hundred kilobits per second
    LOSSY = "lossy"  # of them every eighth packet is lost
    PARTITION = "partition"  # all are
    LIE = "lie"  # a device drafts other tokens than its model, or damages what it sends
    UPDATE = "update"  # a new version of the application, while the old one serves
    RESTART = "restart"  # killed, and started again by whoever runs it
    DRAIN = "drain"  # a gateway has its devices move, and is ended and started again


class Victim(StrEnum):
    """Whom it is done to."""

    DRAFTER = "drafter"  # an actor
    DEVICE = "device"  # that dials in
    GATEWAY = "gateway"
    VERIFIER = "verifier"
    COORDINATOR = "coordinator"
    INGRESS = "ingress"
    PROXY = "proxy"
    FLEET = "fleet"
    GCS = "gcs"  # Ray's own head process
    RAYLET = "raylet"
    APPLICATION = "application"


Target = tuple[FaultKind, Victim]

_LINKED = (Victim.DRAFTER, Victim.VERIFIER, Victim.COORDINATOR)
_WEIGHTS: Mapping[Target, int] = {  # how often each is drawn where it is possible
    **{(FaultKind.KILL, victim): 4 for victim in _LINKED},
    **{(FaultKind.STOP, victim): 3 for victim in _LINKED},
    **{(kind, victim): 2 for kind in (FaultKind.SLOW, FaultKind.LOSSY, FaultKind.PARTITION) for victim in _LINKED},
    **{(FaultKind.HANG, victim): 3 for victim in (Victim.DRAFTER, Victim.VERIFIER)},
    (FaultKind.LIE, Victim.DRAFTER): 4,
    (FaultKind.KILL, Victim.DEVICE): 3,
    (FaultKind.STOP, Victim.DEVICE): 2,
    **{(kind, Victim.DEVICE): 2 for kind in (FaultKind.SLOW, FaultKind.LOSSY, FaultKind.PARTITION)},
    (FaultKind.KILL, Victim.GATEWAY): 3,
    (FaultKind.STOP, Victim.GATEWAY): 2,
    (FaultKind.DRAIN, Victim.GATEWAY): 2,
    (FaultKind.KILL, Victim.FLEET): 2,
    (FaultKind.STOP, Victim.FLEET): 2,
    (FaultKind.STOP, Victim.GCS): 1,
    (FaultKind.STOP, Victim.RAYLET): 1,
    (FaultKind.STOP, Victim.INGRESS): 1,
    (FaultKind.KILL, Victim.INGRESS): 1,  # breaks every stream: seldom, or the other faults would meet none
    (FaultKind.STOP, Victim.PROXY): 1,
    (FaultKind.KILL, Victim.PROXY): 1,
    (FaultKind.UPDATE, Victim.APPLICATION): 1,
    (FaultKind.RESTART, Victim.GCS): 2,
}
FAULTS: tuple[Target, ...] = tuple(_WEIGHTS)
LASTING = frozenset(
    {FaultKind.STOP, FaultKind.HANG, FaultKind.SLOW, FaultKind.LOSSY, FaultKind.PARTITION, FaultKind.LIE}
)
_BESIDE_AGENTS = (  # at which share of their tokens what is struck, and which of them
    (0.05, FaultKind.KILL, Victim.DRAFTER, 0),
    (0.05, FaultKind.KILL, Victim.DEVICE, 0),
    (0.1, FaultKind.KILL, Victim.GATEWAY, 0),
    (0.15, FaultKind.KILL, Victim.VERIFIER, 0),
    (0.2, FaultKind.PARTITION, Victim.DEVICE, 1),
    (0.3, FaultKind.KILL, Victim.COORDINATOR, 0),
    (0.35, FaultKind.DRAIN, Victim.GATEWAY, 0),
    (0.4, FaultKind.KILL, Victim.DRAFTER, 1),
)
_CUT_S = 4.0  # longer than a device believes in a silent link


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        which: of several such processes, counted round.
        after_tokens: of all streams together.
        lasts_s: until it is mended, where it is (``LASTING``).
    """

    kind: FaultKind
    victim: Victim
    which: int = 0
    after_tokens: int = 0
    lasts_s: float = 0.0

    @property
    def name(self) -> str:
        """What is reported together."""
        return f"{self.kind} {self.victim}"


class StreamKind(StrEnum):
    """What may be said of a stream's tokens."""

    GREEDY = "greedy"
    SEEDED = "seeded"
    SEMANTIC = "semantic"  # greedy, and a decision head may let other tokens stand, which are then told
    POISONED = "poisoned"  # any pass with one of its blocks fails
    AGENT = "agent"  # a chat, Response or Message, greedy or seeded


class Reader(StrEnum):
    """How a client reads."""

    STEADY = "steady"
    SLOW = "slow"  # so little at a time that what is sent to it backs up
    HANGS_UP = "hangs_up"


@dataclass(frozen=True, slots=True)
class Stream:
    """One streamed request.

    Attributes:
        number: tells it from the others.
        prompt: an index into the prompts.
        stop_at: where, of the text that the target alone gives, its stop string is taken from, in [0, 1).
        slo_classes: in order of preference; none is the service's default.
        begins_s: after the first one.
        hangs_up_after: events, where its reader does.
        agent: its request, if it is an agent's.
    """

    number: int
    kind: StreamKind
    prompt: int
    tokens: int
    seed: int = 0
    n: int = 1
    stop_at: float | None = None
    slo_classes: tuple[str, ...] = ()
    begins_s: float = 0.0
    reader: Reader = Reader.STEADY
    hangs_up_after: int = 0
    agent: Agent | None = None

    @property
    def lasts(self) -> bool:
        """Whether it is to be told to its end."""
        return self.kind is not StreamKind.POISONED and self.reader is not Reader.HANGS_UP


@dataclass(frozen=True, slots=True)
class Schedule:
    """Everything of one run."""

    seed: int
    streams: tuple[Stream, ...]
    faults: tuple[Fault, ...]

    def to_json(self) -> str:
        """To be written down and run again."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Schedule":
        """What was written down."""
        content = json.loads(text)
        streams, faults = map(_stream_of, content["streams"]), map(_fault_of, content["faults"])
        return cls(content["seed"], tuple(streams), tuple(faults))

    def lines(self) -> list[str]:
        """For a reader."""
        return [f"seed {self.seed}", *map(_told_stream, self.streams), *map(_told_fault, self.faults)]


@dataclass(frozen=True, slots=True)
class Menu:
    """What may be drawn.

    Attributes:
        targets: faults that this machine and this cluster allow.
        semantic: whether there is a decision head.
        poison: whether verifiers can be poisoned.
        prompts: to choose from.
        most_tokens: of a stream.
        streams: least and most of a schedule.
        agents: to choose ``most_agents`` from, beside these.
    """

    targets: tuple[Target, ...]
    semantic: bool = True
    poison: bool = True
    prompts: int = 6
    most_tokens: int = 48
    streams: tuple[int, int] = (6, 9)
    agents: tuple[Agent, ...] = ()
    most_agents: int = 3
    seeds: tuple[int, ...] = (11, 2**63 - 1, 5)  # few, as the target alone has to say what each one gives
    slo_classes: tuple[tuple[str, ...], ...] = field(
        default=((), (), ("speed_2", "best_effort"), ("speed_4", "speed_2", "best_effort"))
    )


def schedule_of(seed: int, menu: Menu) -> Schedule:
    """Draw a schedule: bursts of one to three faults, the second of which may meet what the first has not left yet."""
    rng = Random(f"chaos {seed}")
    streams = [_stream(rng, number, menu) for number in range(rng.randint(*menu.streams))]
    if menu.poison and rng.random() < 0.3:
        victim = rng.randrange(len(streams))
        streams[victim] = replace(
            streams[victim], kind=StreamKind.POISONED, n=1, stop_at=None, slo_classes=(), reader=Reader.STEADY
        )
    expected = expected_tokens(streams)
    faults: list[Fault] = []
    for after in sorted(rng.uniform(0.05, 0.5) for _ in range(rng.choice([1, 1, 2]))):
        faults += [_fault(rng, menu, int(after * expected)) for _ in range(rng.choice([1, 2, 2, 3]))]
    return Schedule(seed, (*streams, *_agents(Random(f"agents {seed}"), menu, len(streams))), tuple(faults))


def schedule_of_agents(agents: Sequence[Agent], tokens: int, possible: Collection[Target] = FAULTS) -> Schedule:
    """All of these at once, while of all who draft, relay and verify some are struck, as far as it is possible here."""
    questions = list(Ask)  # one for each
    streams = [_agent(i, agent, questions.index(agent.ask), tokens, 0) for i, agent in enumerate(agents)]
    expected = expected_tokens(streams)
    faults = [
        Fault(kind, victim, which, int(share * expected), _CUT_S if kind in LASTING else 0.0)
        for share, kind, victim, which in _BESIDE_AGENTS
        if (kind, victim) in possible
    ]
    return Schedule(0, tuple(streams), tuple(faults))


def _agents(rng: Random, menu: Menu, first: int) -> list[Stream]:
    found = rng.sample(menu.agents, min(menu.most_agents, len(menu.agents)))
    return [
        _agent(first + i, agent, rng.randrange(menu.prompts), menu.most_tokens, rng.choice([0, *menu.seeds]))
        for i, agent in enumerate(found)
    ]


def _agent(number: int, agent: Agent, prompt: int, tokens: int, seed: int) -> Stream:
    return Stream(number, StreamKind.AGENT, prompt, tokens, seed, agent=agent)


def stream_of(rng: Random, number: int, menu: Menu) -> Stream:
    """Draw one stream, none of the first two."""
    return replace(_stream(rng, number + 2, menu), number=number, begins_s=0.0)


def fault_of(rng: Random, menu: Menu) -> Fault:
    """Draw one fault, to be done at once."""
    return _fault(rng, menu, 0)


def expected_tokens(streams: Sequence[Stream]) -> int:
    """That the lasting streams bring together while they come, if none of them stops early."""
    lasting = (stream for stream in streams if stream.lasts and stream.stop_at is None)
    return sum(stream.tokens * stream.n for stream in lasting if stream.agent is None or stream.agent.stream)


def _stream(rng: Random, number: int, menu: Menu) -> Stream:
    kinds = [StreamKind.GREEDY] * 4 + [StreamKind.SEEDED] * 4 + [StreamKind.SEMANTIC] * menu.semantic
    # The first two are there for the faults to meet, whatever the others are.
    kind = (StreamKind.GREEDY, StreamKind.SEEDED)[number] if number < 2 else rng.choice(kinds)
    reader = Reader.STEADY if number < 2 else rng.choice([Reader.STEADY] * 5 + [Reader.SLOW, Reader.HANGS_UP])
    semantic = kind is StreamKind.SEMANTIC
    return Stream(
        number=number,
        kind=kind,
        prompt=rng.randrange(menu.prompts),
        tokens=menu.most_tokens if number < 2 else rng.randint(menu.most_tokens // 2, menu.most_tokens),
        seed=rng.choice(menu.seeds) if kind is StreamKind.SEEDED else 0,
        n=1 if semantic or number < 2 else rng.choice([1, 1, 1, 2, 3]),
        stop_at=rng.uniform(0.3, 0.8) if not semantic and number >= 2 and rng.random() < 0.3 else None,
        slo_classes=() if semantic else rng.choice(menu.slo_classes),
        begins_s=0.0 if number < 2 else round(rng.uniform(0.0, 2.0), 2),
        reader=reader,
        hangs_up_after=rng.randint(1, 20) if reader is Reader.HANGS_UP else 0,
    )


def _fault(rng: Random, menu: Menu, after_tokens: int) -> Fault:
    kind, victim = rng.choices(menu.targets, [_WEIGHTS[target] for target in menu.targets])[0]
    lasts_s = round(rng.choice([rng.uniform(0.5, 3.0), rng.uniform(3.0, 12.0)]), 1) if kind in LASTING else 0.0
    if victim in (Victim.GCS, Victim.RAYLET, Victim.INGRESS, Victim.PROXY):
        lasts_s = min(lasts_s, 4.0)  # longer, Ray takes the node for dead: another fault
    return Fault(kind, victim, rng.randrange(8), after_tokens, lasts_s)


def _stream_of(fields: dict[str, Any]) -> Stream:
    told = fields | {"kind": StreamKind(fields["kind"]), "reader": Reader(fields["reader"])}
    if (agent := told.get("agent")) is not None:
        told["agent"] = Agent(Api(agent["api"]), Ask(agent["ask"]), agent["stream"])
    return Stream(**told | {"slo_classes": tuple(fields["slo_classes"])})


def _fault_of(fields: dict[str, Any]) -> Fault:
    return Fault(**fields | {"kind": FaultKind(fields["kind"]), "victim": Victim(fields["victim"])})


def _told_stream(stream: Stream) -> str:
    parts = [f"  stream {stream.number}: {stream.kind}, prompt {stream.prompt}, {stream.tokens} tokens"]
    parts += [f"seed {stream.seed}"] * bool(stream.seed) + [f"n {stream.n}"] * (stream.n > 1)
    if (agent := stream.agent) is not None:
        parts.append(f"{agent.ask} over {agent.api}, {'streamed' if agent.stream else 'whole'}")
    parts += [] if stream.stop_at is None else [f"stop at {stream.stop_at:.2f}"]
    parts += [" or ".join(stream.slo_classes)] if stream.slo_classes else []
    parts += [f"reader {stream.reader}"] if stream.reader is not Reader.STEADY else []
    return ", ".join(parts)


def _told_fault(fault: Fault) -> str:
    lasts = f" for {fault.lasts_s:g} s" if fault.kind in LASTING else ""
    return f"  fault: {fault.name} {fault.which}{lasts}, after {fault.after_tokens} tokens"
