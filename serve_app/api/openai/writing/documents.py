"""A response as one JSON document, serialised while it is generated.

A token's report is a dozen objects per alternative (400 bytes), but 30 bytes of JSON: only the JSON is kept until the
response has ended.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from outrider.contracts.requests import FinishReason, RoundReport, TextSpan
from outrider.text.shown import joined
from serve_app.answers import (
    AnswerExtension,
    AssistantMessage,
    ChatChoice,
    ChatCompletion,
    ChatLogprobs,
    ChoiceDetails,
    ChoiceExtension,
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    CompletionUsage,
    PromptTokens,
)
from serve_app.api.openai.tools.deltas import MessageDeltas, WholeMessage
from serve_app.api.openai.writing.answer_parts import AnswerPart, AnswerParts
from serve_app.api.openai.writing.choice_reader import ChoiceDelta
from serve_app.api.openai.writing.message_pieces import ScoredPiece
from serve_app.api.openai.writing.response_form import ResponseForm, round_report, span_report, token_report
from serve_app.api.written import Written, encode, json_parts

_KEPT_ROUNDS = 1024


class ChoiceDocument:
    """One choice of a document."""

    def __init__(self, form: ResponseForm, index: int, message: MessageDeltas | None = None) -> None:
        self._form, self._index = form, index
        self._pieces = form.message_pieces(message)
        self._whole, self._parts = WholeMessage(), AnswerParts()
        self._text, self._has_text = list[str](), False
        self._ids, self._prompt_ids = list[int](), list[int]()
        self._spans: list[TextSpan] = []
        self._rounds: deque[RoundReport] = deque(maxlen=_KEPT_ROUNDS)
        self._made = Written()
        self._logprobs: defaultdict[str, Written] = defaultdict(Written)

    @property
    def held_tokens(self) -> int:
        """Scored tokens of text that is held back."""
        return 0 if self._pieces is None else self._pieces.held_tokens

    def add(self, delta: ChoiceDelta) -> None:
        """Append the next piece."""
        self._has_text = self._has_text or bool(delta.text)
        if self._form.writer is not None:
            self._add_parts(
                [({"content": delta.text}, delta.tokens)] if self._pieces is None else self._pieces.push(delta)
            )
        elif self._pieces is not None:
            self._whole.add([piece for piece, _ in self._pieces.push(delta)])
        else:
            self._text.append(delta.text)
        self._ids += delta.token_ids
        self._prompt_ids += delta.prompt_ids
        if self._form.body.outrider.spans:
            self._spans += delta.spans
        if delta.tokens and self._form.writer is None:
            for name, items in self._form.logprobs(delta.tokens).items():
                if isinstance(items, list):
                    self._logprobs[name].add([encode(items)[1:-1]])
        if delta.made:
            self._made.add([encode([token_report(token_id, piece) for token_id, piece in delta.made])[1:-1]])
        self._rounds += delta.rounds

    def written(self, reason: FinishReason) -> list[str]:
        """The choice's JSON, in parts."""
        return json_parts(self._of_chat(reason) if self._form.chat else self._of_completion(reason))

    def _of_chat(self, reason: FinishReason) -> ChatChoice:
        message = self._message()
        logprobs: ChatLogprobs = {"content": self._logprobs["content"].as_list, "refusal": None}
        return {
            "index": self._index,
            "message": message,
            "logprobs": None if self._form.body.alternatives is None else logprobs,
            "finish_reason": self._form.ended(reason, called="tool_calls" in message),
            **self.details(),
        }

    def parts(self) -> list[AnswerPart]:
        """The whole answer of a writer's request."""
        if self._pieces is not None:
            self._add_parts(self._pieces.finish())
        return self._parts.all

    def _add_parts(self, pieces: Iterable[ScoredPiece]) -> None:
        for piece, tokens in pieces:
            self._parts.add(piece, self._form.text_logprobs(tokens))

    def _of_completion(self, reason: FinishReason) -> CompletionChoice:
        logprobs: CompletionLogprobs = {
            "tokens": self._logprobs["tokens"].as_list,
            "token_logprobs": self._logprobs["token_logprobs"].as_list,
            "top_logprobs": self._logprobs["top_logprobs"].as_list,
            "text_offset": self._logprobs["text_offset"].as_list,
        }
        return {
            "index": self._index,
            "text": "".join(self._text),
            "logprobs": None if self._form.body.alternatives is None else logprobs,
            "finish_reason": reason,
            **self.prompt,
            **self.details(),
        }

    def _message(self) -> AssistantMessage:
        if self._pieces is None:
            return {"role": "assistant", "content": "".join(self._text), "refusal": None}
        self._whole.add([piece for piece, _ in self._pieces.finish()])
        return self._whole.written(thought=self._pieces.thought)

    def details(self) -> ChoiceExtension:
        """What is told beyond OpenAI's fields."""
        details: ChoiceDetails = {}
        if self._form.body.outrider.spans and self._has_text:
            details["spans"] = [span_report(span) for span in joined(self._spans)]
        if self._made.parts:
            details["tokens"] = self._made.as_list
            details["rounds"] = [round_report(each) for each in self._rounds]
        extension: ChoiceExtension = {"outrider": details} if details else {}
        if self._form.body.return_token_ids:
            extension |= ChoiceExtension(token_ids=self._ids)
        return extension

    @property
    def prompt(self) -> PromptTokens:
        """Its prompt, if token ids were asked for."""
        return {"prompt_token_ids": self._prompt_ids} if self._form.body.return_token_ids else {}


def document(
    form: ResponseForm,
    choices: Sequence[ChoiceDocument],
    reasons: Sequence[FinishReason],
    usage: CompletionUsage,
    extension: AnswerExtension,
) -> list[bytes]:
    """The whole response as JSON, in parts; ``extension``: what else its answer tells."""
    if form.writer is not None:
        (choice,), (reason,) = choices, reasons
        more: Mapping[str, object] = {**choice.details(), **choice.prompt, **extension}
        answer = form.writer.document(choice.parts(), reason, usage, more)
        return [part.encode() for part in json_parts(answer)]
    written = Written()
    for choice, reason in zip(choices, reasons, strict=True):
        written.add(choice.written(reason))
    if form.chat:
        return [part.encode() for part in json_parts(_chat(form, written, usage, extension, choices[0].prompt))]
    return [part.encode() for part in json_parts(_completion(form, written, usage, extension))]


def _chat(
    form: ResponseForm, choices: Written, usage: CompletionUsage, extension: AnswerExtension, prompt: PromptTokens
) -> ChatCompletion:
    return {
        "id": form.id,
        "object": "chat.completion",
        "created": form.created_s,
        "model": form.model,
        "choices": choices.as_list,
        "usage": usage,
        **prompt,
        **form.constants,
        **extension,
    }


def _completion(form: ResponseForm, choices: Written, usage: CompletionUsage, extension: AnswerExtension) -> Completion:
    return {
        "id": form.id,
        "object": "text_completion",
        "created": form.created_s,
        "model": form.model,
        "choices": choices.as_list,
        "usage": usage,
        **form.constants,
        **extension,
    }
