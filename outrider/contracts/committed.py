"""The tokens that one verified round adds to a response."""

from dataclasses import dataclass

from outrider.contracts.requests import FinishReason, TokenLogprobs, TokenOrigin


@dataclass(frozen=True, slots=True)
class CommittedRound:
    """Tokens that a verified round commits, cut at the response's end."""

    token_ids: tuple[int, ...]  # up to the response's end
    finish: FinishReason | None  # None while the response goes on
    origins: tuple[TokenOrigin, ...]  # one per token
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, if asked for
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()  # one per prompt token, likewise, in the first round only
