"""What is accepted of a draft: models of it.

Luck belongs to the token, not to the moment: whether a draft token at a position of a response would be accepted is
decided by one uniform number of that position, below the model's probability or not. So systems, windows, policies and
trees are compared on the same luck, however differently they reach a position. A position that ended a round is never
drafted again (the correction or bonus token stands there), so rounds stay independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Protocol

from outrider.contracts.errors import ParameterError
from outrider.selection.yields import expected_tokens


class AcceptanceModel(Protocol):
    """Probabilities of acceptance by draft position."""

    def at(self, depth: int) -> float:
        """That a single token ``depth`` places into a draft (from 0) is accepted, given that those before it were."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantAcceptance:
    """The same everywhere: ``token_acceptance``.

    Raises:
        ParameterError: no probability.
    """

    token_acceptance: float

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        _check_probability("token_acceptance", self.token_acceptance)

    def at(self, depth: int) -> float:  # noqa: ARG002 (one signature for all models)
        """The same at every depth."""
        return self.token_acceptance


@dataclass(frozen=True, slots=True)
class PositionAcceptance:
    """One for each place in a draft; the last holds for all behind it.

    Raises:
        ParameterError: none is given, or one is no probability.
    """

    token_acceptances: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what is no list of probabilities."""
        if not self.token_acceptances:
            raise ParameterError("token_acceptances", "at least one probability", self.token_acceptances)
        for value in self.token_acceptances:
            _check_probability("token_acceptances", value)

    def at(self, depth: int) -> float:
        """The probability at a depth; beyond the last given one it stays."""
        return self.token_acceptances[min(depth, len(self.token_acceptances) - 1)]


@dataclass(frozen=True, slots=True)
class Predictor:
    """The drafter's rejection predictor: drafting stops at the first token it flags (WISP section 4.2, Table 4).

    The defaults are WISP's operating point. Tokens behind the first that would be rejected are flagged as their own
    luck has it: the paper says nothing of them.

    Attributes:
        recall: share of tokens that would be accepted which it lets pass.
        false_positive_rate: share of tokens that would be rejected which it lets pass.
        sends_flagged: the flagged token is sent before drafting stops; else it is withheld.

    Raises:
        ParameterError: a rate is no probability.
    """

    recall: float = 0.80
    false_positive_rate: float = 0.425
    sends_flagged: bool = True

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        _check_probability("recall", self.recall)
        _check_probability("false_positive_rate", self.false_positive_rate)


@dataclass(frozen=True, slots=True)
class DraftShape:
    """What a device drafts at most, and how each depth of it fares.

    Attributes:
        passes: probability of acceptance at each depth: that of a token, or of one of a node's siblings.
        nodes: drafted tokens down to each depth.
        steps: drafting steps down to each depth; nodes that share one cost their share.
    """

    passes: tuple[float, ...]
    nodes: tuple[int, ...]
    steps: tuple[float, ...]

    @property
    def expected_tokens(self) -> float:
        """Committed by a round with the whole draft, correction or bonus token included (AAL)."""
        return expected_tokens(self.passes)


def draft_shape(
    model: AcceptanceModel,
    window: int,
    expansion: Sequence[int] = (),
    sibling_factor: float = 0.5,
    node_share: float = 0.1,
) -> DraftShape:
    """A chain, or a tree whose nodes have ``expansion[depth]`` children each.

    Sibling k (from 0) of a node is accepted with b * sibling_factor^k, given that those before it were rejected, so
    one of them is with 1 - prod(1 - b * sibling_factor^k) (TSLT eq. 39, with factors as in
    ``outrider.selection.acceptance``).

    Args:
        model: gives b by depth.
        window: tokens of a chain; ignored if there is an expansion.
        expansion: children by depth; () is a chain.
        sibling_factor: how acceptance falls from sibling to sibling.
        node_share: what each further node of a layer adds to the step that computes it, in steps.
    """
    children = tuple(expansion) or (1,) * window
    layers = tuple(accumulate(children, mul))
    parents = (1, *layers)[: len(layers)]
    passes = tuple(_one_of(model.at(depth), siblings, sibling_factor) for depth, siblings in enumerate(children))
    steps = tuple(accumulate(1.0 + node_share * (nodes - 1) for nodes in parents))
    return DraftShape(passes, tuple(accumulate(layers)), steps)


def _one_of(first: float, siblings: int, factor: float) -> float:
    rejected = 1.0
    for sibling in range(siblings):
        rejected *= 1.0 - first * factor**sibling
    return 1.0 - rejected


def _check_probability(field: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ParameterError(field, "a number in 0..1", value)
