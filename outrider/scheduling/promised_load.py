"""Compute the promised load: verifier seconds per second that promised speeds need. Pure.

A response promised s tokens/s whose rounds commit E tokens needs s / E rounds a second. Each takes what it adds to a
pass. Its prompt is spread over its output. The constant c of a pass is charged to no response: in passes of length L it
takes c / L of the time, so loads up to 1 - c / L can be served (``batch_length``). Loads add up; from 1 on no schedule
keeps every promise.
"""

from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from outrider.contracts.cost import BatchWork, CostModel, VerifyCost, work_of_alike

_Floats = npt.NDArray[np.float64]

_ALIKE = 16  # blocks in the pass that prices one: alone, one adds next to nothing to a pass that reads all weights


@dataclass(frozen=True, slots=True)
class PromisedNeed:
    """Figures of one response that its load follows from."""

    tokens_per_s: float  # promised; 0 is best effort, which has no load
    expected_tokens: float  # committed by a round, correction or bonus token included
    block: VerifyCost  # of one round
    prompt_tokens: int = 0  # positions of the prompt to compute; cached ones are not counted
    output_tokens: float = inf  # expected output, over which the prompt is spread


def added_s(cost: VerifyCost, cost_model: CostModel) -> float:
    """Return the seconds that one block adds to a pass of many."""
    together_s = cost_model.predict_work_s(work_of_alike(cost, _ALIKE))
    return max(0.0, together_s - cost_model.predict_work_s(BatchWork())) / _ALIKE


def each_added_s(new_tokens: _Floats, cached_tokens: _Floats, cost_model: CostModel) -> _Floats:
    """Compute ``added_s`` of ``[n]`` blocks at once."""
    works = np.stack((new_tokens, (new_tokens + cached_tokens) * new_tokens, cached_tokens), axis=1)
    together_s = cost_model.predict_works_s(_ALIKE * works)
    added: _Floats = np.maximum(0.0, together_s - cost_model.predict_work_s(BatchWork())) / _ALIKE
    return added


def load_of(need: PromisedNeed, cost_model: CostModel) -> float:
    """Return the verifier seconds per second that one response needs to keep its promise."""
    if need.tokens_per_s == 0.0:
        return 0.0
    each_token_s = added_s(need.block, cost_model) / need.expected_tokens
    if need.prompt_tokens:
        each_token_s += added_s(VerifyCost(need.prompt_tokens, 0), cost_model) / need.output_tokens
    return need.tokens_per_s * each_token_s
