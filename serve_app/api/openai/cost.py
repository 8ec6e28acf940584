"""A bound on what one request may cost: tokens of all its choices, times what is told of each.

What is told of a token is 120 bytes for each alternative when a coordinator's chunk with a whole prompt's comes in, and
30 to 60 bytes of JSON until a document is sent. At the bound that is some 120 and 60 MB, in one process for all.
"""

from outrider.contracts.errors import ParameterError
from serve_app.api.openai.bodies import ChatBody, CompletionBody

MAX_COST = 10**6


def values_per_token(body: CompletionBody | ChatBody) -> int:
    """The token; its log-probability and the alternatives to it; and who proposed it."""
    logprobs = 0 if body.alternatives is None else 1 + body.alternatives
    return 1 + logprobs + body.outrider.details


def affordable_tokens(body: CompletionBody | ChatBody, prompts: int, echoed_tokens: int) -> int:
    """Of output, for each choice of one of so many prompts, at least 1; where a request does not say how many."""
    return max(1, MAX_COST // (prompts * body.n * values_per_token(body)) - echoed_tokens)


def check_cost(body: CompletionBody | ChatBody, choice_tokens: int, choices: int) -> None:
    """Refuse what is too much.

    Args:
        body: of the request.
        choice_tokens: tokens of all choices together, those of an echoed prompt included.
        choices: how many there are.

    Raises:
        ParameterError: the cost is above ``MAX_COST``.
    """
    values = values_per_token(body)
    if choice_tokens * values > MAX_COST:
        echoed = ", those of the echoed prompt included" if isinstance(body, CompletionBody) and body.echo else ""
        raise ParameterError(
            "max_tokens",
            f"choices x tokens x values told of each to be at most {MAX_COST}, in less choices, tokens or logprobs",
            f"{choice_tokens} tokens in {choices} choices{echoed}, x {values}",
        )
