"""Log-probabilities in the two forms of OpenAI's API."""

from collections.abc import Sequence

from outrider.text.tokens import TokenTable
from serve_app.api.openai.choices import ShownToken

_LEAST = -9999.0  # what OpenAI writes for a token that cannot occur; JSON has no infinity


def chat_logprobs(tokens: Sequence[ShownToken], table: TokenTable) -> dict[str, object]:
    """``choices[].logprobs`` of a chat."""
    content = [
        _entry(item.token_id, item.logprobs.logprob, table)
        | {"top_logprobs": [_entry(token_id, logprob, table) for token_id, logprob in item.logprobs.top]}
        for item in tokens
        if item.logprobs is not None
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(tokens: Sequence[ShownToken], table: TokenTable) -> dict[str, object]:
    """``choices[].logprobs`` of a completion. ``top_logprobs`` has the token itself as well, as OpenAI's."""
    return {
        "tokens": [table.name(item.token_id) for item in tokens],
        "token_logprobs": [None if item.logprobs is None else max(item.logprobs.logprob, _LEAST) for item in tokens],
        "top_logprobs": [_by_name(item, table) for item in tokens],
        "text_offset": [item.text_offset for item in tokens],
    }


def _entry(token_id: int, logprob: float, table: TokenTable) -> dict[str, object]:
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
        named.setdefault(table.name(token_id), max(logprob, _LEAST))  # of two tokens with one name the likelier
    return named
