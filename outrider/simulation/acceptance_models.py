"""What is accepted of a draft.

Chance belongs to the token, not to the moment: whether a draft token at a position of a response would be accepted is
decided by one uniform number of that position, below the probability or not. So systems, windows, policies and
trees are compared on the same draws, however differently they reach a position. A position that ended a round is never
drafted again (the correction or bonus token stands there), so rounds stay independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from itertools import accumulate
from operator import mul
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from outrider.selection.yields import expected_tokens

Probability = Annotated[float, Field(ge=0, le=1)]

NODE_SHARE = 0.1  # what a further node of a tree's layer adds to the step that computes it, in steps


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class SimPredictor:
    """The drafter's rejection predictor: drafting stops at the first token it flags (WISP section 4.2, Table 4).

    The defaults are WISP's operating point. Tokens behind the first that would be rejected are flagged as their own
    draws have it: the paper says nothing of them.
    """

    recall: Probability = 0.80  # share of tokens that would be accepted which it lets pass
    false_positive_rate: Probability = 0.425  # share of tokens that would be rejected which it lets pass
    sends_flagged: bool = True  # the flagged token is sent before drafting stops; else it is withheld


@plain_dataclass(frozen=True, slots=True)
class DepthAcceptance:
    """What a device drafts at most, and how each depth of it fares.

    Attributes:
        passes: probability of acceptance at each depth: that of a token, or of one of a node's siblings.
    """

    passes: tuple[float, ...]
    nodes: tuple[int, ...]  # drafted tokens down to each depth
    steps: tuple[float, ...]  # drafting steps down to each depth; nodes that share one cost their share

    @property
    def expected_tokens(self) -> float:
        """Committed by a round with the whole draft, correction or bonus token included (AAL)."""
        return expected_tokens(self.passes)


def acceptance_at(acceptance: Sequence[float], depth: int) -> float:
    """Of the token at a depth; the last given holds for all behind it."""
    return acceptance[min(depth, len(acceptance) - 1)]


def draft_shape(
    acceptance: Sequence[float], window: int, expansion: Sequence[int] = (), sibling_factor: float = 0.5
) -> DepthAcceptance:
    """A chain, or a tree whose nodes have ``expansion[depth]`` children each.

    Sibling k (from 0) of a node is accepted with b * sibling_factor^k, given that those before it were rejected, so
    one of them is with 1 - prod(1 - b * sibling_factor^k) (TSLT eq. 39, with factors as in
    ``outrider.selection.acceptance``). ``acceptance`` is b by depth, of at least one; the last holds for all behind it.
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
