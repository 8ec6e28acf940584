"""What a promise needs of a verifier in the speculation mode in use, and how much all of them may need. Pure.

Each response's part is ``outrider.scheduling.promised_load``: its rounds and, spread over its output, its prompt. What
a pass costs whatever is in it (c) takes c / L of the time in passes of length L, and passes may be as long as the
fastest promise lets them: its rounds bring E tokens, are ``away_s`` with their devices, and wait for half of the pass
under way where they come in the middle of it. So

    limit = max_load (1 - c / L),   L = (E / speed - away_s) / (1 + drafted / 2)

and where L is not above c the speed cannot be kept at all.

The share of time that passes leave to rows, 1 - c / L, is what makes a fast promise dear: while it is made no pass is
longer than it allows, whoever is in it.
"""

from dataclasses import dataclass
from math import ceil, floor

from outrider.admission.rounds import RoundShape
from outrider.contracts.cost import BatchWork, CostModel, VerifyCost
from outrider.scheduling.promised_load import PromisedNeed, load_of

_WAITED = 0.5  # of a pass, for who comes in the middle of it


@dataclass(frozen=True, slots=True)
class VerifierNow:
    """A verifier as admission sees it."""

    cost_model: CostModel
    round: RoundShape  # of the speculation mode in use
    kv_tokens: int | None = None  # positions it holds at most; None is no limit, or not known yet
    block_tokens: int = 16  # positions of a block of it


def response_load(tokens_per_s: float, prompt_tokens: int, output_tokens: float, verifier: VerifierNow) -> float:
    """Verifier seconds per second that a response needs to keep its promise.

    Args:
        tokens_per_s: promised; 0 needs nothing.
        prompt_tokens: to compute before its first token.
        output_tokens: that it is expected to have.
        verifier: in the speculation mode in use.
    """
    if tokens_per_s == 0.0:
        return 0.0
    shape, output_tokens = verifier.round, max(1.0, output_tokens)
    cached, low = prompt_tokens + round(output_tokens / 2.0), floor(shape.rows)
    share = shape.rows - low  # a mean of rows is no whole number: price those beside it
    return sum(
        weight
        * load_of(
            PromisedNeed(tokens_per_s, shape.tokens, VerifyCost(rows, cached), prompt_tokens, output_tokens),
            verifier.cost_model,
        )
        for rows, weight in ((low, 1.0 - share), (ceil(shape.rows), share))
        if weight
    )


def useful_share(fastest_tokens_per_s: float, verifier: VerifierNow) -> float:
    """Of the time, what is left to rows in passes as long as the fastest promise allows; 0 if it cannot be kept."""
    if fastest_tokens_per_s == 0.0:
        return 1.0
    shape, constant_s = verifier.round, verifier.cost_model.predict_work_s(BatchWork())
    spare_s = shape.tokens / fastest_tokens_per_s - shape.away_s
    longest_s = spare_s / (1.0 + _WAITED * shape.drafted)
    return max(0.0, 1.0 - constant_s / longest_s) if longest_s > 0.0 else 0.0
