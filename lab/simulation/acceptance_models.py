"""Model the acceptance of draft tokens by probabilities at each depth of a chain or tree.

Each position of a response has one uniform number: a draft token there is accepted if the number is below its
probability. So systems, windows, policies and trees are compared on the same draws, however they reach a position. A
position that ended a round is never drafted again (it has the correction or bonus token), so rounds are independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from itertools import accumulate
from operator import mul
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


def expected_tokens(acceptances: Sequence[float], *, bonus: bool = True) -> float:
    """Return a round's expected committed tokens, correction or bonus token included: vLLM's mean acceptance length.

    Args:
        acceptances: at each depth, P(accepted) given acceptance up to there: of a chain's token, or of one of a tree
            node's siblings. Equal ones give (1 - b^(K+1)) / (1 - b).
        bonus: whether the target's own token follows a draft that was accepted whole.

    Source: TSLT eq. 8, generalised to acceptances that differ from position to position.
    """
    survivals: list[float] = list(accumulate(acceptances, mul))
    complete = survivals[-1] if survivals else 1.0
    return sum(survivals) + (1.0 if bonus else 1.0 - complete)


Probability = Annotated[float, Field(ge=0, le=1)]

NODE_SHARE = 0.1  # time that each further node of a tree's layer adds to the layer's drafting step, in steps


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class SimPredictor:
    """The drafter's rejection predictor: drafting stops at the first token it flags (WISP section 4.2, Table 4).

    The defaults are WISP's operating point. Tokens after the first one that would be rejected are flagged by their own
    draws: the paper does not specify them.
    """

    recall: Probability = 0.80  # share of the tokens that would be accepted that it does not flag
    false_positive_rate: Probability = 0.425  # share of the tokens that would be rejected that it does not flag
    sends_flagged: bool = True  # the flagged token is sent before drafting stops; else it is withheld


@plain_dataclass(frozen=True, slots=True)
class DepthAcceptance:
    """A whole draft by depth: probabilities, nodes and drafting steps."""

    passes: tuple[float, ...]  # probability at each depth that its token, or one of its siblings, is accepted
    nodes: tuple[int, ...]  # drafted tokens down to each depth
    steps: tuple[float, ...]  # drafting steps down to each depth; wider layers take longer (``NODE_SHARE``)

    @property
    def expected_tokens(self) -> float:
        """Expected tokens committed by a round with the whole draft, correction or bonus token included (AAL)."""
        return expected_tokens(self.passes)


def acceptance_at(acceptance: Sequence[float], depth: int) -> float:
    """Return the probability of a token at a depth; the last one given holds for all greater depths."""
    return acceptance[min(depth, len(acceptance) - 1)]


def draft_shape(
    acceptance: Sequence[float], window: int, expansion: Sequence[int] = (), sibling_factor: float = 0.5
) -> DepthAcceptance:
    """Return a chain of ``window`` tokens, or a tree whose nodes have ``expansion[depth]`` children each.

    Sibling k (from 0) of a node is accepted with probability b * sibling_factor^k if those before it were rejected. So
    one of them is accepted with 1 - prod(1 - b * sibling_factor^k) (TSLT eq. 39, with factors as in
    ``outrider.selection.acceptance``). ``acceptance`` is b by depth, at least one; the last holds for greater depths.
    """
    children = tuple(expansion) or (1,) * window
    layers = tuple(accumulate(children, mul))
    parents = (1, *layers)[: len(layers)]
    passes = tuple(
        _one_of(acceptance_at(acceptance, depth), siblings, sibling_factor) for depth, siblings in enumerate(children)
    )
    steps = tuple(accumulate(1.0 + NODE_SHARE * (nodes - 1) for nodes in parents))
    return DepthAcceptance(passes, tuple(accumulate(layers)), steps)


def _one_of(first: float, siblings: int, factor: float) -> float:
    rejected = 1.0
    for sibling in range(siblings):
        rejected *= 1.0 - first * factor**sibling
    return 1.0 - rejected
