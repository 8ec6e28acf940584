"""OpenAI's API as data: response bodies, stream events, ``usage`` and the model's card. No HTTP, no Ray, no clock."""

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.types import FinishReason, RoundStats
from serve_app.openai_api import RequestLimits


@dataclass(frozen=True, slots=True)
class ResponseForm:
    """Writes one response in the form of its endpoint. ``created_s`` is Unix time."""

    id: str
    model: str
    created_s: int
    chat: bool
    usage_in_stream: bool = False

    def whole(self, text: str, reason: FinishReason, usage: Mapping[str, object]) -> dict[str, object]:
        """All of it at once."""
        message = {"role": "assistant", "content": text, "refusal": None}
        content: dict[str, object] = {"message": message} if self.chat else {"text": text}
        choice: dict[str, object] = {"index": 0, **content, "logprobs": None, "finish_reason": reason}
        return self._framed("chat.completion", [choice]) | {"usage": usage}

    def role_event(self) -> dict[str, object]:
        """What the stream of a chat opens with."""
        return self._event({"delta": {"role": "assistant", "content": ""}})

    def text_event(self, text: str) -> dict[str, object]:
        """A piece of text."""
        return self._event({"delta": {"content": text}} if self.chat else {"text": text})

    def last_event(self, reason: FinishReason) -> dict[str, object]:
        """Why it ended."""
        return self._event({"delta": {}} if self.chat else {"text": ""}, reason)

    def usage_event(self, usage: Mapping[str, object]) -> dict[str, object]:
        """What it cost, if that was asked for."""
        return self._framed("chat.completion.chunk", []) | {"usage": usage}

    def _event(self, content: Mapping[str, object], reason: FinishReason | None = None) -> dict[str, object]:
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": reason}
        usage = {"usage": None} if self.usage_in_stream else {}  # OpenAI: null on all chunks but the last
        return self._framed("chat.completion.chunk", [choice]) | usage

    def _framed(self, chat_object: str, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": self.id,
            "object": chat_object if self.chat else "text_completion",
            "created": self.created_s,
            "model": self.model,
            "choices": choices,
        }


def usage_of(prompt_tokens: int, completion_tokens: int, stats: RoundStats) -> dict[str, object]:
    """OpenAI's ``usage``, and ``usage.outrider``: how the response was made."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
        "completion_tokens_details": {
            "accepted_prediction_tokens": stats.accepted_tokens,
            "rejected_prediction_tokens": stats.drafted_tokens - stats.accepted_tokens,
        },
        "outrider": {
            "rounds": stats.rounds,
            "speculative_rounds": stats.speculative_rounds,
            "drafted_tokens": stats.drafted_tokens,
            "accepted_tokens": stats.accepted_tokens,
            "lossless": True,
        },
    }


def model_card(limits: RequestLimits, created_s: int) -> dict[str, object]:
    """One entry of ``/v1/models``; ``max_model_len`` is vLLM's name for the context."""
    return {
        "id": limits.model_name,
        "object": "model",
        "created": created_s,
        "owned_by": "outrider",
        "max_model_len": limits.max_context_tokens,
        "outrider": {"max_window": limits.k_max},
    }
