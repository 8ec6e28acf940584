"""A snapshot of the acceptance estimates, by acceptance rule and draft position.

Trees: sibling j (the first is 1) of a node is tested after j - 1 rejections, against what is left of the target's
distribution (TSLT eq. 25). Its acceptance beta^(j) = 1 - TV(q, p^(j)) (eq. 30) falls with j in a way no single number
tells; taken here is factor_j * beta. The first of k siblings behaves as a chain's token does, so chains and trees share
what they learn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from outrider.contracts.verifying import AcceptanceRule

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DEPTHS = 16  # draft positions told apart; deeper ones count as the last
SIBLINGS = 16  # siblings told apart; later ones count as the last
RULES = tuple(AcceptanceRule)
PRIOR_REJECTION = 0.5  # of a mismatch by a judge that nothing is known of

GrownShape = tuple[int, int]  # rows and window
_GROWN_EXPONENT = 0.4  # the embedded pair's trees of 4 to 16 nodes go as far as this says, or a little further

_ROW = {rule: row for row, rule in enumerate(RULES)}
_GREEDY, _SEMANTIC = _ROW[AcceptanceRule.GREEDY], _ROW[AcceptanceRule.SEMANTIC]


def rule_row(rule: AcceptanceRule) -> int:
    """A rule's row in ``AcceptanceView``'s arrays."""
    return _ROW[rule]


def guessed_grown(means: Floats, shape: GrownShape) -> Floats:
    """How a tree that grows where the drafter is sure goes on, if chains do so by ``means``.

    As many nodes as it is deep are a chain. With more, a layer's rejections become fewer.
    """
    rows, window = shape
    guessed: Floats = 1.0 - (1.0 - means) * (window / rows) ** _GROWN_EXPONENT
    return guessed


@dataclass(frozen=True, slots=True, eq=False)
class AcceptanceView:
    """What is known of acceptance at one moment. Rows are rules, in ``AcceptanceRule``'s order.

    Attributes:
        sibling_factors: ``[rules, SIBLINGS]``: acceptance of sibling j, given that those before it were rejected, over
            the first one's; the first column is 1.
        drafted: ``[rules, DEPTHS]``: a token of a chain is drafted if it is ordered, given that those before it were,
            and accepted; None: all are.
        grown: of trees that grow where the drafter is sure, by their rows and window, ``[rules, DEPTHS]``: one of a
            depth's nodes is accepted, given that one of the depth before it was. Of those that nobody saw there is
            nothing.
    """

    means: Floats  # ``[rules, DEPTHS]``: a single draft token is accepted, given that those before it were
    deviations: Floats  # ``[rules, DEPTHS]``: standard deviations of the means
    sibling_factors: Floats
    sibling_deviations: Floats  # ``[rules, SIBLINGS]``: standard deviations of these
    idle_rounds: Ints  # ``[rules]``: rounds of this generation since the last one that verified a draft by the rule
    streak: int = 0  # its last rounds in a row whose draft was accepted to the end
    rejection: float = PRIOR_REJECTION  # of a mismatch by a judge
    rejection_deviation: float = PRIOR_REJECTION
    drafted: Floats | None = None
    grown: Mapping[GrownShape, Floats] = field(default_factory=dict)

    def token_acceptance(self, rule: AcceptanceRule, depth: int) -> float:
        """Expected acceptance of a chain's token ``depth`` (from 0) that is drafted, those before it being accepted."""
        return float(self.means[_ROW[rule], min(depth, DEPTHS - 1)])

    def chain(self, rule: AcceptanceRule, tokens: int) -> tuple[Floats, Floats]:
        """``[tokens]`` each: that a chain's token is accepted if it is drafted, and that it is drafted if ordered."""
        depths, row = range(tokens), _ROW[rule]
        each = self.means[row].take(depths, mode="clip")
        return each, np.ones(tokens) if self.drafted is None else self.drafted[row].take(depths, mode="clip")

    def optimistic(self, deviations: float) -> "AcceptanceView":
        """The view with everything unsure raised by so many standard deviations."""
        return replace(
            self,
            means=np.minimum(self.means + deviations * self.deviations, 1.0),
            sibling_factors=self.sibling_factors + deviations * self.sibling_deviations,
        )

    def grid(self, depths: int, siblings: int) -> Floats:
        """``[rules, depths, siblings + 1]``: expected acceptance of one of so many nodes, 1 - prod(1 - beta^(j)).

        Source: TSLT eq. 39.
        """
        means = self.means.take(range(depths), axis=1, mode="clip")
        factors = self.sibling_factors.take(range(siblings), axis=1, mode="clip")
        each = np.minimum(means[:, :, None] * factors[:, None, :], 1.0)
        total: Floats = np.zeros((len(RULES), depths, siblings + 1))
        total[:, :, 1:] = 1.0 - np.cumprod(1.0 - each, axis=2)
        return total

    def as_grown(self, shape: GrownShape) -> Floats:
        """``[rules, DEPTHS]``: as ``grown`` has it, or what is taken for it as long as nobody saw such a tree."""
        found = self.grown.get(shape)
        return guessed_grown(self.means, shape) if found is None else found

    def with_judge(self, rejection: float, spread: float) -> "AcceptanceView":
        """The same with acceptance under the semantic rule: a mismatch that is not rejected."""
        means, deviations = self.means.copy(), self.deviations.copy()
        mismatch, unsure = 1.0 - means[_GREEDY], deviations[_GREEDY]
        means[_SEMANTIC] = 1.0 - mismatch * rejection
        deviations[_SEMANTIC] = np.sqrt((rejection * unsure) ** 2 + (mismatch * spread) ** 2)
        return replace(self, means=means, deviations=deviations, rejection=rejection, rejection_deviation=spread)
