"""Runs one cell of ``outrider bench capacity``: users with emulated devices against a real coordinator's core.

The core (``serve_app.coordination.generations.generations``) runs in this process without Serve and HTTP; its verifier
is the real actor.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count

from lab.bench.capacity.emulated_devices import DeviceSpec, EmulatedDevice, EmulatedFleet, generation_name
from lab.bench.capacity.log import Cell, CellLog, ResponseEntry, RoundEntry
from lab.bench.capacity.noted_verifier import NotedVerifier
from lab.bench.capacity.plan import POLICIES, UserPlan
from lab.bench.harness.recorded_drafts import RecordedResponse
from outrider.config.schema import Config, SchedulingConfig
from outrider.contracts.errors import NotAdmittedError
from outrider.contracts.requests import GenerationChunk, GenerationRequest, SamplingParams
from outrider.rounds.rules import RunGrant
from outrider.rounds.timing import RoundTiming
from serve_app.coordination.generations.generations import Generations, Target, VerifierAccess
from serve_app.coordination.reporting.statistics import CoordinatorStats
from serve_app.coordination.settings import generations_settings
from serve_app.metrics import Sink

_GREEDY = SamplingParams(temperature=0.0)
_SESSIONS = 1000  # more than one cell can have


@dataclass(frozen=True, slots=True)
class Server:
    config: Config
    target: Target
    verifier: VerifierAccess
    clock: Callable[[], float] = time.monotonic
    first_sessions: Iterator[int] = field(
        default_factory=lambda: count(0, _SESSIONS)
    )  # to the verifier; a new one for each cell


@dataclass(frozen=True, slots=True)
class Until:
    """End of a cell: enough responses have ended after the warm-up, or the time limit is reached."""

    warmup_s: float
    responses: int
    most_s: float


@dataclass(slots=True, eq=False)
class _Response:
    plan: UserPlan
    number: int
    recorded: RecordedResponse
    asked_at_s: float
    rounds: list[RoundEntry] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    ended_at_s: float | None = None
    refused_at_s: float | None = None

    def put(self, chunk: GenerationChunk) -> None:
        self.token_ids += chunk.token_ids

    def entry(self) -> ResponseEntry:
        return ResponseEntry(
            user=self.plan.user,
            number=self.number,
            slo=self.plan.slo,
            prompt_tokens=len(self.recorded.prompt_ids),
            asked_at_s=self.asked_at_s,
            rounds=tuple(self.rounds),
            ended_at_s=self.ended_at_s,
            as_recorded=tuple(self.token_ids) == self.recorded.output_ids[: len(self.token_ids)],
            refused_at_s=self.refused_at_s,
        )


@dataclass(slots=True, eq=False)
class _Progress:
    """Number of responses that have ended after the warm-up."""

    until: Until
    ended: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    def response(self, ended_at_s: float) -> None:
        self.ended += ended_at_s >= self.until.warmup_s
        if self.ended >= self.until.responses:
            self.enough.set()


# The response that a user's task waits for: that task reports a round's timing, which does not name the response.
_MAKING: ContextVar[_Response] = ContextVar("response being made")


class _Stats(CoordinatorStats):
    """A coordinator's statistics, which also record every round in its response."""

    def __init__(self, cell: Cell, clock: Callable[[], float]) -> None:
        super().__init__(cell.name, Sink(), clock)
        self._now_s = clock

    def round(self, timing: RoundTiming) -> None:
        super().round(timing)
        _MAKING.get().rounds.append(RoundEntry(self._now_s(), timing))


async def run_cell(
    server: Server,
    cell: Cell,
    users: Sequence[UserPlan],
    devices: Sequence[DeviceSpec],
    until: Until,
) -> CellLog:
    """Run the users until enough responses have ended, then cancel the rest. Device i belongs to user i.

    Raises:
        OutriderError: a response failed.
    """
    setting, began_at_s = POLICIES[cell.policy], server.clock()

    def clock() -> float:
        return server.clock() - began_at_s

    responses = {response.prompt_ids: response for user in users for response in user.responses}
    emulated = [EmulatedDevice(spec, responses, clock) for spec in devices]
    fleet = EmulatedFleet(emulated)
    verifier = NotedVerifier(
        server.verifier, keeps_kv=setting.keeps_kv, clock=clock, first_session=next(server.first_sessions)
    )
    speculation = server.config.speculation if setting.drafts else replace(server.config.speculation, window=0)
    config = replace(server.config, scheduling=SchedulingConfig(setting.scheduling), speculation=speculation)
    settings = generations_settings(config)
    grant = RunGrant() if setting.keeps_kv else RunGrant(0, 0)  # a round without kept KV begins with all of its prefix
    limits = replace(settings.planning.limits, max_blocks=server.config.limits.max_concurrent_generations)
    settings = replace(settings, planning=replace(settings.planning, limits=limits), grant=grant)
    settings = replace(settings, admission=replace(settings.admission, weighs=setting.admits))
    generations = Generations(settings, server.target, verifier, fleet, _Stats(cell, clock), clock)
    made, progress = list[_Response](), _Progress(until)
    gc.collect()
    gc.disable()  # a collection of all records would stop everything for a second, which a service's would not
    asking = [asyncio.create_task(_use(generations, cell, plan, made, progress, clock)) for plan in users]
    all_asked, enough = asyncio.gather(*asking), asyncio.create_task(progress.enough.wait())
    try:
        await asyncio.wait((all_asked, enough), timeout=until.most_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gc.enable()
    entries, batches, ended_at_s = tuple(response.entry() for response in made), tuple(verifier.batches), clock()
    failed = all_asked.exception() if all_asked.done() else None
    for task in (enough, *asking):
        task.cancel()
    await asyncio.gather(all_asked, enough, *asking, return_exceptions=True)
    verifier.forget_all()
    generations.batcher.stop()
    if failed is not None:
        raise failed
    return CellLog(
        cell=cell,
        warmup_s=until.warmup_s,
        ended_at_s=ended_at_s,
        responses=entries,
        batches=batches,
        strays=sum(device.strays for device in emulated),
        faults=tuple(fleet.faults),
    )


async def _use(
    generations: Generations,
    cell: Cell,
    plan: UserPlan,
    made: list[_Response],
    progress: _Progress,
    clock: Callable[[], float],
) -> None:
    """One user: responses with pauses between them. In a closed loop it retries after a refusal."""
    await asyncio.sleep(max(0.0, plan.starts_at_s - clock()))
    numbers, retries = count(), plan.retries()
    for recorded, pause_s in plan.requests():
        while True:
            response = _Response(plan, next(numbers), recorded, clock())
            made.append(response)
            _MAKING.set(response)
            refused = await _make(generations, cell, response, clock)
            if refused is None or plan.asks is not None:
                break
            await asyncio.sleep(refused.retry_after_s * next(retries))
        if response.ended_at_s is not None:
            progress.response(response.ended_at_s)
        await asyncio.sleep(pause_s)


async def _make(
    generations: Generations, cell: Cell, response: _Response, clock: Callable[[], float]
) -> NotAdmittedError | None:
    recorded, user = response.recorded, response.plan.user
    request = GenerationRequest(
        generation=generation_name(cell.name, user, response.number),
        prompt_ids=recorded.prompt_ids,
        params=_GREEDY,
        max_tokens=len(recorded.output_ids),
        slo=response.plan.slo,
    )
    try:
        await generations.generate(request, response.put)
    except NotAdmittedError as refusal:
        response.refused_at_s = clock()
        return refusal
    response.ended_at_s = response.rounds[-1].committed_at_s
    return None
