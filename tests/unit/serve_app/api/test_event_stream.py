"""A stream that has nothing to say says so now and then, and never between the parts of what it says."""

import asyncio
from dataclasses import replace

import pytest
from starlette.types import Message

from serve_app.api.http.event_stream import EventStream
from tests.unit.serve_app.api.asking import COMPLETION, post
from tests.unit.serve_app.api.text_service import SETTINGS, TextService
from tests.unit.virtual_clock import now_s, on_loop

QUIET_S = 15.0


class Client:
    """Takes so long for each part."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.got: list[tuple[float, bytes]] = []
        self.heads = self.ends = 0

    async def take(self, message: Message) -> None:
        began_at_s = now_s()
        await asyncio.sleep(self.takes_s)
        if message["type"] == "http.response.start":
            self.heads += 1
            return
        assert self.heads == 1
        assert self.ends == 0
        self.ends += not message["more_body"]
        self.got.append((began_at_s, message["body"]))

    def comments_at_s(self) -> list[float]:
        return [at_s for at_s, body in self.got if body == b": keep-alive\n\n"]


@on_loop
async def test_comments_come_in_silence_alone_and_begin_the_response() -> None:
    client = Client()
    stream = EventStream(client.take, QUIET_S)
    await asyncio.sleep(14.0)
    assert not stream.begun
    await asyncio.sleep(17.0)  # 31 s
    assert (stream.begun, client.comments_at_s()) == (True, [15.0, 30.0])
    for _ in range(5):
        await stream.say(b"data: x\n\n")
        await asyncio.sleep(10.0)
    assert client.comments_at_s() == [15.0, 30.0], "it had something to say"
    await asyncio.sleep(10.0)  # 91 s, 20 s behind the last event
    assert client.comments_at_s() == [15.0, 30.0, 86.0]
    await stream.say(b"data: [DONE]\n\n", last=True)
    stream.close()
    await asyncio.sleep(100.0)
    assert (len(client.got), client.ends) == (9, 1)


@on_loop
async def test_without_a_time_there_are_none() -> None:
    client = Client()
    stream = EventStream(client.take, None)
    await asyncio.sleep(1000.0)
    await stream.say(b"data: x\n\n", last=True)
    stream.close()
    assert client.got == [(1000.0, b"data: x\n\n")]


@on_loop
async def test_a_slow_client_gets_one_part_after_the_other() -> None:
    client = Client(takes_s=40.0)
    stream = EventStream(client.take, QUIET_S)
    await asyncio.sleep(20.0)  # a comment's head is on its way
    for number in range(3):
        await stream.say(b"%d" % number)
    await asyncio.sleep(1.0)
    stream.close()
    bodies = [body for _, body in client.got]
    assert [body for body in bodies if body.isdigit()] == [b"0", b"1", b"2"]
    assert client.heads == 1
    assert len(bodies) <= 5, "comments do not pile up"


@pytest.mark.parametrize("trouble_at", [0, 6])
def test_a_hanging_response_is_kept_alive_until_its_deadline(trouble_at: int) -> None:
    """Its status is sent by then, so that the error is an event."""
    settings = replace(
        SETTINGS, http=replace(SETTINGS.http, keep_alive_s=0.05), first_chunk_deadline_s=0.5, next_chunk_deadline_s=0.5
    )
    service = TextService(settings=settings, trouble_at=trouble_at)
    response = post(service, "/v1/completions", COMPLETION | {"stream": True})
    assert response.status_code == 200
    *events, end = response.text.split("\n\n")[:-1]
    assert events.count(": keep-alive") >= 1
    assert sum(event.startswith("data: {") for event in events) == trouble_at // 3
    assert '"code":"timeout"' in end


def test_a_response_that_is_not_streamed_has_no_comments() -> None:
    settings = replace(SETTINGS, http=replace(SETTINGS.http, keep_alive_s=0.01), first_chunk_deadline_s=0.1)
    response = post(TextService(settings=settings, trouble_at=0), "/v1/completions", COMPLETION)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
