"""What a round adds to a response."""

from dataclasses import dataclass

from outrider.contracts.requests import FinishReason, TokenLogprobs, TokenOrigin


@dataclass(frozen=True, slots=True)
class Committed:
    """What one verified round adds to the response.

    Attributes:
        token_ids: up to the response's end.
        finish: None while the response goes on.
        origins: one per token.
        logprobs: one per token, if asked for.
        prompt_logprobs: one per prompt token, if asked for, with the first round only.
    """

    token_ids: tuple[int, ...]
    finish: FinishReason | None
    origins: tuple[TokenOrigin, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
