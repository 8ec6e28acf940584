"""Reloadable settings of a coordinator change under responses: these keep theirs, and nobody's tokens change."""

import asyncio
from dataclasses import replace

import pytest

from actors.messages import ModelCard
from outrider.config.reading import parse_config
from outrider.config.reloadable import with_reloadable
from outrider.contracts.errors import NotAdmittedError
from outrider.contracts.requests import GenerationChunk, GenerationRequest
from serve_app.coordination.generations.generations import Generations, Target
from serve_app.coordination.reporting.statistics import CoordinatorStats
from serve_app.coordination.settings import GenerationsSettings, generations_settings
from tests.unit.engines.conftest import BLOCK_TOKENS, VOCAB
from tests.unit.serve_app.api.in_memory_service import (
    PARAMS,
    TOKENIZER,
    LocalVerifier,
    drafter,
    request_for,
    tokens_of,
    truth_of,
)
from tests.unit.serve_app.coordination.in_memory import Gate, MemoryFleet, RecordingSink, until
from tests.unit.virtual_clock import now_s, on_loop

BUILT = parse_config(
    """
    drafters: [{name: edge, trust: trusted}]
    speculation: {policy: fixed, window: 5, lookup_window: 0}
    limits: {max_concurrent_generations: 2, max_queued_generations: 1}
    """,
    "text",
)
CARD = ModelCard("tiny", "hash", "map", VOCAB, (), 256)


def without_floor(settings: GenerationsSettings) -> GenerationsSettings:
    """All places may be promised."""
    return replace(settings, admission=replace(settings.admission, best_effort_floor=0.0))


class Coordinator:
    """As far as reloadable settings concern it."""

    def __init__(self) -> None:
        self.verifier, self.fleet = LocalVerifier(), MemoryFleet(drafter())
        settings = generations_settings(BUILT)
        planning = replace(settings.planning, block_tokens=BLOCK_TOKENS)
        self.settings = without_floor(replace(settings, planning=planning))
        target = Target(CARD, TOKENIZER, [f"w{i}" for i in range(VOCAB)])
        stats = CoordinatorStats("c", RecordingSink(), now_s)
        self.generations = Generations(self.settings, target, self.verifier, self.fleet, stats, now_s)

    def take(self, **light: dict[str, object]) -> None:
        """As ``reconfigure`` does."""
        self.generations.take(without_floor(self.settings.with_reloadable(with_reloadable(BUILT, light))))

    def begin(self, request: GenerationRequest) -> "Response":
        return Response(self.generations, request)

    async def idle(self) -> None:
        await until(lambda: self.verifier.empty and self.fleet.empty)
        self.generations.batcher.stop()


class Response:
    """One that is being made."""

    def __init__(self, generations: Generations, request: GenerationRequest) -> None:
        self.chunks: list[GenerationChunk] = []
        self.task = asyncio.create_task(generations.generate(request, self.chunks.append))

    async def end(self) -> list[int]:
        """Its tokens."""
        await self.task
        return tokens_of(self.chunks)

    @property
    def longest_draft(self) -> int:
        """Tokens, as its client is told."""
        rounds = (one for chunk in self.chunks if chunk.details is not None for one in chunk.details.rounds)
        return max(one.drafted_tokens for one in rounds)


def detailed(name: str, params: str = "greedy") -> GenerationRequest:
    return replace(request_for(name, params=PARAMS[params]), details=True)


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize("after", [2, 5])
@on_loop
async def test_speculation_changes_for_those_that_begin_and_no_token_does(params: str, after: int) -> None:
    coordinator = Coordinator()
    coordinator.verifier.gates[after] = gate = Gate()
    running = coordinator.begin(detailed("running", params))
    await gate.reached.wait()
    coordinator.take(speculation={"window": 2})
    begun = coordinator.begin(detailed("begun", params))
    gate.opened.set()
    assert await running.end() == await begun.end() == truth_of(detailed("any", params))
    assert (running.longest_draft, begun.longest_draft) == (5, 2)
    await coordinator.idle()


@on_loop
async def test_other_modes_are_chosen_from_by_those_that_begin() -> None:
    coordinator = Coordinator()
    coordinator.verifier.gates[2] = gate = Gate()
    before, running = coordinator.generations.tuner, coordinator.begin(request_for("running"))
    await gate.reached.wait()
    coordinator.take(speculation={"window": 2})
    assert coordinator.generations.tuner is before, "it has learned much, and chooses between the same"
    coordinator.take(speculation={"window": None, "policy": "cost_aware"})
    assert coordinator.generations.tuner is not before
    assert [name for name, _ in coordinator.generations.tuner.report(now_s()).rewards] == ["none", "draft"]
    begun = coordinator.begin(request_for("begun"))
    gate.opened.set()
    assert await running.end() == await begun.end() == truth_of(request_for())
    await coordinator.idle()


@on_loop
async def test_limits_that_shrink_refuse_new_responses_only() -> None:
    coordinator = Coordinator()
    coordinator.verifier.gates[1] = gate = Gate()
    held = [coordinator.begin(request_for(name)) for name in ("a", "b", "waits")]
    await gate.reached.wait()
    coordinator.take(limits={"max_concurrent_generations": 1, "max_queued_generations": 0})
    assert coordinator.generations.admissions.places == 1
    with pytest.raises(NotAdmittedError):
        await coordinator.begin(request_for("new")).end()
    gate.opened.set()
    assert [await one.end() for one in held] == 3 * [truth_of(request_for())]
    await coordinator.idle()


@on_loop
async def test_limits_that_grow_let_in_who_waits() -> None:
    coordinator = Coordinator()
    coordinator.verifier.gates[1] = gate = Gate()
    held = [coordinator.begin(request_for(name)) for name in ("a", "b", "waits")]
    await gate.reached.wait()
    assert coordinator.generations.admissions.running == 2
    coordinator.take(limits={"max_concurrent_generations": 3})
    assert coordinator.generations.admissions.running == 3
    gate.opened.set()
    await asyncio.gather(*(one.end() for one in held))
    await coordinator.idle()


@on_loop
async def test_whoever_waits_does_so_for_as_long_as_it_was_to() -> None:
    coordinator = Coordinator()
    coordinator.verifier.gates[1] = gate = Gate()
    held = [coordinator.begin(request_for(name)) for name in ("a", "b")]
    await gate.reached.wait()
    patient = coordinator.begin(request_for("waits"))
    await until(lambda: coordinator.generations.admissions.admitted == 3)
    coordinator.take(admission={"best_effort_max_wait_s": 5.0}, limits={"max_queued_generations": 2})
    hasty, asked_at_s = coordinator.begin(request_for("hasty")), now_s()
    with pytest.raises(NotAdmittedError):
        await hasty.end()
    assert now_s() - asked_at_s == pytest.approx(5.0)
    assert not patient.task.done()
    with pytest.raises(NotAdmittedError):
        await patient.end()
    assert now_s() - asked_at_s == pytest.approx(BUILT.admission.best_effort_max_wait_s, abs=0.1)
    gate.opened.set()
    await asyncio.gather(*(one.end() for one in held))
    await coordinator.idle()
