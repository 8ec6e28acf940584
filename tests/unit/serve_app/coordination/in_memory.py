"""Drafter, fleet, metrics and logs in this process: second implementations of what a coordinator works with."""

import asyncio
from collections.abc import Awaitable, Callable

from actors.fleet.lease_table import LeaseTable
from actors.messages import DrafterId
from actors.waiting import within
from outrider.config.drafters import DrafterGroupConfig
from outrider.contracts.drafting import Draft, DraftAnswer, DrafterEngine, DraftRequest, DraftTerms
from outrider.contracts.errors import DrafterLostError, DrafterSilentError, OutriderError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import GenerationId, SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.session.session import DrafterSession
from outrider.versions import VERSIONS
from outrider.wire.envelope import MAX_MESSAGE_BYTES
from outrider.wire.replies import Answer
from serve_app.coordination.drafting.link_services import DrafterPort, LinkSettings
from serve_app.metrics import Metric, Sink
from tests.unit.engines.conftest import VOCAB
from tests.unit.virtual_clock import now_s

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.9, seed=3)
PROMPT = (5, 17, 42, 8, 61, 30, 2)
EDGE = DrafterGroupConfig("edge", trust="trusted", model="edge")
FIRST, SECOND = DrafterId("edge", 0), DrafterId("edge", 1)
WIRE = WireFormat(VOCAB, top_k=16)
LINK_S = 1e-4  # virtual: what an exchange takes on its way
SETTINGS = LinkSettings(
    draft_deadline_s=1.0, must_use_deadline_s=60.0, prefill_deadline_s=1.0, retry_s=0.001, wire=WIRE
)

NONSENSE: dict[str, Callable[[bytes], bytes]] = {
    "half a message": lambda data: data[: len(data) // 2],
    "a message and a half": lambda data: data + data[: len(data) // 2],
    "a damaged message": lambda data: bytes([data[0], data[1] ^ 16, *data[2:]]),
    "another version": lambda data: bytes([data[0] ^ 255, *data[1:]]),
    "a page of text": lambda _: b"<html>Sign in to use this network</html>" * 100,
    "zeros": lambda data: bytes(len(data)),
}


async def until(condition: Callable[[], bool]) -> None:
    """Let others run, and time pass, until a condition holds: it is looked at several times in an exchange."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(LINK_S / 4)
    raise AssertionError("it never came to hold")


class Gate:
    """Where answers can be held back."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def wait(self) -> None:
        """Be held until the gate is opened."""
        self.reached.set()
        await self.opened.wait()


class EngineTransport:
    """A real draft engine in this process. An answer can be held back, lost or changed on its way."""

    message_version = VERSIONS.messages.newest

    def __init__(self, engine: DrafterEngine) -> None:
        self.engine = engine
        self.gates: dict[str, Gate] = {}  # by step: open, prefill, draft, question, probe
        self.lost: dict[str, OutriderError] = {}  # by step: the request arrives, its answer does not
        self.changes: dict[str, Callable[[bytes], bytes]] = {}  # by step: what arrives instead of its answer
        self.draws: Callable[[Draft], Draft] | None = None  # instead of what it drafted, well encoded
        self.delay_s: Callable[[Draft], float] = lambda _: 0.0  # before a draft leaves
        self.probed_at_s: list[float] = []
        self.opened: list[OpenGeneration] = []
        self.drafted: list[DraftRequest] = []
        self.answers: list[Draft] = []
        self.drafter_s = 0.0
        self._sessions: dict[GenerationId, DrafterSession] = {}
        self._answers: dict[tuple[GenerationId, int], DraftAnswer] = {}

    def restarted(self, engine: DrafterEngine) -> None:
        """Nothing is left of what it held."""
        self.engine, self._sessions = engine, {}

    async def open(self, request: OpenGeneration, terms: DraftTerms, deadline_s: float) -> None:  # noqa: ARG002 (interface)
        """Hold a generation."""
        self.opened.append(request)
        self._sessions[request.generation] = DrafterSession(
            terms.wire, request.generation, (*request.prompt_ids, *request.output_ids)
        )
        self.engine.open(request, terms)
        await self._on_the_way("open")

    async def exchange(
        self,
        generation: GenerationId,
        order: bytes,
        deadline_s: float,
        most_bytes: int = MAX_MESSAGE_BYTES,  # noqa: ARG002 (interface)
    ) -> Answer:
        """Exchange one round; others' exchanges go on between two steps of the engine."""
        return await self._in_time(self._exchanged(generation, order), deadline_s)

    async def _in_time(self, answering: Awaitable[Answer], deadline_s: float) -> Answer:
        try:
            return await within(deadline_s, answering)
        except TimeoutError:
            raise DrafterSilentError(f"no answer within {deadline_s:g} s") from None

    async def _exchanged(self, generation: GenerationId, order: bytes) -> Answer:
        session = self._sessions.get(generation)
        if session is None:
            return Answer(b"", self.drafter_s)
        await asyncio.sleep(LINK_S)
        known = session.answer_at_once(order)
        if known is not None:
            await self._on_the_way("question")
            return Answer(known, self.drafter_s)
        request = session.decode_order(order)
        key = (generation, request.round)
        self.engine.submit(request)
        while key not in self._answers:
            if not self.engine.busy:
                raise DrafterLostError(f"round {key} was closed")
            self._answers |= {(answer.generation, answer.round): answer for answer in self.engine.step()}
            await asyncio.sleep(0)
        drafting = request.plan.window > 0 or request.correction is not None
        if drafting:
            self.drafted.append(request)
        answer = self._answers.pop(key)
        if self.draws is not None and isinstance(answer, Draft):
            answer = self.draws(answer)
        if isinstance(answer, Draft):
            self.answers.append(answer)
            await asyncio.sleep(self.delay_s(answer))
        data = session.encode_answer(answer)
        step = "draft" if drafting else "prefill"
        await self._on_the_way(step)
        return Answer(self.changes[step](data) if step in self.changes else data, self.drafter_s)

    async def probe(self, sent: bytes, reply_bytes: int, deadline_s: float) -> Answer:  # noqa: ARG002 (interface)
        """Send so many bytes back."""
        self.probed_at_s.append(now_s())
        return await self._in_time(self._probed(reply_bytes), deadline_s)

    async def _probed(self, reply_bytes: int) -> Answer:
        await self._on_the_way("probe")
        return Answer(bytes(reply_bytes), 0.0)

    def close(self, generation: GenerationId) -> None:
        """Forget a generation."""
        self._sessions.pop(generation, None)
        self.engine.close(generation)

    @property
    def empty(self) -> bool:
        """Whether it holds nothing."""
        usage = self.engine.usage()
        return (usage.generations, usage.used_blocks) == (0, 0)

    async def _on_the_way(self, step: str) -> None:
        if step in self.gates:
            await self.gates[step].wait()
        if step in self.lost:
            raise self.lost[step]


class MemoryFleet:
    """The fleet's own lease table, without the fleet's probes: who is reported stays out until ``back``."""

    def __init__(self, *transports: EngineTransport, group: str = "edge") -> None:
        self._group = group
        self.table = LeaseTable()
        self.transports: dict[DrafterId, EngineTransport] = {}
        self.gate: Gate | None = None
        self.leased: set[GenerationId] = set()
        self.excluded: list[frozenset[DrafterId]] = []  # of every call
        self.reported: list[DrafterId] = []  # as lost
        self.witnesses: list[tuple[DrafterId, GenerationId]] = []
        self.faults: dict[DrafterId, str] = {}  # of those reported as broken
        for transport in transports:
            self.add(transport)

    def add(self, transport: EngineTransport) -> None:
        """One more drafter is up."""
        drafter = DrafterId(self._group, len(self.transports))
        self.transports[drafter] = transport
        self.table.add(drafter, capacity=8)
        self.back(drafter)

    def back(self, drafter: DrafterId) -> None:
        """The drafter was probed or restarted, and answers."""
        self.table.mark_ready(drafter)

    async def lease(
        self, generation: GenerationId, exclude: frozenset[DrafterId], groups: frozenset[str] | None
    ) -> DrafterPort | None:
        """As ``FleetActor``: what was asked for is done, even if nobody waits for the answer any more."""
        self.excluded.append(exclude)
        drafter = self.table.lease(generation, exclude, groups=groups)
        if drafter is not None:
            self.leased.add(generation)
        if self.gate is not None:
            await self.gate.wait()
        return None if drafter is None else DrafterPort(drafter, self.transports[drafter])

    def release(self, generation: GenerationId) -> None:
        """End the lease."""
        self.table.release(generation)
        self.leased.discard(generation)

    def report_lost(self, drafter: DrafterId) -> None:
        """No new leases on it."""
        self.reported.append(drafter)
        self.table.mark_suspect(drafter)

    def report_broken(self, drafter: DrafterId, fault: str, generation: GenerationId) -> None:
        """No new leases on it."""
        self.witnesses.append((drafter, generation))
        self.faults[drafter] = fault
        self.table.mark_suspect(drafter)

    @property
    def empty(self) -> bool:
        """Whether nothing is leased, nor held by a drafter."""
        return not self.leased and all(transport.empty for transport in self.transports.values())


class RecordingSink(Sink):
    """Keeps what is recorded, by metric and labels."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[tuple[str, ...], list[float]] = {}

    def record(self, metric: Metric, value: float = 1.0, **labels: str) -> None:
        """Keep one value."""
        assert set(labels) == set(metric.labels), f"{metric.name} has the labels {metric.labels}"
        self.values.setdefault((metric.name, *(labels[name] for name in metric.labels)), []).append(value)

    def of(self, metric: Metric, *labels: str) -> list[float]:
        """What was recorded with these labels, in order."""
        return self.values.get((metric.name, *labels), [])
