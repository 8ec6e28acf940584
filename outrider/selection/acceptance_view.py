"""Snapshot of acceptance estimates by acceptance rule and draft position, and what chains and trees yield by them.

Trees: sibling j (from 1) of a node is tested after j - 1 rejections, against the residual of the target's distribution
(TSLT eq. 25). Its acceptance beta^(j) = 1 - TV(q, p^(j)) (eq. 30) falls with j in a way that no single number captures;
it is approximated by factor_j * beta. The first of k siblings is accepted like a chain's token, so chains and trees
share their statistics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from outrider.contracts.verifying import AcceptanceRule

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DEPTHS = 16  # draft positions with statistics of their own; deeper ones count as the last
SIBLINGS = 16  # siblings with statistics of their own; later ones count as the last
RULES = tuple(AcceptanceRule)
PRIOR_REJECTION = 0.5  # probability that an unknown judge rejects a mismatch

GrownShape = tuple[int, int]  # rows and window
_GROWN_EXPONENT = 0.4  # trees of 4 to 16 nodes of the embedded pair get as deep as this predicts, or a little deeper

_ROW = {rule: row for row, rule in enumerate(RULES)}
_GREEDY, _SEMANTIC = _ROW[AcceptanceRule.GREEDY], _ROW[AcceptanceRule.SEMANTIC]


def rule_row(rule: AcceptanceRule) -> int:
    """Return a rule's row in ``AcceptanceView``'s arrays."""
    return _ROW[rule]


def guessed_grown(means: Floats, shape: GrownShape) -> Floats:
    """Guess a dynamic tree's acceptance by depth from a chain's ``means``: 1 - (1 - mean) * (depth / nodes)^0.4.

    With as many nodes as layers it is a chain; with more, rejections in a layer become rarer.
    """
    rows, window = shape
    guessed: Floats = 1.0 - (1.0 - means) * (window / rows) ** _GROWN_EXPONENT
    return guessed


@dataclass(frozen=True, slots=True, eq=False)
class AcceptanceView:
    """Acceptance estimates at one moment. Rows are rules, in ``AcceptanceRule``'s order.

    Attributes:
        sibling_factors: ``[rules, SIBLINGS]``: acceptance of sibling j, given that those before it were rejected, over
            the first one's; the first column is 1.
        drafted: ``[rules, DEPTHS]``: probability that an ordered token of a chain is drafted, given that those before
            it were drafted and accepted; None: all are.
        grown: by rows and window of dynamic trees seen so far, ``[rules, DEPTHS]``: probability that one of a depth's
            nodes is accepted, given that one of the depth before was.
    """

    means: Floats  # ``[rules, DEPTHS]``: probability that a draft token is accepted, given that those before it were
    deviations: Floats  # ``[rules, DEPTHS]``: standard deviations of the means
    sibling_factors: Floats
    sibling_deviations: Floats  # ``[rules, SIBLINGS]``: standard deviations of these
    idle_rounds: Ints  # ``[rules]``: rounds of this generation since the last one that verified a draft by the rule
    streak: int = 0  # length of the present run of rounds whose draft was accepted whole
    rejection: float = PRIOR_REJECTION  # probability that the judge rejects a mismatch
    rejection_deviation: float = PRIOR_REJECTION
    drafted: Floats | None = None
    grown: Mapping[GrownShape, Floats] = field(default_factory=dict)

    def token_acceptance(self, rule: AcceptanceRule, depth: int) -> float:
        """Return P(accepted) of a chain's drafted token at ``depth`` (from 0), given that those before it were."""
        return float(self.means[_ROW[rule], min(depth, DEPTHS - 1)])

    def chain(self, rule: AcceptanceRule, tokens: int) -> tuple[Floats, Floats]:
        """Return ``[tokens]`` each: P(accepted if drafted) and P(drafted if ordered) of a chain's tokens."""
        depths, row = range(tokens), _ROW[rule]
        each = self.means[row].take(depths, mode="clip")
        return each, np.ones(tokens) if self.drafted is None else self.drafted[row].take(depths, mode="clip")

    def optimistic(self, deviations: float) -> "AcceptanceView":
        """Return the view with means and factors raised by so many standard deviations."""
        return replace(
            self,
            means=np.minimum(self.means + deviations * self.deviations, 1.0),
            sibling_factors=self.sibling_factors + deviations * self.sibling_deviations,
        )

    def grid(self, depths: int, siblings: int) -> Floats:
        """Return ``[rules, depths, siblings + 1]``: P(one of k siblings is accepted) = 1 - prod(1 - beta^(j)).

        Source: TSLT eq. 39.
        """
        means = self.means.take(range(depths), axis=1, mode="clip")
        factors = self.sibling_factors.take(range(siblings), axis=1, mode="clip")
        each = np.minimum(means[:, :, None] * factors[:, None, :], 1.0)
        total: Floats = np.zeros((len(RULES), depths, siblings + 1))
        total[:, :, 1:] = 1.0 - np.cumprod(1.0 - each, axis=2)
        return total

    def as_grown(self, shape: GrownShape) -> Floats:
        """Return ``[rules, DEPTHS]``: ``grown`` of a shape, or a guess if no such tree was seen."""
        found = self.grown.get(shape)
        return guessed_grown(self.means, shape) if found is None else found

    def with_judge(self, rejection: float, spread: float) -> "AcceptanceView":
        """Return the view with acceptance under the semantic rule: 1 - P(mismatch) * P(the judge rejects it)."""
        means, deviations = self.means.copy(), self.deviations.copy()
        mismatch, unsure = 1.0 - means[_GREEDY], deviations[_GREEDY]
        means[_SEMANTIC] = 1.0 - mismatch * rejection
        deviations[_SEMANTIC] = np.sqrt((rejection * unsure) ** 2 + (mismatch * spread) ** 2)
        return replace(self, means=means, deviations=deviations, rejection=rejection, rejection_deviation=spread)
