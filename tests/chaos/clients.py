"""Clients that stream over HTTP, read at their own pace, and note what they were told."""

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx

from tests.chaos.agents.answers import Answer, Part, code_of
from tests.chaos.agents.asks import TEMPERATURE, asked
from tests.chaos.planted.sitecustomize import POISON_SEED
from tests.chaos.schedules import Reader, Stream, StreamKind
from tests.chaos.told import End, Piece, Told
from tests.cluster.served import MODEL, PLAIN

SILENT_S = 240.0  # longer than any process may take to come back
_CONNECT_S = 20.0
_SLOW_PAUSE_S = 0.15  # before each event
_SLOW_BUFFER_BYTES = 2048
_UPLOADS = ("wisv_full", "wisv_selective")


def body_of(stream: Stream, prompt: Sequence[int], stop: str | None, form: str = "") -> dict[str, object]:
    """The request; ``form``: of the service's tool calls, for agents."""
    options: dict[str, object] = {"slo_class": list(stream.slo_classes)} if stream.slo_classes else {}
    if stream.agent is not None:
        return {**asked(stream.agent, stream.prompt, stream.tokens, stream.seed, form), "outrider": options}
    if stream.kind is StreamKind.SEMANTIC:
        options |= {"verification": "semantic", "protocol": _UPLOADS[stream.number % len(_UPLOADS)]}
    sampled = stream.kind is StreamKind.SEEDED
    seed = POISON_SEED if stream.kind is StreamKind.POISONED else stream.seed
    return {
        "model": MODEL,
        "prompt": list(prompt),
        "max_tokens": stream.tokens,
        "temperature": TEMPERATURE if sampled else 0.0,
        "top_p": 1.0,
        "seed": seed,
        "n": stream.n,
        "ignore_eos": True,
        "logprobs": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "outrider": options,
        **({} if stop is None else {"stop": stop}),
    }


def told_by(url: str, stream: Stream, body: dict[str, object], on_tokens: Callable[[int], None]) -> Told:
    """Stream one request to its end, whatever that is; ``on_tokens`` is told how many tokens each event brings."""
    log = _Log(on_tokens) if stream.agent is None else _AgentLog(on_tokens, Answer(stream.agent.api))
    path = "/v1/completions" if stream.agent is None else stream.agent.api
    buffer = [(socket.SOL_SOCKET, socket.SO_RCVBUF, _SLOW_BUFFER_BYTES)] if stream.reader is Reader.SLOW else None
    timeout = httpx.Timeout(SILENT_S, connect=_CONNECT_S)
    try:
        with (
            httpx.Client(transport=httpx.HTTPTransport(PLAIN, socket_options=buffer), timeout=timeout) as client,
            client.stream("POST", f"{url}{path}", json=body) as response,
        ):
            if response.status_code != httpx.codes.OK:
                response.read()
                return log.told(End.REFUSED, response.status_code, response.text)
            if not body["stream"]:
                log.take_whole(response.read())
            for line in filter(None, response.iter_lines() if body["stream"] else ()):
                if stream.reader is Reader.SLOW:
                    time.sleep(_SLOW_PAUSE_S)
                failed = log.take(line)
                if failed:
                    return log.told(End.FAILED, response.status_code, line.removeprefix("data: "))
                if stream.reader is Reader.HANGS_UP and log.events >= stream.hangs_up_after:
                    return log.told(End.HUNG_UP, response.status_code)
    except (_MalformedError, httpx.TransportError, OSError) as error:
        return log.told(_end_by(error), detail=repr(error))
    return log.told(End.WHOLE if log.done else End.BROKEN, httpx.codes.OK)


def _end_by(error: Exception) -> End:
    if isinstance(error, _MalformedError):
        return End.MALFORMED
    return End.SILENT if isinstance(error, httpx.ReadTimeout) else End.BROKEN


class _MalformedError(Exception):
    """An answer that cannot be read as its API's."""


@contextmanager
def _well_formed(data: str | bytes) -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _MalformedError(f"{error!r} in {data[:160]!r}") from error


class _Log:
    """What has come so far."""

    def __init__(self, on_tokens: Callable[[int], None]) -> None:
        self._on_tokens, self._began_at_s = on_tokens, time.monotonic()
        self._pieces: list[Piece] = []
        self._usage: dict[str, Any] = {}
        self.events = self._behind = 0
        self.done = False

    def take(self, line: str) -> bool:
        """Take an event; whether it is an error."""
        if not line.startswith("data: "):
            return False  # the event's name, or a comment, which keeps a connection alive
        self._behind += self.done
        self.events += 1
        data = line.removeprefix("data: ")
        with _well_formed(data):
            return self._read(data)

    def take_whole(self, content: bytes) -> None:
        """Take an answer that is not streamed."""
        raise NotImplementedError

    def _read(self, data: str) -> bool:
        if data == "[DONE]":
            self.done = True
            return False
        content = json.loads(data)
        if "error" in content:
            return True
        self._usage = content.get("usage") or self._usage
        tokens = 0
        for choice in content["choices"]:
            names = tuple((choice.get("logprobs") or {}).get("tokens") or ())
            tokens += len(names)
            finish = choice.get("finish_reason")
            self._pieces.append(Piece(time.monotonic(), choice["index"], choice["text"], names, finish))
        if tokens:
            self._on_tokens(tokens)
        return False

    def told(self, end: End, status: int | None = None, detail: str = "") -> Told:
        """All of it."""
        return Told(
            end=end,
            began_at_s=self._began_at_s,
            ended_at_s=time.monotonic(),
            pieces=tuple(self._pieces),
            status=status,
            code=self._code(detail),
            detail=detail,
            usage=self._usage,
            behind=self._behind,
        )

    def _code(self, detail: str) -> str | None:
        """Of an error in OpenAI's form."""
        try:
            error = json.loads(detail)["error"]
            return str(error["code"]) if {"message", "type", "param", "code"} <= error.keys() else None
        except (ValueError, LookupError, TypeError, AttributeError):
            return None


class _AgentLog(_Log):
    """Of an agent's request; names of tokens are their ids."""

    def __init__(self, on_tokens: Callable[[int], None], answer: Answer) -> None:
        super().__init__(on_tokens)
        self._answer = answer

    def take_whole(self, content: bytes) -> None:
        with _well_formed(content):
            self._add(self._answer.whole(json.loads(content)))
        self.done = True

    def _read(self, data: str) -> bool:
        part = self._answer.event(data)
        self._add(part)
        self.done |= part.done
        return part.failed

    def _add(self, part: Part) -> None:
        if part.text or part.names or part.finish:
            self._pieces.append(Piece(time.monotonic(), 0, part.text, part.names, part.finish))
            self._on_tokens(len(part.names) or bool(part.text))  # an event of Messages has a token or more
        self._usage = self._answer.usage

    def _code(self, detail: str) -> str | None:
        return code_of(self._answer.api, detail)
