"""What a service answers agents while nothing is done to it and nothing is drafted: what it must answer always."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from outrider.config.schema import ToolFormatName
from tests.chaos.agents.answers import with_objects
from tests.chaos.agents.asks import Agent, Api, Ask
from tests.chaos.agents.reading import read_hermes
from tests.chaos.clients import body_of, told_by
from tests.chaos.references import Alone
from tests.chaos.schedules import Reader, Stream
from tests.chaos.told import End, Expected
from tests.cluster.reference import shown

_AT_A_TIME = 8
_READ = (Ask.TEXT, Ask.CALL, Ask.FORMAT, Ask.THOUGHT)  # of several calls the last one may be cut
_ALONE = {"window": 0, "lookup": 0}
_Request = tuple[Agent, int, int, int]


class Undisturbed:
    """Answers of one service, each asked for once and whole, of which the target alone says what it can say.

    Messages must say what Responses does. Chats have an answer of their own, as they tell no order of its parts.
    """

    def __init__(self, url: str, form: ToolFormatName, alone: Alone) -> None:
        self._url, self._form, self._alone = url, form, alone
        self._known: dict[_Request, Expected] = {}

    def expected(self, streams: Sequence[Stream]) -> dict[int, tuple[Expected, ...]]:
        """Of each of these streams; Messages tells no token ids, and whole ones no arguments verbatim."""
        unknown = list(
            {request: stream for stream in streams if (request := _request(stream)) not in self._known}.items()
        )
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            answers = list(pool.map(self._asked, (stream for _, stream in unknown)))
        for (request, stream), answer in zip(unknown, answers, strict=True):
            self._known[request] = self._read_again(stream, answer)
        return {stream.number: (self._of(stream),) for stream in streams}

    def _read_again(self, stream: Stream, answer: Expected) -> Expected:
        """With the target's own tokens for plain text, and what another reader than the service's makes of them."""
        assert stream.agent is not None, "only agents are asked"
        own = self._alone.agent(stream, self._form)
        ids = list(map(int, answer.names)) if own is None else own
        text = None
        if self._form == "hermes" and stream.agent.ask in _READ:
            text = read_hermes(shown(self._alone.target, ids))
        return replace(answer, names=tuple(map(str, ids)), text=answer.text if text is None else text)

    def _of(self, stream: Stream) -> Expected:
        own = self._known[_request(stream)]
        assert stream.agent is not None, "only agents are expected to say this"
        if stream.agent.api is not Api.MESSAGES:
            return own
        return replace(own, names=(), text=own.text if stream.agent.stream else with_objects(own.text))

    def _asked(self, stream: Stream) -> Expected:
        alone = replace(stream, agent=_request(stream)[0], reader=Reader.STEADY, slo_classes=())
        body = {**body_of(alone, (), None, self._form), "outrider": _ALONE}
        told = told_by(self._url, alone, body, lambda _: None)
        assert told.end is End.WHOLE, f"needs an answer, found {told.end} {told.status}: {told.detail:.300}"
        return Expected(told.names(0), told.text(0), told.finishes(0)[0], told.usage)


def _request(stream: Stream) -> _Request:
    assert stream.agent is not None, "only agents are asked"
    chat = stream.agent.api is Api.CHATS
    agent = replace(stream.agent, api=Api.CHATS if chat else Api.RESPONSES, stream=False)
    return agent, stream.prompt, stream.tokens, stream.seed
