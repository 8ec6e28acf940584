"""An answer that is none of its API is a verdict on its stream, and ends no campaign."""

from http.server import BaseHTTPRequestHandler

import pytest

from tests.chaos.agents.asks import Agent, Api, Ask
from tests.chaos.clients import body_of, told_by
from tests.chaos.judging import judged_stream
from tests.chaos.schedules import Stream, StreamKind
from tests.chaos.told import End
from tests.http_server import http_server

CHAT = 'data: {"choices": [{"delta": {"content": "He"}, "finish_reason": null, "token_ids": [7]}]}\n\n'
WHOLE_CHAT = (
    b'{"choices": [{"message": {"content": "He"}, "finish_reason": "stop", "token_ids": [7]}],'
    b' "usage": {"prompt_tokens": 1, "completion_tokens": 1}}'
)


def answered(agent: Agent | None, content: bytes) -> list[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    stream = Stream(0, StreamKind.GREEDY if agent is None else StreamKind.AGENT, 0, 4, agent=agent)
    with http_server(Handler) as url:
        told = told_by(url, stream, body_of(stream, [1], None, "hermes"), lambda _: None)
    assert told.end in (End.MALFORMED, End.WHOLE)
    return judged_stream(stream, told, (), (), ())


@pytest.mark.parametrize(
    ("agent", "content"),
    [
        (None, b'data: {"choices": [{"text"\n\n'),
        (None, b'data: {"event": "unknown"}\n\n'),
        *(
            (Agent(api, Ask.TEXT, stream=False), content)
            for api in Api
            for content in (b'{"error": {"code": "internal_error"}}', WHOLE_CHAT[:-5], b"", b"[]", b"\xff")
        ),
        *(
            (Agent(api, Ask.TEXT, stream=True), content)
            for api in Api
            for content in (b'data: {"typ', b'data: {"event": "unknown"}\n\n', b"data: 5\n\n")
        ),
        (Agent(Api.CHATS, Ask.TEXT, stream=True), f"{CHAT}{CHAT[:-20]}\n\n".encode()),
        (Agent(Api.RESPONSES, Ask.TEXT, stream=False), b'{"output": [], "usage": {}, "status": "failed"}'),
    ],
)
def test_what_cannot_be_read_is_judged(agent: Agent | None, content: bytes) -> None:
    (wrong,) = answered(agent, content)
    assert "ended malformed" in wrong


def test_what_can_be_is_not_malformed() -> None:
    assert answered(Agent(Api.CHATS, Ask.TEXT, stream=False), WHOLE_CHAT) == []
    assert answered(Agent(Api.CHATS, Ask.TEXT, stream=True), f"{CHAT}data: [DONE]\n\n".encode()) == [
        "stream 0 (agent): choice 0 ended 0 times",
        "stream 0 (agent): usage counts None tokens, and 1 came",
    ]
