"""Choose how many tokens of an n-gram draft to verify: those that maximise the step's committed tokens per second.

Prompt lookup itself takes no time. An n-gram draft costs rows of the verifier's step, for which all blocks of the step
wait. So the first n tokens are verified for which this is largest:

    (blocks + survivals of the first n) / T(n)

where every other block commits one token. It is the batcher's criterion for all drafts of a step
(``scheduling.trimming``), applied before there is a step. For a single generation it is its own speed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.contracts.cost import BatchWork, VerifyCost
from outrider.lookup.text import most_per_second
from outrider.selection.situation import Estimate, VerifierView

_DEARER = 1.25  # factor on a linear estimate of a row's cost, as each row costs more than those before it


@dataclass(frozen=True, slots=True)
class LookupValue:
    """The part of a draft that pays for its rows."""

    tokens: int  # its length, from the draft's front
    gain_tokens: float = 0.0  # expected number of these accepted
    longer_s: float = 0.0  # time that they add to a step
    step_s: float = 0.0  # duration of a step without them


def value_of(survivals: Sequence[float], verifier: VerifierView, position: int) -> LookupValue:
    """Return the part of a chain that pays, for one block in a step of the present size.

    ``survivals`` are of the chain's tokens, falling; ``position``: tokens committed so far.
    """
    cached, others = max(position - 1, 0), _others(verifier)
    with_others = _work(others, cached)

    def step_s(tokens: int) -> float:
        return verifier.cost_model.predict_work_s(with_others.plus(VerifyCost(tokens + 1, cached)))

    best = most_per_second(survivals, others + 1.0, lambda tokens: step_s(tokens) + verifier.fixed_s)
    alone_s = step_s(0)
    return LookupValue(best, sum(survivals[:best]), step_s(best) - alone_s, alone_s)


def row_price(tokens: int, verifier: VerifierView, position: int) -> float:
    """Return the time that each of ``tokens`` rows adds to a step, as a share of the step without them.

    For autonomous runs: a step then is the pass only, without a fixed part.
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
    """Whether an n-gram draft has a lower cost per token than the chosen plan, by the measure of ``cost_aware``."""
    if value.tokens == 0:
        return False
    load, blocks, tokens = chosen.load, max(verifier.batch_blocks, 1.0), 1.0 + value.gain_tokens
    own_s = (chosen.without_draft_s + value.longer_s) / tokens
    shared_s = (value.step_s + blocks * value.longer_s) / tokens
    return (1.0 - load) * own_s + load * shared_s < (
        (1.0 - load) * chosen.seconds_per_token + load * blocks * chosen.verifier_s_per_token
    )
