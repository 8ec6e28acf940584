"""A response as one JSON document, written while it is read.

What is told of a token is a dozen objects for each alternative (400 bytes), and 30 bytes of JSON: only the latter is
kept until the response has ended.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence

from outrider.contracts.requests import FinishReason, RoundReport, TextSpan
from outrider.text.shown import joined
from serve_app.api.openai.call_deltas import whole_calls
from serve_app.api.openai.choice_reader import Delta
from serve_app.api.openai.responses import ResponseForm, round_report, span_report, token_report

_KEPT_ROUNDS = 1024
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ChoiceDocument:
    """One choice of a document."""

    def __init__(self, form: ResponseForm, index: int) -> None:
        self._form, self._index = form, index
        self._text: list[str] = []
        self._spans: list[TextSpan] = []
        self._rounds: deque[RoundReport] = deque(maxlen=_KEPT_ROUNDS)
        self._made: list[str] = []  # JSON of several items of a list, as are the following
        self._logprobs: dict[str, list[str]] = {}

    def add(self, delta: Delta) -> None:
        """Take the next piece."""
        self._text.append(delta.text)
        if self._form.body.outrider.spans:
            self._spans += delta.spans
        if delta.tokens:
            for name, items in self._form.logprobs(delta.tokens).items():
                if isinstance(items, list):
                    self._logprobs.setdefault(name, []).append(_encode(items)[1:-1])
        if delta.made:
            self._made.append(_encode([token_report(token_id, piece) for token_id, piece in delta.made])[1:-1])
        self._rounds += delta.rounds

    def written(self, reason: FinishReason) -> list[str]:
        """Its JSON, in parts."""
        form, text = self._form, "".join(self._text)
        message: dict[str, object] = {"role": "assistant", "content": text, "refusal": None}
        if form.tool_form and (called := whole_calls(text, form.tool_form, f"{form.id}-{self._index}")):
            message |= called
        content: dict[str, object] = {"message": message} if form.chat else {"text": text}
        ended = form.ended(reason, called="tool_calls" in message)
        parts = [_encode({"index": self._index, **content})[:-1], ',"logprobs":']
        parts += self._told_logprobs()
        parts.append(f',"finish_reason":{_encode(ended)}')
        if told := self._told():
            parts += [',"outrider":', *_object(told)]
        return [*parts, "}"]

    def _told_logprobs(self) -> list[str]:
        form = self._form
        if form.body.alternatives is None:
            return ["null"]
        empty = form.logprobs(())
        return _object(
            {
                name: _list(self._logprobs.get(name, ())) if isinstance(items, list) else [_encode(items)]
                for name, items in empty.items()
            }
        )

    def _told(self) -> dict[str, list[str]]:
        told: dict[str, list[str]] = {}
        if self._form.body.outrider.spans and any(self._text):
            told["spans"] = [_encode([span_report(span) for span in joined(self._spans)])]
        if self._made:
            told["tokens"] = _list(self._made)
            told["rounds"] = [_encode([round_report(each) for each in self._rounds])]
        return told


def document(
    form: ResponseForm,
    choices: Sequence[ChoiceDocument],
    reasons: Sequence[FinishReason],
    usage: Mapping[str, object],
) -> list[bytes]:
    """All of a response, in parts."""
    parts = [_encode(form.head("chat.completion"))[:-1], ',"choices":[']
    for i, (choice, reason) in enumerate(zip(choices, reasons, strict=True)):
        parts += [","] * (i > 0) + choice.written(reason)
    return [part.encode() for part in (*parts, '],"usage":', _encode(usage), "}")]


def _object(fields: Mapping[str, list[str]]) -> list[str]:
    parts = list[str]()
    for name, value in fields.items():
        parts += ["," if parts else "{", f"{_encode(name)}:", *value]
    return [*parts, "}"]


def _list(items: Sequence[str]) -> list[str]:
    parts = list[str]()
    for each in items:
        parts += ["," if parts else "[", each]
    return [*(parts or ["["]), "]"]
