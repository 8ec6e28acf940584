"""What a request tells the chat template: its variables, ``reasoning_effort``, and the reasoning of earlier turns.

Rendering is bounded: the template's environment is jinja's immutable sandbox, and a deadline ends loops.
"""

import ctypes
import inspect
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from transformers import PreTrainedTokenizerBase

from outrider.contracts.errors import ParameterError
from serve_app.api.openai.bodies import ChatBody, ChatMessage

MAX_KWARGS = 32
MAX_VALUES = 256  # in all of them, at most ``_MAX_DEPTH`` in each other
MAX_TEXT_CHARS = 4096
MAX_NUMBER = 1_000_000  # a template may repeat what it says so often
RENDERING_DEADLINE_S = 0.4  # of processor time
_MAX_DEPTH = 8
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
    """Variables for the template beside its own.

    Raises:
        ParameterError: one replaces a variable of ours, or they are too many, too long or too deep.
    """
    given = body.chat_template_kwargs or {}
    if len(given) > MAX_KWARGS:
        raise ParameterError(_FIELD, f"at most {MAX_KWARGS} entries", len(given))
    for name in given:
        if name in _OURS or not name.isidentifier() or name.startswith("_"):
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


class _Deadlines:
    """Raises ``RenderingOverdueError`` in threads that are past theirs; one thread watches while there are any."""

    _LOOKS_EVERY_S = 0.05

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due_at_s: dict[int, float] = {}  # by thread, on its own clock
        self._watching = False

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        thread = threading.get_ident()
        with self._lock:
            self._due_at_s[thread] = _spent_s(thread) + seconds
            begin, self._watching = not self._watching, True
        try:
            if begin:
                threading.Thread(target=self._watch, name="rendering-deadlines", daemon=True).start()
            yield
        finally:
            with self._lock:  # nothing is raised behind this
                self._due_at_s.pop(thread, None)

    def _watch(self) -> None:
        while True:
            time.sleep(self._LOOKS_EVERY_S)
            with self._lock:
                for thread in [each for each, due_at_s in self._due_at_s.items() if due_at_s <= _spent_s(each)]:
                    del self._due_at_s[thread]
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread), ctypes.py_object(RenderingOverdueError)
                    )
                if not self._due_at_s:
                    self._watching = False
                    return


def _spent_s(thread: int) -> float:
    """Processor time of a thread that runs; where the system does not tell it, the time."""
    if hasattr(time, "pthread_getcpuclockid"):
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    return time.monotonic()


_DEADLINES = _Deadlines()


@contextmanager
def rendering(deadline_s: float = RENDERING_DEADLINE_S) -> Iterator[None]:
    """Bound the time of the block.

    Raises:
        ParameterError: it is up.
    """
    try:
        with _DEADLINES.within(deadline_s):
            yield
    except RenderingOverdueError:
        needed = f"what the model's chat template renders within {deadline_s:g} s of processor time; send less"
        raise ParameterError("messages", needed, "more") from None
