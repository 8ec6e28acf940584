"""Compute the load of a promise in the speculation mode in use, and the load that all promises may need. Pure.

The limit of all promises' load follows from the constant c of a pass and the pass length L that the fastest promise
allows: ``limit = max_load (1 - c / L)``, ``L = (E / speed - away_s) / (1 + drafted / 2)`` (docs/design/0037).
"""

from dataclasses import dataclass
from math import ceil, floor

from outrider.admission.rounds import RoundShape
from outrider.contracts.cost import BatchWork, CostModel, VerifyCost
from outrider.scheduling.promised_load import PromisedNeed, load_of

_WAITED = 0.5  # of a pass, on average, for a block that arrives in its middle


@dataclass(frozen=True, slots=True)
class VerifierNow:
    cost_model: CostModel
    round: RoundShape  # of the speculation mode in use
    kv_tokens: int | None = None  # positions it can hold; None is no limit, or not known yet
    block_tokens: int = 16  # positions of a KV block


def response_load(tokens_per_s: float, prompt_tokens: int, output_tokens: float, verifier: VerifierNow) -> float:
    """Return the verifier seconds per second that a response needs to keep its promise.

    ``tokens_per_s`` 0 is best effort, which has no load; ``prompt_tokens`` are computed before its first token.
    """
    if tokens_per_s == 0.0:
        return 0.0
    # A round reads the prompt and, on average, half of the output.
    shape, output_tokens = verifier.round, max(1.0, output_tokens)
    cached, low = prompt_tokens + round(output_tokens / 2.0), floor(shape.rows)
    share = shape.rows - low  # mean rows are no integer: weight the prices of both neighbours
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
    """Return the share of time left to rows in passes as long as the fastest promise allows; 0 if it cannot be kept."""
    if fastest_tokens_per_s == 0.0:
        return 1.0
    shape, constant_s = verifier.round, verifier.cost_model.predict_work_s(BatchWork())
    spare_s = shape.tokens / fastest_tokens_per_s - shape.away_s
    # A round takes its own pass and, if it was drafted, half of the one under way.
    longest_s = spare_s / (1.0 + _WAITED * shape.drafted)
    return max(0.0, 1.0 - constant_s / longest_s) if longest_s > 0.0 else 0.0
