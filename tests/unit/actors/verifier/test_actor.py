"""What an engine is told and tells, step by step."""

import asyncio
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from actors.local_streams import Stream, connect, listen
from actors.messages import Closing, StepReply, VerifyCall
from actors.verifier.actor import SteppedEngine, VerifierActor
from actors.verifier.step_stream import StepStream
from actors.waiting import within
from outrider.contracts.errors import ParameterError, VerifierLostError
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import (
    AutonomousRun,
    Block,
    BlockRefused,
    Failed,
    OpenGeneration,
    Outcome,
    Resolution,
    Unknown,
    Verified,
)
from outrider.engines.verifier.own_drafts import OwnDrafts
from tests.unit.engines.conftest import tiny_llama, torch_verifier
from tests.unit.engines.reference import Client
from tests.unit.engines.toy_grammar import TOY
from tests.unit.engines.verifier.test_openings import Opened

_WAIT_S = 60.0
PROMPT = [5, 17, 42, 8, 61, 30, 2]
SIZES = {"fits": 1, "large": 9, "odd": 1}  # in prompts


class Failing:
    """An engine that goes wrong when it is told to."""

    def __init__(self) -> None:
        self._engine = torch_verifier(tiny_llama())
        self.errors: list[Exception] = []  # of the next passes

    def __getattr__(self, name: str) -> object:
        """As it is."""
        return getattr(self._engine, name)

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """Go wrong, or not."""
        if self.errors:
            raise self.errors.pop(0)
        return self._engine.verify(blocks, resolutions)


def stretched(client: Client, until_round: int) -> VerifyCall:
    block = replace(client.block(), autonomous_run=AutonomousRun(until_round))
    return VerifyCall(openings=(client.opening(),), blocks=(block,))


def test_a_pass_that_goes_wrong_once_costs_nobody_anything() -> None:
    engine = Failing()
    stepped, client = SteppedEngine(engine), Client("a", PROMPT, SamplingParams(temperature=0.0))  # type: ignore[arg-type]
    (outcome,) = stepped.step([stretched(client, 9)]).outcomes
    assert isinstance(outcome, Verified)
    engine.errors = [RuntimeError("nan")]
    reply = stepped.step([])
    (again,) = reply.outcomes
    assert isinstance(again, Verified)
    assert (again.round, list(reply.faults)) == (1, ["pass"])
    assert not stepped.step([]).faults


def test_a_block_that_fails_alone_twice_is_told_so_and_its_autonomous_run_ends() -> None:
    engine = Failing()
    stepped, client = SteppedEngine(engine), Client("a", PROMPT, SamplingParams(temperature=0.0))  # type: ignore[arg-type]
    engine.errors = [ParameterError("seed", "one", None)] * 2
    (outcome,) = stepped.step([stretched(client, 9)]).outcomes
    assert outcome == Failed("a", 0, "ParameterError: seed needs one, found None")
    assert stepped.idle
    (after,) = stepped.step([VerifyCall(number=1, blocks=(client.block(),))]).outcomes
    assert isinstance(after, Verified), "the engine is well, and holds it as it was"


def test_what_cannot_be_opened_for_a_fault_of_ours_is_told_apart_from_what_is_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stepped = SteppedEngine(torch_verifier(tiny_llama(), blocks=8))
    fits, large, odd = (Client(name, PROMPT * size, SamplingParams(temperature=0.0)) for name, size in SIZES.items())
    monkeypatch.setattr(OwnDrafts, "opened", goes_wrong_of("odd"))
    openings = (odd.opening(), large.opening(), fits.opening())
    reply = stepped.step([VerifyCall(openings=openings, blocks=(odd.block(), large.block(), fits.block()))])
    assert {name: refusal.too_long for name, refusal in reply.refused_openings.items()} == {"odd": False, "large": True}
    assert reply.refused_openings["odd"].reason == "KeyError: 'odd'"
    assert isinstance(reply.outcomes[-1], Verified)


def goes_wrong_of(name: str) -> Callable[..., None]:
    """Of one generation."""

    def opened(_: object, request: OpenGeneration) -> None:
        if request.generation == name:
            raise KeyError(name)

    return opened


def test_an_engine_that_is_lost_is_not_asked_again() -> None:
    engine = Failing()
    engine.errors = [VerifierLostError("a worker died")]
    stepped, client = SteppedEngine(engine), Client("a", PROMPT, SamplingParams(temperature=0.0))  # type: ignore[arg-type]
    with pytest.raises(VerifierLostError, match="a worker died"):
        stepped.step([stretched(client, 9)])
    last = stepped.last_words()
    assert (last.suspects, last.faults) == (("a",), ("lost",))


def test_what_cannot_be_opened_is_refused_beside_the_others() -> None:
    stepped = SteppedEngine(torch_verifier(tiny_llama(), blocks=8))
    fits, large = (Client(name, PROMPT * size, SamplingParams(temperature=0.0)) for name, size in (("a", 1), ("b", 9)))
    call = VerifyCall(openings=(large.opening(), fits.opening()), blocks=(large.block(), fits.block()))
    reply = stepped.step([call])
    assert list(reply.refused_openings) == ["b"]
    assert [type(outcome) for outcome in reply.outcomes] == [Unknown, Verified]
    assert not any(isinstance(outcome, BlockRefused) for outcome in reply.outcomes)


def test_who_is_due_last_loses_kv_and_that_is_told() -> None:
    """Due counts from when it was told; the last word counts."""
    stepped, params = SteppedEngine(torch_verifier(tiny_llama(), blocks=8)), SamplingParams(temperature=0.0)
    held = [Client(name, [number] * 14, params) for number, name in enumerate("ab")]
    call = VerifyCall(openings=tuple(one.opening() for one in held), blocks=tuple(one.block() for one in held))
    stepped.step([replace(call, dues=(("a", 1e6), ("b", 1e5)))])
    while not stepped.idle:
        stepped.step([])
    new = [Client(name, [number + 7] * 4, params) for number, name in enumerate("cd")]
    lost = []
    for one, dues in zip(new, ((), (("a", 0.0), ("gone", 1.0), ("c", 0.0))), strict=True):
        reply = stepped.step([VerifyCall(number=1, openings=(one.opening(),), blocks=(one.block(),), dues=dues)])
        lost.append(reply.evicted)
    assert lost == [(("a", 12),), (("b", 12),)]
    assert (reply.usage.evictions, reply.usage.unowed_evictions) == (2, 0)


def test_idle_is_the_time_without_anything_to_do() -> None:
    stepped, client = SteppedEngine(torch_verifier(tiny_llama())), Client("a", PROMPT, SamplingParams(temperature=0.0))
    assert stepped.step([stretched(client, 2)]).idle_s > 0.0
    assert [stepped.step([]).idle_s for _ in range(2)] == [0.0, 0.0]
    assert stepped.idle
    assert stepped.step([VerifyCall(number=1, closings=(Closing("a", keep_cache=False),))]).idle_s > 0.0


def actor_over(engine: Failing) -> VerifierActor:
    """As Ray has it, but for loading a model."""
    actor = VerifierActor.__new__(VerifierActor)
    actor._begin(ThreadPoolExecutor(max_workers=1), engine)  # type: ignore[arg-type]  # noqa: SLF001
    return actor


def test_a_process_whose_device_is_gone_says_who_was_there_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.setattr("actors.verifier.actor._LAST_WORDS_S", 0.0)

    async def last_words() -> StepReply:
        engine = Failing()
        engine.errors = [RuntimeError("CUDA error: an illegal memory access was encountered")]
        actor, client = actor_over(engine), Client("a", PROMPT, SamplingParams(temperature=0.0))
        await actor.give(stretched(client, 9))
        reply = await anext(actor.steps())
        while not ended:  # noqa: ASYNC110 (by a thread)
            await asyncio.sleep(0.01)
        return reply

    reply = asyncio.run(within(_WAIT_S, last_words()))
    assert (reply.outcomes, reply.suspects, reply.faults) == ((), ("a",), ("device",))
    assert ended == [1]


def test_a_stream_brings_calls_and_replies_and_the_newest_coordinator_has_them(tmp_path: Path) -> None:
    async def streamed() -> None:
        actor, file = actor_over(Failing()), tmp_path / "s"
        server = await listen(file, actor._stream)  # noqa: SLF001
        assert server is not None
        replies = list[StepReply]()
        for session in range(2):
            stream = await connect(file)
            assert stream is not None
            steps, client = StepStream(stream), Client("a", PROMPT, SamplingParams(temperature=0.0))
            for call in (VerifyCall(number=1, session=session), replace(stretched(client, 0), session=session)):
                steps.give(call)  # in the order in which Ray may bring them
            async with aclosing(steps.replies()) as heard:
                replies.append(await anext(heard))
        assert [reply.session for reply in replies] == [0, 1]
        (first,), (second,) = (reply.outcomes for reply in replies)
        assert isinstance(second, Verified)
        assert first == replace(second, cached_tokens=0), "the second finds the prefix in memory"
        server.close()

    asyncio.run(within(_WAIT_S, streamed()))


def test_the_end_of_a_verifier_ends_its_stream(tmp_path: Path) -> None:
    async def streamed() -> list[StepReply]:
        async def left(stream: Stream) -> None:
            stream[1].transport.abort()

        server = await listen(tmp_path / "s", left)
        stream = await connect(tmp_path / "s")
        assert server is not None
        assert stream is not None
        steps = StepStream(stream)
        found = [reply async for reply in steps.replies()]
        steps.give(VerifyCall())  # to nobody
        server.close()
        return found

    assert not asyncio.run(within(_WAIT_S, streamed()))


def test_an_engine_that_stands_still_is_seen_beside_it() -> None:
    begun, may_end = threading.Event(), threading.Event()

    class Stuck(Failing):
        def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
            begun.set()
            assert may_end.wait(_WAIT_S)
            return super().verify(blocks, resolutions)

    async def seen() -> None:
        actor, client = actor_over(Stuck()), Client("a", PROMPT, SamplingParams(temperature=0.0))
        assert await actor.busy_s() == 0.0
        await actor.give(stretched(client, 0))
        assert await asyncio.to_thread(begun.wait, _WAIT_S)
        earlier = await actor.busy_s()
        assert await actor.busy_s() > earlier > 0.0, "nobody of the engine's had to answer that"
        may_end.set()
        assert (await anext(actor.steps())).outcomes
        while await actor.busy_s():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0)

    asyncio.run(within(_WAIT_S, seen()))


def test_openings_are_timed_apart_from_the_pass() -> None:
    """So that no cost model learns them, and none is taken for a slow step."""
    opening_s = 0.3

    class SlowToOpen(Failing):
        def open(self, request: OpenGeneration) -> None:
            time.sleep(opening_s)
            self._engine.open(request)

    stepped = SteppedEngine(SlowToOpen())  # type: ignore[arg-type]
    clients = [Client(name, PROMPT, SamplingParams(temperature=0.0)) for name in "abc"]
    call = VerifyCall(openings=tuple(map(Client.opening, clients)), blocks=tuple(map(Client.block, clients)))
    reply = stepped.step([call])
    assert len(reply.outcomes) == 3
    assert reply.opening_s >= 3 * opening_s
    assert reply.engine_s < opening_s
    assert pickle.loads(pickle.dumps(reply)).opening_s == reply.opening_s


def test_a_grammar_that_is_compiled_wakes_an_engine_that_had_nothing_else_to_do() -> None:
    opened = Opened()

    async def answered() -> StepReply:
        actor = actor_over(opened.engine)  # type: ignore[arg-type]
        client = Client("a", PROMPT, SamplingParams(temperature=0.0, grammar=TOY))
        await actor.give(VerifyCall(openings=(client.opening(),), blocks=(client.block(),)))
        steps = actor.steps()
        assert not (await anext(steps)).outcomes
        assert await actor.busy_s() == 0.0, "it does not stand still"
        opened.grammars.may_compile.set()
        return await anext(steps)

    (outcome,) = asyncio.run(within(_WAIT_S, answered())).outcomes
    assert isinstance(outcome, Verified)
