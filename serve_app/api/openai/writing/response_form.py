"""OpenAI's API as data: response bodies and stream events. No HTTP, no Ray, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.contracts.requests import (
    FinishReason,
    RoundReport,
    TextSpan,
)
from outrider.text.tokens import TokenTable
from serve_app.answers import (
    AnswerExtension,
    ChatChunkChoice,
    ChatCompletionChunk,
    ChatFinish,
    ChatLogprobs,
    ChoiceDetails,
    ChoiceExtension,
    Chunk,
    ChunkUsage,
    CompletionChunk,
    CompletionChunkChoice,
    CompletionLogprobs,
    CompletionUsage,
    MessageDelta,
    PromptTokens,
    RoundDetail,
    SpanDetail,
    TokenDetail,
    TokenLogprob,
    TopLogprob,
)
from serve_app.api.api_forms import AnswerWriter
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.reasoning.message import PLAIN, MessageForm
from serve_app.api.openai.tools.deltas import MessageDeltas, ended_by
from serve_app.api.openai.writing.choice_reader import ChoiceDelta, ShownToken
from serve_app.api.openai.writing.message_pieces import MessagePieces, ScoredPiece

_LEAST = -9999.0  # OpenAI's value for a token of probability 0; JSON has no infinity
_NOTHING: ChoiceExtension = {}
_NO_PROMPT: PromptTokens = {}  # its tokens are added to the event that has them


@dataclass(frozen=True, slots=True)
class ResponseForm:
    """Writes one response in its endpoint's form, with what its request asked to be reported."""

    id: str  # of the response
    model: str  # the served name
    created_s: int  # Unix time
    table: TokenTable  # of the target's tokenizer
    body: CompletionBody | ChatBody  # the request's
    message: MessageForm = PLAIN  # how a chat's reasoning and tool calls are read from the text
    fingerprint: str = ""  # of what outputs depend on; "": not told
    writer: AnswerWriter | None = None  # of an API whose requests are read as chats

    @property
    def chat(self) -> bool:
        """Whether the endpoint is chat completions."""
        return isinstance(self.body, ChatBody)

    def ended(self, reason: FinishReason, *, called: bool) -> ChatFinish:
        """Why a chat's choice ended, as OpenAI has it: a call of a named tool is not ``tool_calls``."""
        named = isinstance(self.body, ChatBody) and isinstance(self.body.tool_choice, dict)
        return ended_by(reason, called=called and not named)

    def role_event(self, index: int, prompt_ids: Sequence[int]) -> ChatCompletionChunk:
        """First event of a choice in a streamed chat."""
        event = self._chat_event(index, {"role": "assistant", "content": ""})
        if self.body.return_token_ids:
            event["prompt_token_ids"] = list(prompt_ids)
        return event

    @property
    def constants(self) -> AnswerExtension:
        """What every answer and event tells of the service."""
        return {"system_fingerprint": self.fingerprint} if self.fingerprint else {}

    def delta_event(self, index: int, delta: ChoiceDelta) -> Chunk:
        """Event with a piece of a choice."""
        details = self._details(delta)
        if self.chat:
            return self._chat_event(index, {"content": delta.text}, details, delta.tokens)
        event = self._completion_event(index, delta.text, details, delta.tokens)
        if delta.prompt_ids:
            event["choices"][0]["prompt_token_ids"] = list(delta.prompt_ids)
        return event

    def message_deltas(self, index: int) -> MessageDeltas | None:
        """Reader that separates a choice's reasoning and tool calls from its text, if there may be any."""
        if self.message.is_plain:
            return None
        return MessageDeltas(self.message, self.table, f"{self.id}-{index}", in_parts=self.writer is not None)

    def message_pieces(self, message: MessageDeltas | None) -> MessagePieces | None:
        """Reader of a choice's pieces with their scores, if all of it need not be the answer."""
        return None if message is None else MessagePieces(message, of_texts=self.writer is not None)

    def delta_events(self, index: int, message: MessagePieces, delta: ChoiceDelta) -> list[ChatCompletionChunk]:
        """Events of a piece of a choice; its details go with the first."""
        pieces = message.push(delta)
        return self._piece_events(index, pieces, self._details(delta), thinking=message.thinking)

    def end_events(self, index: int, message: MessagePieces) -> list[ChatCompletionChunk]:
        """Events of what a choice has held back."""
        return self._piece_events(index, message.finish(), _NOTHING)

    def _piece_events(
        self, index: int, pieces: Sequence[ScoredPiece], details: ChoiceExtension, *, thinking: bool = False
    ) -> list[ChatCompletionChunk]:
        """``thinking``: within reasoning."""
        nothing: MessageDelta = {} if thinking else {"content": ""}
        empty = [(nothing, ())] if details else []
        return [
            self._chat_event(index, content, _NOTHING if i else details, tokens)
            for i, (content, tokens) in enumerate(pieces or empty)
        ]

    def last_event(
        self, index: int, reason: FinishReason, extension: AnswerExtension, *, called: bool = False
    ) -> Chunk:
        """Event that says why a choice ended; ``extension``: what is known then; ``called``: it has called tools."""
        if self.chat:
            return {**self._chat_event(index, {}, reason=self.ended(reason, called=called)), **extension}
        return {**self._completion_event(index, "", reason=reason), **extension}

    def usage_event(self, usage: CompletionUsage, extension: AnswerExtension) -> Chunk:
        """Event with the usage."""
        if self.chat:
            return {**self._chat_chunk([]), "usage": usage, **extension}
        return {**self._completion_chunk([]), "usage": usage, **extension}

    def _chat_event(
        self,
        index: int,
        delta: MessageDelta,
        details: ChoiceExtension = _NOTHING,
        tokens: Sequence[ShownToken] = (),
        reason: ChatFinish | None = None,
    ) -> ChatCompletionChunk:
        logprobs = _chat_logprobs(tokens, self.table) if tokens else None
        return self._chat_chunk(
            [{"index": index, "delta": delta, **details, "logprobs": logprobs, "finish_reason": reason}]
        )

    def _completion_event(
        self,
        index: int,
        text: str,
        details: ChoiceExtension = _NOTHING,
        tokens: Sequence[ShownToken] = (),
        reason: FinishReason | None = None,
    ) -> CompletionChunk:
        logprobs = _completion_logprobs(tokens, self.table) if tokens else None
        return self._completion_chunk(
            [{"index": index, "text": text, **_NO_PROMPT, **details, "logprobs": logprobs, "finish_reason": reason}]
        )

    def _chat_chunk(self, choices: list[ChatChunkChoice]) -> ChatCompletionChunk:
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created_s,
            "model": self.model,
            "choices": choices,
            **_NO_PROMPT,
            **self._no_usage(),
            **self.constants,
        }

    def _completion_chunk(self, choices: list[CompletionChunkChoice]) -> CompletionChunk:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created_s,
            "model": self.model,
            "choices": choices,
            **self._no_usage(),
            **self.constants,
        }

    def _no_usage(self) -> ChunkUsage:
        """OpenAI's null usage on all chunks but the last, if usage was requested."""
        return {"usage": None} if self.body.stream_options.include_usage else {}

    def logprobs(self, tokens: Sequence[ShownToken]) -> ChatLogprobs | CompletionLogprobs:
        """``choices[].logprobs`` of some tokens; its lists have an item for each."""
        return (_chat_logprobs if self.chat else _completion_logprobs)(tokens, self.table)

    def text_logprobs(self, tokens: Sequence[ShownToken]) -> list[TokenLogprob]:
        """Entries of a text's tokens, for an API that has them with its texts."""
        return _chat_logprobs(tokens, self.table)["content"] if tokens else []

    def _details(self, delta: ChoiceDelta) -> ChoiceExtension:
        """Requested fields of a piece beyond OpenAI's."""
        details: ChoiceDetails = {}
        if self.body.outrider.spans and delta.text:
            details["spans"] = [span_report(span) for span in delta.spans]
        if delta.made:
            details["tokens"] = [token_report(i, piece) for i, piece in delta.made]
            details["rounds"] = [round_report(reported) for reported in delta.rounds]
        extension: ChoiceExtension = {"outrider": details} if details else {}
        if delta.token_ids:
            extension |= ChoiceExtension(token_ids=list(delta.token_ids))
        return extension


def span_report(span: TextSpan) -> SpanDetail:
    """An item of ``choices[].outrider.spans``."""
    return {"text": span.text, "origin": span.origin}


def token_report(token_id: int, piece: TextSpan) -> TokenDetail:
    """An item of ``choices[].outrider.tokens``."""
    return {"id": token_id, "text": piece.text, "origin": piece.origin}


def round_report(reported: RoundReport) -> RoundDetail:
    """An item of ``choices[].outrider.rounds``; the precision is three decimals of a millisecond."""
    return {
        "protocol": reported.protocol,
        "drafted_tokens": reported.drafted_tokens,
        "accepted_tokens": reported.accepted_tokens,
        "trimmed_tokens": reported.trimmed_tokens,
        "committed_tokens": reported.committed_tokens,
        "payload_bits": {"up": reported.payload_up_bits, "down": reported.payload_down_bits},
        "ended_ms": _ms(reported.ended_s),
        "phases_ms": {phase: _ms(seconds) for phase, seconds in reported.phases_s},
        "beside_ms": _ms(reported.beside_s),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def _chat_logprobs(tokens: Sequence[ShownToken], table: TokenTable) -> ChatLogprobs:
    """``choices[].logprobs`` of a chat."""
    content: list[TokenLogprob] = [
        {
            **_entry(item.token_id, item.logprobs.logprob, table),
            "top_logprobs": [_entry(token_id, logprob, table) for token_id, logprob in item.logprobs.top],
        }
        for item in tokens
        if item.logprobs is not None
    ]
    return {"content": content, "refusal": None}


def _completion_logprobs(tokens: Sequence[ShownToken], table: TokenTable) -> CompletionLogprobs:
    """``choices[].logprobs`` of a completion. As OpenAI's, ``top_logprobs`` includes the token itself."""
    return {
        "tokens": [table.name(item.token_id) for item in tokens],
        "token_logprobs": [None if item.logprobs is None else max(item.logprobs.logprob, _LEAST) for item in tokens],
        "top_logprobs": [_by_name(item, table) for item in tokens],
        "text_offset": [item.text_offset for item in tokens],
    }


def _entry(token_id: int, logprob: float, table: TokenTable) -> TopLogprob:
    data = table.data(token_id)
    return {
        "token": table.name(token_id),
        "logprob": max(logprob, _LEAST),
        "bytes": None if data is None else list(data),
    }


def _by_name(item: ShownToken, table: TokenTable) -> dict[str, float] | None:
    if item.logprobs is None:
        return None
    named: dict[str, float] = {}
    for token_id, logprob in (*item.logprobs.top, (item.token_id, item.logprobs.logprob)):
        named.setdefault(table.name(token_id), max(logprob, _LEAST))  # of two tokens with one name, the more probable
    return named
