"""Anthropic's Messages API as one of the APIs of this service."""

from collections.abc import Mapping
from dataclasses import dataclass

from serve_app.api.api_forms import ReadRequest
from serve_app.api.http_errors import ErrorAnswer
from serve_app.api.messages.reading import read_messages
from serve_app.api.messages.writing import failure_of
from serve_app.api.openai.fields.ignored import IgnoredFields
from serve_app.api.service import RequestLimits


@dataclass(frozen=True, slots=True)
class MessagesForm:
    path: str = "/v1/messages"
    id_prefix: str = "msg_"

    def read(self, content: bytes, limits: RequestLimits, ignored: IgnoredFields) -> ReadRequest:
        return read_messages(content, limits, ignored)

    def error_body(self, answer: ErrorAnswer, request_id: str) -> Mapping[str, object]:
        return {**failure_of(answer, request_id)}
