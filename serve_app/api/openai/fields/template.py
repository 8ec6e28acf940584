"""What a request tells the chat template: its variables, ``reasoning_effort``, and the reasoning of earlier turns.

Rendering is bounded: the template's environment is jinja's immutable sandbox, and a deadline ends loops. Looking at the
clock costs: a trace function sees each call and line of the thread that renders. From Python 3.12 on, the interpreter
runs all threads' code with events while one is set, about three times as slowly.
"""

import inspect
import json.encoder
import pprint
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, TypeAlias, TypeVar

import jinja2.filters
import jinja2.utils
from transformers import PreTrainedTokenizerBase

from outrider.contracts.errors import ParameterError
from serve_app.api.openai.bodies import ChatBody, ChatMessage

MAX_KWARGS = 32
MAX_VALUES = 256  # in all of them, at most ``_MAX_DEPTH`` in each other
MAX_TEXT_CHARS = 4096
MAX_NAME_CHARS = 64
MAX_NUMBER = 1_000_000  # a template may repeat what it says so often
RENDERING_DEADLINE_S = 0.4  # of processor time
_LOOKS_EVERY = 16  # lines and calls
_LOOPING_FILES = frozenset(  # the first is jinja's name of any template's code
    {"<template>", jinja2.filters.__file__, textwrap.__file__, pprint.__file__}
)
# The rest of that file keeps caches in order, which no exception may interrupt.
_LOOPING_CODE = frozenset({jinja2.utils.urlize.__code__, jinja2.utils.generate_lorem_ipsum.__code__})
_JSON_FILE = json.encoder.__file__  # calls itself for each value where JSON has an indent
_MAX_DEPTH = 8
_Rendered = TypeVar("_Rendered")
TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]
_OURS = frozenset(
    {
        *inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters,
        *PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES,
        *("messages", "additional_special_tokens", "raise_exception", "strftime_now", "self", "loop", "range"),
        *("dict", "lipsum", "cycler", "joiner", "namespace", "caller", "varargs", "kwargs"),
    }
)
_FIELD = "chat_template_kwargs"


class RenderingOverdueError(BaseException):
    """The deadline has passed; no ``Exception``, as jinja and templates catch these."""


def template_variables(body: ChatBody) -> Mapping[str, Any]:
    """Variables for the template beside its own."""
    given = body.chat_template_kwargs or {}
    if len(given) > MAX_KWARGS:
        raise ParameterError(_FIELD, f"at most {MAX_KWARGS} entries", len(given))
    for name in given:
        if name in _OURS or len(name) > MAX_NAME_CHARS or not name.isidentifier() or name.startswith("_"):
            raise ParameterError(
                f"{_FIELD}.{name[:64]}", "a name of the template's own, not one that is set here", name
            )
    _check_values(list(given.values()), [MAX_VALUES], 0)
    effort = body.reasoning_effort
    if effort is None:
        return given
    if given.get("reasoning_effort", effort) != effort:
        raise ParameterError("reasoning_effort", f"to equal {_FIELD}.reasoning_effort, or be left out", effort)
    thinks = {"enable_thinking": False} if effort == "none" else {}
    return {**thinks, **given, "reasoning_effort": effort}


def with_reasoning(chat: Sequence[dict[str, Any]], messages: Sequence[ChatMessage]) -> None:
    """Add the reasoning of earlier answers to messages for the template, which may have one more at the beginning."""
    for plain, message in zip(reversed(chat), reversed(messages), strict=False):
        reasoning = message.reasoning_content or message.reasoning
        if reasoning and message.role == "assistant":
            plain |= {"reasoning_content": reasoning, "reasoning": reasoning}
            if not (plain.get("tool_calls") and plain.get("content")):  # gpt-oss's template refuses these together
                plain["thinking"] = reasoning


def _check_values(values: Sequence[object], left: list[int], depth: int) -> None:
    left[0] -= len(values)
    if left[0] < 0 or depth > _MAX_DEPTH:
        raise ParameterError(_FIELD, f"at most {MAX_VALUES} values, {_MAX_DEPTH} in each other", "more")
    for value in values:
        if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
            raise ParameterError(_FIELD, f"texts of at most {MAX_TEXT_CHARS} characters", len(value))
        if isinstance(value, int | float) and not -MAX_NUMBER <= value <= MAX_NUMBER:
            raise ParameterError(_FIELD, f"numbers in {-MAX_NUMBER}..{MAX_NUMBER}", value)
        if isinstance(value, dict):
            _check_values([*value, *value.values()], left, depth + 1)
        elif isinstance(value, list):
            _check_values(value, left, depth + 1)


def bounded(render: Callable[[], _Rendered], deadline_s: float = RENDERING_DEADLINE_S) -> _Rendered:
    """Return what ``render`` does, if that takes no longer.

    The thread looks at its own clock between lines of the template and of what loops for it in Python: nothing is
    raised anywhere else, nor behind the end. Calls of C are not interrupted.
    """
    due_at_s, left = time.thread_time() + deadline_s, _LOOKS_EVERY

    def look() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            left = _LOOKS_EVERY
            if time.thread_time() > due_at_s:
                raise RenderingOverdueError

    def called(frame: FrameType, _: str, __: Any) -> TraceFunction | None:
        file = frame.f_code.co_filename
        if file == _JSON_FILE:
            look()
        return went_on if file in _LOOPING_FILES or frame.f_code in _LOOPING_CODE else None

    def went_on(_: FrameType, event: str, __: Any) -> TraceFunction:
        if event == "line":  # never as a generator is closed, where an exception is lost
            look()
        return went_on

    earlier = sys.gettrace()
    sys.settrace(called)
    try:
        return render()
    except RenderingOverdueError:
        needed = f"what the model's chat template renders within {deadline_s:g} s of processor time; send less"
        raise ParameterError("messages", needed, "more") from None
    finally:
        sys.settrace(earlier)
