"""What one more API is: its requests are read as chats, its answers written from a chat's chunks or its document.

All of them have one path to the models; ``http.routes`` has a route for each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pydantic_core import to_json

from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import FinishReason
from serve_app.answers import ChatCompletionChunk, CompletionUsage
from serve_app.api.http_errors import ErrorAnswer, FieldError
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.fields.ignored import IgnoredFields
from serve_app.api.openai.parsing import parse_body
from serve_app.api.openai.writing.answer_parts import AnswerPart
from serve_app.api.service import RequestLimits
from serve_app.api.written import json_parts

FieldNames = Callable[[str], str]  # from the path of a chat's field to that of the request's own
ErrorWriter = Callable[[ErrorAnswer, str], Mapping[str, object]]  # body of an error, which may have the request's id


class AnswerWriter(Protocol):
    """Writes one answer in an API's own form."""

    stop_string: str | None  # that ended it; set before its last chunk, or the document

    def events(self, chunk: ChatCompletionChunk) -> Iterable[bytes]:
        """Server-sent events for a chat's chunk, from ``server_sent``; the last chunk has no choices, but the usage."""
        ...

    def failure(self, answer: ErrorAnswer) -> Iterable[bytes]:
        """Events that end a stream for an error, which may come before any chunk."""
        ...

    def document(
        self, parts: Sequence[AnswerPart], reason: FinishReason, usage: CompletionUsage, extension: Mapping[str, object]
    ) -> Mapping[str, object]:
        """The whole answer; ``extension``: what a chat's answer, or its choice, has beyond OpenAI's fields."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """What is known of an answer before it is made."""

    id: str
    model: str  # the served name
    created_s: int  # Unix time
    prompt_tokens: int
    fingerprint: str = ""  # of what outputs depend on; "": not told


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request as a chat or a completion, and how its answer is written; no ``writer``: as these are."""

    body: CompletionBody | ChatBody
    own_field: FieldNames = str
    writer: Callable[[AnswerFacts], AnswerWriter] | None = None


@dataclass(frozen=True, slots=True)
class ApiForm:
    """One API: ``POST`` of ``path``. A writer's chats have ``n`` 1, and a stream's ``include_usage``.

    Attributes:
        id_prefix: of its answers' ids.
        read: reads a body, in any thread; errors are those of ``parse_body``, with the API's own names of fields.
        error_body: an error in the API's form, which may have the request's id; also of paths below its own.
    """

    path: str
    id_prefix: str
    read: Callable[[bytes, RequestLimits, IgnoredFields], ReadRequest]
    error_body: ErrorWriter


def openai_error_body(answer: ErrorAnswer, _request_id: str) -> Mapping[str, object]:
    return {**answer.body}


def _read(
    kind: type[CompletionBody | ChatBody], content: bytes, limits: RequestLimits, ignored: IgnoredFields
) -> ReadRequest:
    return ReadRequest(parse_body(content, kind, limits, ignored))


CHATS = ApiForm("/v1/chat/completions", "chatcmpl-", partial(_read, ChatBody), openai_error_body)
COMPLETIONS = ApiForm("/v1/completions", "cmpl-", partial(_read, CompletionBody), openai_error_body)


def renamed_head(path: str, names: Iterable[str]) -> str | None:
    """The first of a chat's fields that a path is, or begins with."""
    return next((name for name in names if path == name or path.startswith((f"{name}.", f"{name}["))), None)


@contextmanager
def named_by(own_field: FieldNames) -> Iterator[None]:
    """Give errors about a chat's fields the names of the request's own."""
    try:
        yield
    except (FieldError, ParameterError) as error:
        own = own_field(error.field)
        error.args = (str(error).replace(error.field, own, 1),)
        error.field = own
        raise


def server_sent(name: str, content: Mapping[str, object]) -> bytes:
    """An event with a name, encoded as a chat's texts are."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(content))


def server_sent_whole(name: str, content: dict[str, object]) -> bytes:
    """The same of one with ``Written`` lists in it."""
    return f"event: {name}\ndata: {''.join(json_parts(content))}\n\n".encode()
