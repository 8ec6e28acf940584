"""Bodies of ``POST /v1/responses`` as data, and the fields of it that are refused."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from serve_app.api.openai.bodies import (
    MAX_MESSAGES,
    MAX_NAME_CHARS,
    MAX_PARTS,
    MAX_TOKEN_IDS,
    MAX_TOP_LOGPROBS,
    Described,
    Effort,
    GenerationBody,
    OutriderOptions,
    Tools,
    with_fields_of,
)
from serve_app.api.openai.parsing import NEEDED_BY_FIELD, FieldRules
from serve_app.api.openai.unsupported import NOT_YET, TEXT_ONLY, NotYet

MAX_ITEMS = 2 * MAX_MESSAGES  # a turn may be reasoning, a text and calls
LOGPROBS = "message.output_text.logprobs"
_MOST_INCLUDED = 16
_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True)
_ListOfDescribed = Annotated[list[Described], Field(fail_fast=True, max_length=MAX_PARTS)]
_Name = Annotated[str, Field(max_length=MAX_NAME_CHARS)]


class InputPart(BaseModel):
    """A part of an item's content, output or summary. What earlier answers have beside texts says nothing here."""

    model_config = _STRICT
    type: str
    text: str = ""
    refusal: str = ""
    annotations: _ListOfDescribed | None = None
    logprobs: Annotated[list[Any], Field(fail_fast=True, max_length=MAX_TOKEN_IDS)] | None = None


_Parts = Annotated[list[InputPart], Field(fail_fast=True, max_length=MAX_PARTS)]


class InputItem(BaseModel):
    """An item of ``input``; which fields it needs, and which have a meaning, depends on its type."""

    model_config = _STRICT
    type: str = "message"
    role: str | None = None
    content: str | _Parts | None = None
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    call_id: str | None = None
    name: _Name | None = None
    arguments: str | None = None
    output: str | _Parts | None = None
    summary: _Parts | None = None
    encrypted_content: str | None = None


class ReasoningOptions(BaseModel):
    """``reasoning``. Nothing is summarised: what a model thinks is sent as it is."""

    model_config = _STRICT
    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None


class TextOptions(BaseModel):
    """``text``; the format is read as ``response_format`` of chats."""

    model_config = _STRICT
    format: Described | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ResponseStreamOptions(BaseModel):
    """``stream_options``: nothing is obfuscated."""

    model_config = _STRICT


_NOT_SHARED = frozenset({"n", "max_tokens", "response_format", "verbosity", "stream_options", "store"})
SHARED = [name for name in GenerationBody.model_fields if name not in _NOT_SHARED]  # that mean the same in chats


@with_fields_of(GenerationBody, _NOT_SHARED)
class ResponsesBody(BaseModel):
    """``POST /v1/responses``. Sampling parameters, ``outrider`` and others are those of chats."""

    model_config = _STRICT
    model: str
    input: str | Annotated[list[InputItem], Field(min_length=1, fail_fast=True, max_length=MAX_ITEMS)]
    stream: bool = False
    stream_options: ResponseStreamOptions | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: Tools | None = None
    tool_choice: str | Described | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None  # of built-in tools, of which there are none
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    include: Annotated[list[_Name], Field(fail_fast=True, max_length=_MOST_INCLUDED)] = []
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] = 0
    store: bool = True  # OpenAI's default; nothing is stored, as answers say
    truncation: Literal["auto", "disabled"] = "disabled"


_WHOLE = "nothing is stored: send the whole input, with earlier output items"
_NO_HOSTED = "send what the model is to read as input"
_MOST_TOKENS = ("max_tokens", "max_completion_tokens", "max_new_tokens", "n_predict", "num_predict")
RESPONSES_NOT_YET: Mapping[str, NotYet] = {
    **{name: one for name, one in NOT_YET.items() if name not in ResponsesBody.model_fields},
    **dict.fromkeys(_MOST_TOKENS, NotYet("use max_output_tokens")),
    "previous_response_id": NotYet(_WHOLE),
    "conversation": NotYet(_WHOLE),
    "background": NotYet("wait for the answer, or stream it", (False,)),
    "prompt": NotYet("send its text as instructions and input"),
    "messages": NotYet("send them as input"),
    "system": NotYet("send it as instructions"),
    "n": NotYet("use /v1/chat/completions", (1,)),
    "response_format": NotYet("use text.format"),
    "verbosity": NotYet("use text.verbosity"),
    "reasoning_effort": NotYet("use reasoning.effort"),
    "logprobs": NotYet(f"use include: ['{LOGPROBS}']", (False,)),
    "chat_template_kwargs": NotYet("use reasoning.effort, or /v1/chat/completions", ({},)),
    "moderation": NotYet("nothing is moderated"),
    "context_management": NotYet("shorten the input yourself", ([],)),
    "generate_summary": NotYet("what a model thinks is sent as it is"),
    **dict.fromkeys(("file_id", "file_data", "file_url"), NotYet(TEXT_ONLY)),
    "documents": NotYet(_NO_HOSTED, ([],)),
}
RULES = FieldRules(
    nested={
        "input": InputItem,
        "text": TextOptions,
        "reasoning": ReasoningOptions,
        "stream_options": ResponseStreamOptions,
        "outrider": OutriderOptions,
        "content": InputPart,
        "output": InputPart,
        "summary": InputPart,
    },
    not_yet=RESPONSES_NOT_YET,
    needed={
        **NEEDED_BY_FIELD,
        "input": "a text, or a list of at least one item",
        "content": "a text, or a list of parts such as {'type': 'input_text', 'text': '...'}",
        "output": "a text, or a list of parts such as {'type': 'input_text', 'text': '...'}",
        "type": "a text",
        "effort": "one of 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'",
        "truncation": "'auto' or 'disabled'",
    },
)
