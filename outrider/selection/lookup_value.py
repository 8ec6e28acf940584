"""How many tokens of a prompt-lookup draft are worth a verifier row each, at the present cost of a row.

What is looked up in a text is there at once and for nothing. What it costs is rows of the verifier's step, which all
who share the step wait for: of n drafted tokens, n are verified that have the step commit most tokens per second,

    (blocks + survivals of the first n) / T(n)

with one token of every other block. It is what the batcher asks of all drafts of a step (``scheduling.trimming``),
asked before there is a step. For one generation alone that is its own speed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.contracts.cost import BatchWork, VerifyCost
from outrider.lookup.text import most_per_second
from outrider.selection.situation import Estimate, VerifierView

_DEARER = 1.25  # than a straight line through steps of all sizes says: each row costs more than those before it


@dataclass(frozen=True, slots=True)
class LookupValue:
    """What is worth verifying.

    Attributes:
        tokens: of the draft's front.
        gain_tokens: expected of them.
        longer_s: by so much they make a step longer.
        step_s: a step without them.
    """

    tokens: int
    gain_tokens: float = 0.0
    longer_s: float = 0.0
    step_s: float = 0.0


def value_of(survivals: Sequence[float], verifier: VerifierView, position: int) -> LookupValue:
    """How much of a chain pays, of one block in a step as they are now.

    Args:
        survivals: falling; probability of each token that it is accepted with all before it.
        verifier: as it is now.
        position: tokens committed so far.
    """
    cached, others = max(position - 1, 0), _others(verifier)
    with_others = _work(others, cached)

    def step_s(tokens: int) -> float:
        return verifier.cost_model.predict_work_s(with_others.plus(VerifyCost(tokens + 1, cached)))

    best = most_per_second(survivals, others + 1.0, lambda tokens: step_s(tokens) + verifier.fixed_s)
    alone_s = step_s(0)
    return LookupValue(best, sum(survivals[:best]), step_s(best) - alone_s, alone_s)


def row_price(tokens: int, verifier: VerifierView, position: int) -> float:
    """By how much of itself each of so many rows makes a step longer, of one block in a step as they are now.

    Of a verifier that goes on by itself: there is nothing in a step beside the pass.
    """
    cached, predict_s = max(position - 1, 0), verifier.cost_model.predict_work_s
    with_others = _work(_others(verifier), cached)
    alone_s, long_s = (predict_s(with_others.plus(VerifyCost(1 + more, cached))) for more in (0, tokens))
    return _DEARER * max(0.0, long_s - alone_s) / (tokens * alone_s) if alone_s > 0.0 else 0.0


def _others(verifier: VerifierView) -> int:
    return max(1, round(verifier.batch_blocks)) - 1


def _work(others: int, cached: int) -> BatchWork:
    return BatchWork(others, others * (cached + 1), others * cached)


def beats(value: LookupValue, verifier: VerifierView, chosen: Estimate) -> bool:
    """Whether that is cheaper, per token, than what was chosen to be drafted, to its generation and all others."""
    if value.tokens == 0:
        return False
    load, blocks, tokens = chosen.load, max(verifier.batch_blocks, 1.0), 1.0 + value.gain_tokens
    own_s = (chosen.alone_s + value.longer_s) / tokens
    shared_s = (value.step_s + blocks * value.longer_s) / tokens
    return (1.0 - load) * own_s + load * shared_s < (
        (1.0 - load) * chosen.seconds_per_token + load * blocks * chosen.verifier_s_per_token
    )
