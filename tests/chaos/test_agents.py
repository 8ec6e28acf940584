"""What agents are told is read alike from each API, whole and streamed, and all of their requests are understood."""

import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from outrider.config.schema import ToolFormatName
from outrider.models.loading import LoadedModel
from tests.chaos.agents import undisturbed
from tests.chaos.agents.answers import Answer, code_of, with_objects
from tests.chaos.agents.asks import QUESTIONS, Agent, Api, Ask, agents_of, asked, half_of
from tests.chaos.agents.models import FORMS, prompt_of
from tests.chaos.agents.reading import read_hermes
from tests.chaos.judging import judged_stream
from tests.chaos.references import Alone
from tests.chaos.schedules import FaultKind, Schedule, Stream, StreamKind, Victim, schedule_of_agents
from tests.chaos.told import End, Piece, Told
from tests.unit.serve_app.api.asking import post
from tests.unit.serve_app.api.declared import events_in
from tests.unit.serve_app.api.reasoning.model_families import limits_for, tokenizer_of
from tests.unit.serve_app.api.reasoning.test_scores import dialogues
from tests.unit.serve_app.api.test_tools import hermes
from tests.unit.serve_app.api.text_service import LIMITS, MODEL, TOKENIZER, TextService

ARGUMENTS = '{"place": "the sea",  "days":3}'
CALL = hermes("plan", ARGUMENTS)
SAID = f"<think>Hm.</think>First. {CALL}\n{CALL}"
HEAD = "\n[call of plan]\n"
TOLD = f"\n[thought]\nHm.\n[said]\nFirst. {HEAD}{ARGUMENTS}{HEAD}{ARGUMENTS}"


def service_of(form: ToolFormatName, text: str) -> TextService:
    family = FORMS[form]
    if not family:
        limits = replace(LIMITS, tool_format=form, max_context_tokens=4096, max_output_tokens=3000)
        return TextService(limits=limits, texts=(text,))
    return TextService(limits=limits_for(family, form), tokenizer=tokenizer_of(family), texts=(text,))


def told(
    agent: Agent, form: ToolFormatName, text: str = SAID, **fields: Any
) -> tuple[str, list[str], list[str], dict[str, int]]:
    body = asked(agent, 0, 400, 0, form) | {"model": MODEL} | fields
    response, answer = post(service_of(form, text), agent.api, body), Answer(agent.api)
    assert response.status_code == 200, response.text
    parts = (
        [answer.event(data) for data in events_in(response.text)] if agent.stream else [answer.whole(response.json())]
    )
    assert not any(part.failed for part in parts)
    assert [part.done for part in parts if agent.stream][-1:] == [True] * agent.stream
    names = [name for part in parts for name in part.names]
    return "".join(part.text for part in parts), names, [part.finish for part in parts if part.finish], answer.usage


def test_all_apis_tell_the_same_whole_and_streamed() -> None:
    chat = told(Agent(Api.CHATS, Ask.THOUGHT, stream=False), "hermes", tools=[])
    assert chat[0] == TOLD.partition("\n[call")[0] + CALL + "\n" + CALL, "without tools"
    agents = [Agent(api, Ask.TEXT, stream) for api in Api for stream in (False, True)]
    text, names, finish, usage = told(agents[0], "hermes", chat_template_kwargs={})
    assert (text, finish) == (TOLD, ["length"]), "the service under test always ends so"
    assert usage["completion_tokens"] == len(names)
    assert usage["reasoning_tokens"] > 0
    thinks: dict[Api, Any] = {Api.CHATS: {"chat_template_kwargs": {}}, Api.RESPONSES: {"reasoning": {}}}
    for agent in agents:
        own = thinks.get(agent.api, {"thinking": {"type": "enabled"}})
        found = told(agent, "hermes", **own)
        assert found == (as_told(agent, text), [] if agent.api is Api.MESSAGES else names, finish, usage), agent


def as_told(agent: Agent, text: str) -> str:
    return with_objects(text) if agent.api is Api.MESSAGES and not agent.stream else text


@pytest.mark.parametrize(
    ("arguments", "alike"),
    [
        ('{"place":"the sea","days":3}', True),
        (' {"place": "the\\u0020sea",\n"days": 3}\n', True),
        ('{"place": "thesea", "days": 3}', False),
        ('{"place": "the  sea", "days": 3}', False),
        ('{"place": "the sea", "days": 3.0}', False),
        ('{"place": "the sea", "days": 3', False),
    ],
)
def test_blanks_within_strings_of_arguments_are_not_lost(arguments: str, alike: bool) -> None:
    own, other = with_objects(f"{HEAD}{ARGUMENTS}"), with_objects(f"{HEAD}{arguments}")
    assert (own == other) is alike
    assert with_objects(f"\n[said]\nMy  {{}}{HEAD}{arguments}{HEAD}{ARGUMENTS}") == f"\n[said]\nMy  {{}}{other}{own}"
    call = {"function": {"arguments": arguments}}
    events: dict[Api, Any] = {
        Api.CHATS: {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": None}]},
        Api.RESPONSES: {"type": "response.function_call_arguments.delta", "delta": arguments},
        Api.MESSAGES: {"type": "content_block_delta", "delta": {"partial_json": arguments}},
    }
    for api, event in events.items():
        assert Answer(api).event(json.dumps(event)).text == arguments, "verbatim"


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (Ask.TEXT, "Hello  there,\n you."),
        (Ask.CALL, CALL),
        (Ask.FORMAT, ARGUMENTS),
        (Ask.THOUGHT, "<think>so it  is</think>and so"),
        (Ask.THOUGHT, "<think> so it is </think> and so "),
    ],
)
def test_another_reader_of_hermes_says_the_same(ask: Ask, text: str) -> None:
    for api, stream in product(Api, (True, False)):
        agent = Agent(api, ask, stream)
        assert told(agent, "hermes", text)[0] == as_told(agent, read_hermes(text) or ""), agent


def test_another_reader_of_hermes_knows_what_it_does_not() -> None:
    assert read_hermes(f"Well. {CALL}") == f"\n[said]\nWell. {HEAD}{ARGUMENTS}"
    assert read_hermes(CALL[:-3]) is None


@pytest.mark.parametrize("form", FORMS)
def test_prompts_of_the_target_alone_are_the_service_s(form: ToolFormatName) -> None:
    service, tokenizer = service_of(form, "Hello"), tokenizer_of(FORMS[form]) if FORMS[form] else TOKENIZER
    for api, question in product((Api.CHATS, Api.RESPONSES), range(len(QUESTIONS))):
        body = asked(Agent(api, Ask.TEXT, stream=False), question, 40, 0, form) | {"model": MODEL}
        own = prompt_of(tokenizer, form, question)
        assert own is None or post(service, api, body).json()["prompt_token_ids"] == own


class Unable:
    """A target alone whose plain text is of these tokens."""

    target = cast("LoadedModel", SimpleNamespace(tokenizer=TOKENIZER))

    def agent(self, stream: Stream, _: ToolFormatName) -> list[int] | None:
        return TOKENIZER.encode("The sea") if stream.agent and stream.agent.ask is Ask.TEXT else None


def test_a_service_that_is_always_wrong_is_not_its_own_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    call = TOKENIZER.encode(CALL)
    lost = Told(End.WHOLE, 0.0, 1.0, (Piece(0.5, 0, f"{HEAD}lost", tuple(map(str, call)), "stop"),))
    monkeypatch.setattr(undisturbed, "told_by", lambda *_: lost)
    service = undisturbed.Undisturbed("", "hermes", cast("Alone", Unable()))
    streams = [
        Stream(i, StreamKind.AGENT, 0, 9, agent=Agent(api, ask, stream=True))
        for i, (ask, api) in enumerate(product((Ask.TEXT, Ask.CALL), (Api.RESPONSES, Api.MESSAGES)))
    ]
    found = service.expected(streams)
    plain = "\n[said]\nThe sea"
    assert [found[i][0].text for i in range(4)] == [plain, plain, f"{HEAD}{ARGUMENTS}", f"{HEAD}{ARGUMENTS}"]
    assert found[0][0].names == tuple(map(str, TOKENIZER.encode("The sea")))
    assert [found[i][0].names for i in (1, 3)] == [(), ()]
    assert judged_stream(streams[2], lost, found[2], (), ())


@settings(max_examples=40)
@given(form=st.sampled_from(list(FORMS)), data=st.data())
def test_parts_come_in_one_order_over_both_apis_that_tell_it(form: ToolFormatName, data: st.DataObject) -> None:
    text = "".join(part for _, part in data.draw(dialogues(form, special=False)))
    assume(text)
    agents = [Agent(api, Ask.TEXT, stream) for api in (Api.RESPONSES, Api.MESSAGES) for stream in (False, True)]
    whole, *others = [told(agent, form, text) for agent in agents]
    for agent, found in zip(agents[1:], others, strict=True):
        assert (found[0], *found[2:]) == (as_told(agent, whole[0]), *whole[2:])


@pytest.mark.parametrize("form", FORMS)
def test_each_request_is_understood(form: ToolFormatName) -> None:
    for agent in agents_of(form):
        response = post(service_of(form, "Hello"), agent.api, asked(agent, 1, 60, 5, form) | {"model": MODEL})
        assert response.status_code == 200, response.text
    half = half_of(form)
    assert len({(agent.ask, agent.api) for agent in agents_of(form)}) == len(half)
    assert {agent.stream for agent in half} == {True, False}


def test_agents_are_asked_while_each_kind_of_process_is_killed() -> None:
    schedule = schedule_of_agents(half_of("hermes"), 24)
    assert Schedule.from_json(json.dumps(json.loads(schedule.to_json()))) == schedule
    killed = {fault.victim for fault in schedule.faults if fault.kind is FaultKind.KILL}
    assert killed == {Victim.DRAFTER, Victim.DEVICE, Victim.GATEWAY, Victim.VERIFIER, Victim.COORDINATOR}
    assert {fault.kind for fault in schedule.faults} == {FaultKind.KILL, FaultKind.PARTITION, FaultKind.DRAIN}
    assert any("whole" in line for line in schedule.lines())


@pytest.mark.parametrize(
    ("api", "detail", "code"),
    [
        (Api.CHATS, '{"error": {"code": "unavailable", "message": "", "type": "", "param": null}}', "unavailable"),
        (Api.RESPONSES, '{"type": "error", "code": "busy", "message": "", "param": null}', "busy"),
        (Api.RESPONSES, '{"type": "response.failed", "response": {"error": {"code": "server_error"}}}', "server_error"),
        (Api.MESSAGES, '{"type": "error", "error": {"type": "overloaded_error", "message": ""}}', "unavailable"),
        (Api.MESSAGES, "no JSON", None),
        (Api.CHATS, '{"error": "gone"}', None),
    ],
)
def test_codes_of_errors(api: Api, detail: str, code: str | None) -> None:
    assert code_of(api, detail) == code
