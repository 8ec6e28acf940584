"""``POST /v1/responses`` as an API."""

from functools import partial
from typing import Any

from serve_app.api.api_forms import ApiForm, ReadRequest, named_by, openai_error_body
from serve_app.api.openai.bodies import ChatBody
from serve_app.api.openai.fields.ignored import IgnoredFields
from serve_app.api.responses.answers import ResponseSettings
from serve_app.api.responses.bodies import LOGPROBS, ResponsesBody
from serve_app.api.responses.reading import chat_of, messages_of, own_field, read_responses_body, unused_search
from serve_app.api.responses.writing import ResponseWriter
from serve_app.api.service import RequestLimits
from serve_app.api.written import Encoded


def _read(content: bytes, limits: RequestLimits, ignored: IgnoredFields) -> ReadRequest:
    body = read_responses_body(content, limits, ignored)
    messages = messages_of(body, ignored)
    own = partial(own_field, origins=messages.origins)
    with named_by(own):
        chat = chat_of(body, messages.ended(), limits, ignored)
    # as JSON: large
    repeated: Any = {name: Encoded(value) for name, value in settings_of(body, chat, limits).items()}
    writer = partial(ResponseWriter, settings=repeated, logprobs=LOGPROBS in body.include)
    return ReadRequest(chat, own, writer)


RESPONSES = ApiForm("/v1/responses", "resp_", _read, openai_error_body)


def settings_of(body: ResponsesBody, chat: ChatBody, limits: RequestLimits) -> ResponseSettings:
    """What an answer repeats of its request."""
    tool_choice = "auto" if body.tool_choice is None else body.tool_choice
    parallel = True if body.parallel_tool_calls is None else body.parallel_tool_calls
    return {
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": chat.metadata or {},
        "parallel_tool_calls": parallel,
        "previous_response_id": None,
        "prompt_cache_key": chat.prompt_cache_key,
        "reasoning": {"effort": body.reasoning.effort, "summary": None},
        "safety_identifier": chat.safety_identifier,
        "store": False,
        "temperature": _sampled(chat, "temperature", limits),
        "text": {"format": body.text.format or {"type": "text"}, "verbosity": body.text.verbosity},
        "tool_choice": tool_choice,
        "tools": [tool for tool in body.tools or () if not unused_search(tool, body.tool_choice)],
        "top_logprobs": body.top_logprobs,
        "top_p": _sampled(chat, "top_p", limits),
        "truncation": "disabled",
        "user": chat.user,
    }


def _sampled(chat: ChatBody, name: str, limits: RequestLimits) -> float:
    asked: float = getattr(chat, name)
    return asked if name in chat.model_fields_set else limits.defaults.params.get(name, asked)
