import asyncio
import json
from functools import partial

import httpx
from prometheus_client import CollectorRegistry

from lab.bench.load.client import Endpoint
from lab.bench.load.report import COMPLETED
from lab.bench.routing.conversations import Conversation
from lab.bench.routing.figures import Work
from lab.bench.routing.service import conversed, difference, responses_resumed
from serve_app.metrics import RESUMED, Sink, in_prometheus, page_of

PLANNED = [[Conversation("s", ("q1", "q2")), Conversation("t", ("q3",))], [Conversation("s", ("broken", "q4"))]]


def test_answers_are_part_of_what_is_sent_next_and_a_conversation_ends_with_a_failure() -> None:
    asked = list[list[str]]()

    def answered(request: httpx.Request) -> httpx.Response:
        said = [message["content"] for message in json.loads(request.content)["messages"]]
        asked.append(said)
        if said[-1] == "broken":
            return httpx.Response(503)
        parts = [{"choices": [{"delta": {"content": text}}]} for text in ("to ", said[-1])]
        events = "".join(f"data: {json.dumps(part)}\n\n" for part in parts)
        return httpx.Response(200, text=f"{events}data: [DONE]\n\n")

    async def once() -> list[str]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answered), base_url="http://small") as client:
            return [one.outcome for one in await conversed(Endpoint(client, "small", True, 60.0), PLANNED, 8)]

    assert asyncio.run(once()) == [COMPLETED] * 3 + ["http_503"]
    assert sorted(asked) == [["s", "broken"], ["s", "q1"], ["s", "q1", "to q1", "q2"], ["t", "q3"]]


def test_work_is_what_was_done_in_between() -> None:
    before, after = {"a": Work(3, 1.0)}, {"a": Work(5, 1.5), "b": Work(2, 0.5)}
    assert difference(before, after) == {"a": Work(2, 0.5), "b": Work(2, 0.5)}


def test_resumed_responses_are_read_off_the_ingress_s_own_page() -> None:
    registry = CollectorRegistry()
    sink, found = Sink(partial(in_prometheus, registry)), list[int]()
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=page_of(registry, "one")))

    async def read() -> None:
        async with httpx.AsyncClient(transport=transport, base_url="http://small") as client:
            found.append(await responses_resumed(client))

    asyncio.run(read())
    sink.record(RESUMED, 2.0)
    asyncio.run(read())
    assert found == [0, 2]
