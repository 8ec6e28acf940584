"""Recording of a coordinator's messages to an ingress: one per verifier step, pickled."""

import asyncio
import pickle
from collections.abc import AsyncGenerator, Callable, Sequence

from actors.messages import StepReply, VerifyCall
from actors.verifier.actor import SteppedEngine
from lab.bench.bookkeeping.responses import generations_over, make
from lab.bench.bookkeeping.sleeping import SleepingEngine
from outrider.contracts.requests import GenerationChunk, GenerationId
from serve_app.coordination.generations.outlets import Piece


class WakefulVerifier:
    """A verifier in this process that steps as fast as its replies are read."""

    is_up = True

    def __init__(self, on_step: Callable[[], None]) -> None:
        """``on_step`` is called before each step."""
        self._stepped = SteppedEngine(SleepingEngine(wakeful=True))
        self._given: list[VerifyCall] = []
        self._some = asyncio.Event()
        self._on_step = on_step

    def give(self, call: VerifyCall) -> None:
        self._given.append(call)
        self._some.set()

    async def steps(self) -> AsyncGenerator[StepReply]:
        while True:
            if not self._given and self._stepped.idle:
                self._some.clear()
                await self._some.wait()
            given, self._given = self._given, []
            self._on_step()
            yield self._stepped.step(given)
            await asyncio.sleep(0)  # lets other tasks process them

    def kill_hung(self) -> None:
        raise AssertionError("a verifier in this process hangs")

    async def wait_until_up(self) -> None: ...


async def recorded(names: Sequence[GenerationId], tokens: int) -> list[bytes]:
    """Record the messages (``outlets.Message``) of concurrent responses of ``tokens`` tokens; pickled."""
    messages, gathered = list[bytes](), list[tuple[GenerationId, Piece]]()

    def put(name: GenerationId, chunk: GenerationChunk) -> None:
        gathered.append((name, chunk))

    def cut() -> None:
        if gathered:
            messages.append(pickle.dumps(tuple(gathered), pickle.HIGHEST_PROTOCOL))
            gathered.clear()

    generations = generations_over(WakefulVerifier(cut), len(names))
    await make(generations, names, tokens, put)
    cut()
    generations.batcher.stop()
    return messages
