"""How many tokens a response may have: what its request asks for, as far as there is room and it may ask for it.

Agents send a fixed number, often 32,000, whatever the context has left. Unless ``http.strict_fields`` is set that means
as many as there may be, and ``x-outrider-max-tokens`` tells how many those are.
"""

from collections.abc import Mapping, Sequence

from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import GenerationRequest
from serve_app.api.http_errors import PromptTooLongError
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.cost import affordable_tokens
from serve_app.api.service import RequestLimits

CLAMPED_HEADER = "x-outrider-max-tokens"
_DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's


def output_tokens(body: CompletionBody | ChatBody, prompt_len: int, limits: RequestLimits, prompts: int) -> int:
    """Return how many tokens a choice may have; 0: its prompt is echoed, and nothing else.

    Raises:
        ParameterError: the number is too small or, where fields are strict, too large.
        PromptTooLongError: it exceeds the context, where fields are strict, or nothing is left of that.
    """
    echo = isinstance(body, CompletionBody) and body.echo
    affordable = affordable_tokens(body, prompts, prompt_len if echo else 0)
    room = limits.max_context_tokens - prompt_len
    most = min(room, limits.max_output_tokens)
    field, asked = _asked(body)
    if asked is None:
        default = (limits.defaults.max_tokens or most) if isinstance(body, ChatBody) else _DEFAULT_COMPLETION_TOKENS
        return min(default, most, affordable)
    least = 0 if echo else 1
    if asked < least or (limits.strict_fields and asked > limits.max_output_tokens):
        raise ParameterError(field, f"an integer in {least}..{limits.max_output_tokens}", asked)
    if asked > room and (limits.strict_fields or room < 1):
        raise PromptTooLongError(
            field,
            f"{field} needs at most {room} (a context of {limits.max_context_tokens} tokens, {prompt_len} of them "
            f"prompt), found {asked}; lower it or shorten the prompt",
        )
    return asked if limits.strict_fields else min(asked, most, affordable)


def length_headers(body: CompletionBody | ChatBody, requests: Sequence[GenerationRequest]) -> Mapping[str, str]:
    """Return the header that tells the fewest tokens of any choice, if these are fewer than were asked for."""
    _, asked = _asked(body)
    fewest = min(request.max_tokens for request in requests)
    return {CLAMPED_HEADER: str(fewest)} if asked is not None and fewest < asked else {}


def _asked(body: CompletionBody | ChatBody) -> tuple[str, int | None]:
    """Return the field that names a length, and that."""
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        if body.max_tokens not in (None, body.max_completion_tokens):
            raise ParameterError("max_tokens", "to equal max_completion_tokens, or be left out", body.max_tokens)
        return "max_completion_tokens", body.max_completion_tokens
    return "max_tokens", body.max_tokens
