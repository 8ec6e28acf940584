"""An ingress between a recorded coordinator and clients that discard their responses; no sockets."""

import asyncio
import json
import pickle
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast

from ray.serve.handle import DeploymentHandle
from starlette.types import Message as AsgiMessage

from actors.messages import StepReply, VerifyCall
from actors.start import started
from actors.verifier.actor import SteppedEngine
from lab.bench.bookkeeping.figures import Flow
from lab.bench.bookkeeping.sleeping import SleepingEngine, generations_over, make, own_tokens_per_s, step_s
from outrider.config.access import HttpConfig
from outrider.config.schema import ModelConfig
from outrider.contracts.requests import GenerationChunk, GenerationId, GenerationRequest
from outrider.models.folders import EMBEDDED
from outrider.models.tokenizer import load_tokenizer
from serve_app.api.http.routes import make_api
from serve_app.api.service import RequestLimits, ServiceSettings
from serve_app.coordination.generations.outlets import Message, Piece
from serve_app.coordination.listener import Listener
from serve_app.ingress.ingress import CoordinatorService


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


_NAME, _MODEL = "recorded", "sleeping"
_HTTP = HttpConfig(host="0.0.0.0")  # noqa: S104 (whatever name a request is for)
_ALONE_STEPS, _IDLE_S = 100, 3600.0


class _Call:
    """What a call of a streaming handle returns."""

    def __init__(self, items: AsyncIterator[object]) -> None:
        self._items = items

    def __aiter__(self) -> AsyncIterator[object]:
        return self._items

    def cancel(self) -> None:
        """Do nothing: the recording goes on."""


class _Method:
    def __init__(self, call: Callable[..., AsyncGenerator[object]]) -> None:
        self._call = call

    def remote(self, *args: object) -> _Call:
        return _Call(self._call(*args))


class _Read:
    """Ignores the ingress's reports of what it read: the recording goes on."""

    async def remote(self, listener: Listener, read: Mapping[GenerationId, int]) -> None: ...


class _Coordinator:
    """Deployment handle that plays a recording, at the engine's pace, once all responses were requested.

    Attributes:
        began_s: start of playing, by ``perf_counter``; ``began_cpu_s``: the same by ``process_time``.
    """

    def __init__(self, sequences: int, tokens: int) -> None:
        self.generate, self.chunks, self.read = _Method(self._generate), _Method(self._chunks), _Read()
        self._sequences, self._tokens = sequences, tokens
        self._names: list[GenerationId] = []
        self._all_asked = asyncio.Event()
        self.began_s = self.began_cpu_s = 0.0

    def options(self, **options: bool) -> "_Coordinator":  # noqa: ARG002 (a handle's)
        return self

    async def _generate(
        self,
        record: GenerationRequest,
        ingress: str,  # noqa: ARG002
        lost: tuple[str, ...],  # noqa: ARG002
    ) -> AsyncGenerator[str]:
        yield _NAME
        self._names.append(record.generation)
        if len(self._names) == self._sequences:
            self._all_asked.set()
        await asyncio.sleep(_IDLE_S)

    async def _chunks(self, listener: Listener) -> AsyncGenerator[Message]:  # noqa: ARG002
        await self._all_asked.wait()
        self._all_asked.clear()
        messages, pause_s = await recorded(self._names, self._tokens), step_s(self._sequences)
        self.began_s, self.began_cpu_s = time.perf_counter(), time.process_time()
        for step, message in enumerate(messages, start=1):
            await asyncio.sleep(self.began_s + step * pause_s - time.perf_counter())
            yield pickle.loads(message)  # noqa: S301 (its own)
        await asyncio.sleep(_IDLE_S)


class _Client:
    """Requests a response and discards it."""

    def __init__(self, body: dict[str, object]) -> None:
        self._unread = [{"type": "http.request", "body": json.dumps(body).encode()}]
        self.status, self.sent_bytes = 0, 0

    async def receive(self) -> AsgiMessage:
        """Return the request, then wait: the client stays connected."""
        if self._unread:
            return self._unread.pop()
        await asyncio.sleep(_IDLE_S)
        return {"type": "http.disconnect"}

    async def send(self, message: AsgiMessage) -> None:
        self.status = message.get("status", self.status)
        self.sent_bytes += len(message.get("body", b""))


def measured(sequences: int, tokens: int, repeats: int) -> list[list[Flow]]:
    """Run ``sequences`` chats of ``tokens`` tokens at once: streamed ones, then whole ones."""
    return [[asyncio.run(_run(sequences, tokens, stream=stream)) for _ in range(repeats)] for stream in (True, False)]


async def _run(sequences: int, tokens: int, *, stream: bool) -> Flow:
    alone = own_tokens_per_s(sequences, _ALONE_STEPS)
    coordinator = _Coordinator(sequences, tokens)
    api = make_api(_service(coordinator, tokens))
    started()
    said = {"role": "user", "content": "Tell me everything, and at length."}
    body: dict[str, object] = {"model": _MODEL, "messages": [said], "max_tokens": tokens, "stream": stream}
    clients = [_Client(body) for _ in range(sequences)]
    await asyncio.gather(*(api(_scope(), client.receive, client.send) for client in clients))
    took_s, cpu_s = time.perf_counter() - coordinator.began_s, time.process_time() - coordinator.began_cpu_s
    assert all(client.status == HTTPStatus.OK and client.sent_bytes > tokens for client in clients), "all are answered"
    made = sequences * tokens
    return Flow(f"ingress, {'streamed' if stream else 'whole'}", made / took_s, alone, cpu_s / made)


def _service(coordinator: _Coordinator, tokens: int) -> CoordinatorService:
    tokenizer = load_tokenizer(EMBEDDED)
    limits = RequestLimits(_MODEL, 1 << 20, tokens, len(tokenizer), 0, 1 << 20)
    settings = ServiceSettings(ModelConfig(EMBEDDED, _MODEL), tokens, 0, _HTTP, max_failures=0)
    return CoordinatorService(cast("DeploymentHandle[Any]", coordinator), settings, limits, tokenizer)


def _scope() -> dict[str, object]:
    path = "/v1/chat/completions"
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"outrider"), (b"content-type", b"application/json")],
        "server": ("outrider", 80),
        "client": ("client", 1),
    }
