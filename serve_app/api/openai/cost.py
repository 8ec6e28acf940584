"""Bound on a request's cost: tokens of all its choices, times the values reported for each.

A token costs 120 bytes per alternative when a coordinator's chunk with a whole prompt arrives, and 30 to 60 bytes of
JSON until a document is sent: some 120 and 60 MB at the bound, in the one process that serves all requests.
"""

from outrider.contracts.errors import ParameterError
from serve_app.api.openai.bodies import ChatBody, CompletionBody

MAX_COST = 10**6


def values_per_token(body: CompletionBody | ChatBody) -> int:
    """Values reported per token: the token; its log-probability and alternatives; its origin; its id."""
    logprobs = 0 if body.alternatives is None else 1 + body.alternatives
    return 1 + logprobs + body.outrider.details + body.return_token_ids


def affordable_tokens(body: CompletionBody | ChatBody, prompts: int, echoed_tokens: int) -> int:
    """Output tokens that each choice can afford, at least 1; for a request that does not limit them."""
    return max(1, MAX_COST // (prompts * body.n * values_per_token(body)) - echoed_tokens)


def check_cost(body: CompletionBody | ChatBody, choice_tokens: int, choices: int) -> None:
    """Refuse a request beyond ``MAX_COST``; ``choice_tokens``: of all choices, echoed prompts included."""
    values = values_per_token(body)
    if choice_tokens * values > MAX_COST:
        echoed = ", those of the echoed prompt included" if isinstance(body, CompletionBody) and body.echo else ""
        raise ParameterError(
            "max_tokens",
            f"choices x tokens x values reported of each to be at most {MAX_COST}, in less choices, tokens or logprobs",
            f"{choice_tokens} tokens in {choices} choices{echoed}, x {values}",
        )
