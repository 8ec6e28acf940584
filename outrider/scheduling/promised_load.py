"""The promised load: verifier seconds per second that promises need. Pure.

A response promised s tokens/s whose rounds commit E tokens needs s / E rounds a second, each of which takes what it
adds to a pass; beside them its prompt, spread over its output. What a pass costs whatever is in it belongs to nobody:
in passes of length L it takes c / L of the time, so loads up to 1 - c / L can be served (``batch_length``). Loads add
up; from 1 on no schedule keeps every promise.
"""

from dataclasses import dataclass
from math import inf

from outrider.contracts.cost import BatchWork, CostModel, VerifyCost

_ALIKE = 16  # blocks in the pass that prices one: to a pass that reads all weights one alone adds next to nothing
_EMPTY = BatchWork()


@dataclass(frozen=True, slots=True)
class PromisedPace:
    """What one response needs of the verifier, as far as is known."""

    tokens_per_s: float  # promised; 0 needs nothing
    expected_tokens: float  # committed by one of its rounds, correction or bonus token included
    block: VerifyCost  # of one of its rounds
    prompt_tokens: int = 0  # to compute before its first token, as far as they are not cached
    output_tokens: float = inf  # it is expected to have, over which its prompt is spread


def added_s(cost: VerifyCost, cost_model: CostModel) -> float:
    """Seconds that one block adds to a pass of many."""
    return added_behind_s(cost.new_tokens, cost.cached_tokens, cost_model.predict_work_s(_EMPTY), cost_model)


def added_behind_s(new: int, cached: int, constant_s: float, cost_model: CostModel) -> float:
    """The same of so many positions, where it is known already what an empty pass takes."""
    together_s = cost_model.predict_work_s(BatchWork(_ALIKE * new, _ALIKE * (new + cached) * new, _ALIKE * cached))
    return (together_s - constant_s) / _ALIKE if together_s > constant_s else 0.0


def load_of(pace: PromisedPace, cost_model: CostModel) -> float:
    """Verifier seconds per second that one response needs to keep its promise."""
    if pace.tokens_per_s == 0.0:
        return 0.0
    each_token_s = added_s(pace.block, cost_model) / pace.expected_tokens
    if pace.prompt_tokens:
        each_token_s += added_s(VerifyCost(pace.prompt_tokens, 0), cost_model) / pace.output_tokens
    return pace.tokens_per_s * each_token_s
