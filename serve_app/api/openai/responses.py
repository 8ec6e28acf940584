"""OpenAI's API as data: response bodies, stream events, ``usage`` and the model card. No HTTP, no Ray, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

from outrider.contracts.requests import (
    SAMPLING_RANGES,
    FinishReason,
    RoundReport,
    RoundStats,
    SamplingParams,
    TextSpan,
)
from outrider.scheduling.attribution import response_cause
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
    OutriderUsage,
    PromptTokens,
    ReasoningTokens,
    RoundDetail,
    SloUsage,
    SpanDetail,
    TokenDetail,
    TokenLogprob,
    TokenUsage,
    TopLogprob,
    VerificationUsage,
)
from serve_app.api.api_forms import AnswerWriter
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.choice_reader import ChoiceDelta, ChoiceReader, ShownToken
from serve_app.api.openai.fields.explained import explained_usage
from serve_app.api.openai.reasoning.message import PLAIN, MessageForm
from serve_app.api.openai.tools.deltas import MessageDeltas, ended_by
from serve_app.api.service import RequestLimits
from serve_app.service_answers import Model

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
        return None if self.message.is_plain else MessageDeltas(self.message, self.table, f"{self.id}-{index}")

    def message_events(
        self, index: int, deltas: Sequence[MessageDelta], delta: ChoiceDelta, *, thinking: bool = False
    ) -> list[ChatCompletionChunk]:
        """Events of a piece of a choice; its tokens and details go with the first. ``thinking``: within reasoning."""
        details = self._details(delta)
        nothing: MessageDelta = {} if thinking else {"content": ""}
        empty = [nothing] if delta.tokens or details else []
        return [
            self._chat_event(index, content, _NOTHING if i else details, () if i else delta.tokens)
            for i, content in enumerate(deltas or empty)
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


def token_counts(prompt_tokens: int, completion_tokens: int) -> TokenUsage:
    """OpenAI's ``usage`` of a response so far."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def usage_of(readers: Sequence[ChoiceReader]) -> CompletionUsage:
    """OpenAI's ``usage``, and ``usage.outrider``: how the response was made, summed over its choices.

    A prompt's tokens count once for all its choices; its cached tokens are those of its first choice.
    """
    firsts = [reader for reader in readers if reader.choice.first_of_prompt]
    prompt_tokens = sum(len(reader.choice.request.prompt_ids) for reader in firsts)
    completion_tokens = sum(reader.completion_tokens for reader in readers)
    stats = sum((reader.stats for reader in readers), RoundStats())
    return {
        **token_counts(prompt_tokens, completion_tokens),
        "prompt_tokens_details": {"cached_tokens": sum(reader.stats.cached_tokens for reader in firsts)},
        "completion_tokens_details": {
            "accepted_prediction_tokens": stats.accepted_tokens,
            "rejected_prediction_tokens": stats.drafted_tokens - stats.trimmed_tokens - stats.accepted_tokens,
            **_reasoning(readers),
        },
        "outrider": _outrider_usage(readers, stats),
    }


def _reasoning(readers: Sequence[ChoiceReader]) -> ReasoningTokens:
    """Tokens of the choices' reasoning, if the model reasons."""
    counts = [count for reader in readers if (count := reader.reasoning_tokens) is not None]
    return {"reasoning_tokens": sum(counts)} if counts else {}


def _outrider_usage(readers: Sequence[ChoiceReader], stats: RoundStats) -> OutriderUsage:
    rounds: dict[str, int] = {**dict(stats.protocols), "none": stats.rounds - stats.speculative_rounds}
    return {
        "rounds": stats.rounds,
        "speculative_rounds": stats.speculative_rounds,
        "drafted_tokens": stats.drafted_tokens,
        "accepted_tokens": stats.accepted_tokens,
        "trimmed_tokens": stats.trimmed_tokens,
        "protocols": {name: count for name, count in rounds.items() if count},
        "payload_bits": {"up": stats.payload_up_bits, "down": stats.payload_down_bits},
        "lossless": stats.inexact_rounds == 0,
        "sampling": sampling_of(readers[0].choice.request.params),
        **_verification(readers, stats),
        "slo": _slo_usage(readers, stats),
        **explained_usage(readers),
    }


def sampling_of(params: SamplingParams) -> dict[str, float]:
    """Sampling parameters in effect: the temperature, and others that are not neutral."""
    neutral = SamplingParams()
    values = {name: getattr(params, name) for name in SAMPLING_RANGES}
    return {name: value for name, value in values.items() if name == "temperature" or value != getattr(neutral, name)}


def _verification(readers: Sequence[ChoiceReader], stats: RoundStats) -> VerificationUsage:
    """Judged mismatches of responses that allowed it, and the positions in each choice at which one passed.

    What passes depends on windows, links and losses: the same request need not get the same answer again.
    """
    if not any(reader.choice.request.semantic for reader in readers):
        return {"verification": "lossless"}
    return {
        "verification": "semantic",
        "reproducible": False,
        "judged_tokens": stats.judged_tokens,
        "overrides": [list(reader.stats.overrides) for reader in readers],
    }


def _slo_usage(readers: Sequence[ChoiceReader], stats: RoundStats) -> SloUsage:
    """Promise and achieved speed of the response: those of its slowest choice.

    Speed is that of the tokens behind a choice's first ones; None while there are none.
    """
    asked = readers[0].choice.request.slo
    slo = min((reader.slo for reader in readers), key=lambda one: one.tokens_per_s)  # the lowest class given
    ledgers = [reader.ledger for reader in readers if reader.ledger is not None]
    speeds = [(speed, reader.slo) for reader in readers if (speed := _speed(reader)) is not None]
    achieved = min((speed for speed, _ in speeds), default=None)
    kept = all(speed >= own.tokens_per_s for speed, own in speeds)
    usage: SloUsage = {
        "class": slo.name,
        "promised_tokens_per_s": slo.tokens_per_s or None,
        "achieved_tokens_per_s": None if achieved is None else floor(achieved * 1e3) / 1e3,  # never up to the promise
        "kept": kept,
        "cause": None if kept else response_cause(stats.late_queue_rounds, stats.late_compute_rounds),
        "times_behind": sum(ledger.times_behind for ledger in ledgers),
        "late_rounds": {"queue": stats.late_queue_rounds, "compute": stats.late_compute_rounds},
    }
    return usage if slo == asked else {"preferred_class": asked.name, **usage}


def _speed(reader: ChoiceReader) -> float | None:
    return None if reader.ledger is None else reader.ledger.tokens_per_s


def model_card(limits: RequestLimits, created_s: int) -> Model:
    """An entry of ``/v1/models``; ``root``, ``parent`` and ``max_model_len``, the context, are vLLM's names."""
    return {
        "id": limits.model_name,
        "object": "model",
        "created": created_s,
        "owned_by": "outrider",
        "root": limits.model_name,
        "parent": None,
        "max_model_len": limits.max_context_tokens,
        "outrider": {
            "sampling": _default_sampling(limits),
            "max_window": limits.k_max,
            "protocols": limits.protocols,
            "slo_classes": {slo.name: slo.tokens_per_s or None for slo in limits.slo_classes},
        },
    }


def _default_sampling(limits: RequestLimits) -> dict[str, float]:
    """Defaults of requests without parameters, as ``usage`` would report them, and the default length of a chat."""
    filled: dict[str, Any] = dict(limits.defaults.params)
    most = limits.defaults.max_tokens
    return sampling_of(SamplingParams(**filled)) | ({} if most is None else {"max_tokens": most})
