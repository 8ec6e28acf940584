"""How likely draft tokens are to be accepted: measured per acceptance rule and draft position.

Two levels. A *book* belongs to a pair of drafter and target (the caller keys it by their hashes) and learns from all
their generations. A *generation* has its own level: its odds of acceptance against the pair's, one factor for all
rules and positions, learned from its own verdicts with the pair as the prior. Both are Beta posteriors over
exponentially forgotten counts. What one generation teaches its pair's book is bounded, so that none speaks for all;
one whose request edits logits (penalties, bias) teaches it nothing, as that is no property of the pair.

Acceptance is that of tokens that were drafted. A device that stops early leaves out what it thinks would be rejected;
how far devices draft is learned apart (``DraftedShares``), and a plan is expected to bring both together.

Only what a verdict tells is observed: positions up to the first rejection. So a choice made from these statistics
depends on committed tokens and past verdicts, never on the noise of uncommitted positions, and cannot change what a
lossless protocol emits.

Trees: sibling j (the first is 1) of a node is tested after j - 1 rejections, against what is left of the target's
distribution (TSLT eq. 25). Its acceptance beta^(j) = 1 - TV(q, p^(j)) (eq. 30) falls with j in a way no single number
tells; taken here is factor_j * beta, with factors that halve from sibling to sibling until measured. The first of k
siblings behaves as a chain's token does, so chains and trees share what they learn.

Under the semantic rule a token is rejected if it is not the target's choice, as under the greedy rule, and a judge does
not let it pass. The two are learned apart: the one from greedy rounds as well, the other whatever draft it befell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.drafted_shares import DraftedShares
from outrider.selection.drift import RejectionDrift

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DEPTHS = 16  # draft positions told apart; deeper ones count as the last
SIBLINGS = 16  # siblings told apart; later ones count as the last

_RULES = tuple(AcceptanceRule)
_ROW = {rule: row for row, rule in enumerate(_RULES)}
_RATIO, _SHARED_NOISE = _ROW[AcceptanceRule.RATIO], _ROW[AcceptanceRule.SHARED_NOISE]
_GREEDY, _SEMANTIC = _ROW[AcceptanceRule.GREEDY], _ROW[AcceptanceRule.SEMANTIC]
# Without replacement or with it, the first sibling is the same draw: one row of token statistics for both.
_TOKEN_ROW = np.array([_RATIO if rule is AcceptanceRule.RATIO_DISTINCT else row for row, rule in enumerate(_RULES)])

# Before anything is known a pair is taken for a good one, so that a new pair is tried.
_PRIOR_MEAN = np.array([0.85 if rule is AcceptanceRule.RATIO else 0.8 for rule in _RULES])
_PRIOR_TOKENS = 3.0  # observations the prior is worth
_RELATED_TOKENS = 100.0  # at most, what is known of the other sampling rule is worth: the width of its bounds
_DEPTH_TOKENS = 20.0  # a draft position's prior, the mean over all positions, is worth
_GENERATION_TOKENS = 20.0  # the pair is worth as a generation's prior: responses differ by about 0.1
_SIBLING_TOKENS = 10.0  # expected acceptances the prior of a sibling's factor is worth
_SIBLING_DECLINE = 0.5
_PAIR_MEMORY_TOKENS = 4096.0  # an observation's weight falls to 1/e after so many more
_GENERATION_MEMORY_TOKENS = 192.0
_TAUGHT_TOKENS = 256  # of one generation, that its pair's book learns from
_PRIOR_REJECTION = 0.5  # of a mismatch by a judge that nothing is known of
_JUDGED_TOKENS = 4.0  # mismatches that is worth
_LEAST = 1e-6  # means stay this far inside (0, 1), so that odds exist


def rule_row(rule: AcceptanceRule) -> int:
    """A rule's row in ``AcceptanceView``'s arrays."""
    return _ROW[rule]


@dataclass(frozen=True, slots=True, eq=False)
class AcceptanceView:
    """What is known of acceptance at one moment. Rows are rules, in ``AcceptanceRule``'s order.

    Attributes:
        sibling_factors: ``[rules, SIBLINGS]``: acceptance of sibling j, given that those before it were rejected, over
            the first one's; the first column is 1.
        drafted: ``[rules, DEPTHS]``: a token of a chain is drafted if it is ordered, given that those before it were,
            and accepted; None: all are.
        grown: by the rows of trees that grow where the drafter is sure, ``[rules, DEPTHS]``: one of a depth's nodes is
            accepted, given that one of the depth before it was. Of rows that nobody saw there is nothing.
    """

    means: Floats  # ``[rules, DEPTHS]``: a single draft token is accepted, given that those before it were
    deviations: Floats  # ``[rules, DEPTHS]``: standard deviations of the means
    sibling_factors: Floats
    sibling_deviations: Floats  # ``[rules, SIBLINGS]``: standard deviations of these
    idle_rounds: Ints  # ``[rules]``: rounds of this generation since the last one that verified a draft by the rule
    streak: int = 0  # its last rounds in a row whose draft was accepted to the end
    rejection: float = _PRIOR_REJECTION  # of a mismatch by a judge
    rejection_deviation: float = _PRIOR_REJECTION
    drafted: Floats | None = None
    grown: Mapping[int, Floats] = field(default_factory=dict)

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
        total: Floats = np.zeros((len(_RULES), depths, siblings + 1))
        total[:, :, 1:] = 1.0 - np.cumprod(1.0 - each, axis=2)
        return total


class AcceptanceBook:
    """What all generations of one pair of models have shown. Mutable; not thread-safe.

    Attributes:
        drift: of who judges this pair's mismatches.
    """

    def __init__(self, drift: RejectionDrift | None = None) -> None:
        """Begin with nothing but the prior."""
        self.drift = drift
        self._tokens = _Tally(_PAIR_MEMORY_TOKENS)
        self._drafted = DraftedShares(len(_RULES), DEPTHS, _PAIR_MEMORY_TOKENS)
        self._grown: dict[int, _Tally] = {}  # by rows
        self._sibling_accepted = np.zeros((len(_RULES), SIBLINGS))
        self._sibling_expected = np.zeros((len(_RULES), SIBLINGS))
        self._judged = self._rejected = 0.0  # mismatches, forgetfully counted

    def observe_judged(self, matches: Sequence[bool], rejected: int, judged: int) -> None:
        """Learn from a chain under the semantic rule.

        Args:
            matches: token by token up to the first that was rejected, whether it was the target's choice.
            rejected: 1 if one was.
            judged: mismatches up to there.
        """
        self._tokens.observe_firsts(AcceptanceRule.GREEDY, matches)
        keep = np.exp(-judged / _PAIR_MEMORY_TOKENS)
        self._judged, self._rejected = keep * self._judged + judged, keep * self._rejected + rejected

    def observe(self, rule: AcceptanceRule, accepted_len: int, drafted: int) -> None:
        """Learn from a chain's verdict.

        Raises:
            ParameterError: more tokens accepted than drafted.
        """
        self._tokens.observe(rule, accepted_len, drafted)

    def observe_drafted(self, rule: AcceptanceRule, accepted_len: int, drafted: int, ordered: int) -> None:
        """Learn how far a chain was drafted of which so much was accepted (as ``DraftedShares.observe``)."""
        self._drafted.observe(_ROW[rule], accepted_len, drafted, ordered)

    def observe_grown(self, rule: AcceptanceRule, rows: int, accepted_len: int, window: int) -> None:
        """Learn from the verdict on a tree of at most so many nodes, ``window`` deep, that grew where it was sure.

        Only how far it went: its nodes are the likelier ones, which tells nothing of those that others draft.

        Raises:
            ParameterError: more tokens accepted than it may be deep.
        """
        self._grown.setdefault(rows, _Tally(_PAIR_MEMORY_TOKENS)).observe(rule, accepted_len, window)

    def observe_tree(self, rule: AcceptanceRule, siblings: Sequence[int], accepted: Sequence[int]) -> None:
        """Learn from a tree's verdict.

        Args:
            rule: that judged it.
            siblings: children offered at each depth along the accepted path, and at the node where it ended unless
                that was a leaf.
            accepted: which of them was accepted at each depth, 0 is the first; one shorter than ``siblings`` if all
                were rejected at the last depth.

        Raises:
            ParameterError: the two do not fit together.
        """
        _check_path(siblings, accepted)
        means = self.view().means[_ROW[rule]]
        keep = np.exp(-len(siblings) / _PAIR_MEMORY_TOKENS)
        self._sibling_accepted *= keep
        self._sibling_expected *= keep
        for depth, offered in enumerate(siblings):
            winner = accepted[depth] if depth < len(accepted) else None
            tested = offered if winner is None else winner + 1
            for sibling in range(1, tested):
                column = min(sibling, SIBLINGS - 1)
                self._sibling_expected[_ROW[rule], column] += means[min(depth, DEPTHS - 1)]
                self._sibling_accepted[_ROW[rule], column] += sibling == winner
        self._tokens.observe_firsts(rule, _first_siblings(siblings, accepted))

    def view(self) -> AcceptanceView:
        """What a new generation of this pair has to expect."""
        means, weights = self._posterior()
        idle_rounds = np.zeros(len(_RULES), dtype=np.int64)
        weight = _JUDGED_TOKENS + self._judged
        rejection = (_JUDGED_TOKENS * _PRIOR_REJECTION + self._rejected) / weight
        spread = float(np.sqrt(rejection * (1.0 - rejection) / (weight + 1.0)))
        deviations, drafted = _deviations(means, weights), self._drafted.shares()
        grown = {rows: _as_far(tally, means) for rows, tally in self._grown.items()}
        known = AcceptanceView(means, deviations, *self._sibling_factors(), idle_rounds, drafted=drafted, grown=grown)
        return _with_judge(known, rejection, spread)

    def generation(self, *, teaches: bool = True) -> "GenerationAcceptance":
        """Statistics of a new generation, with this book as their prior; whether the book learns from it."""
        return GenerationAcceptance(self, _TAUGHT_TOKENS if teaches else 0)

    def _posterior(self) -> tuple[Floats, Floats]:
        """Means and the observations they rest on, ``[rules, DEPTHS]`` each."""
        accepted, seen = self._tokens.accepted, self._tokens.seen
        all_accepted, all_seen = accepted.sum(axis=1), seen.sum(axis=1)
        prior, prior_weight = _related_prior(all_accepted, all_seen)
        pooled_weight = prior_weight + all_seen
        pooled = (prior_weight * prior + all_accepted) / pooled_weight
        strength = np.minimum(pooled_weight, _DEPTH_TOKENS)[:, None]
        means = (strength * pooled[:, None] + accepted) / (strength + seen)
        return means[_TOKEN_ROW], (strength + seen)[_TOKEN_ROW]

    def _sibling_factors(self) -> tuple[Floats, Floats]:
        """Factors and their standard deviations: acceptances counted over acceptances expected."""
        weights = _SIBLING_TOKENS + self._sibling_expected
        factors = (_SIBLING_TOKENS * _SIBLING_DECLINE ** np.arange(SIBLINGS) + self._sibling_accepted) / weights
        deviations = np.sqrt(factors / weights)
        deviations[:, 0] = 0.0
        return factors, deviations


class GenerationAcceptance:
    """What one generation has shown.

    Attributes:
        book: of its pair.
    """

    def __init__(self, book: AcceptanceBook, taught_tokens: int) -> None:
        """Begin with what the book says, which learns from so many of the generation's first tested tokens."""
        self.book = book
        self._taught_tokens = taught_tokens  # left
        self._tokens = _Tally(_GENERATION_MEMORY_TOKENS)
        self._idle_rounds = np.zeros(len(_RULES), dtype=np.int64)
        self._streak = 0

    def observe(self, rule: AcceptanceRule, accepted_len: int, drafted: int) -> None:
        """Learn from a chain's verdict; ``drafted`` 0 is a round without a draft.

        Raises:
            ParameterError: more tokens accepted than drafted.
        """
        if self._teaches(min(accepted_len + 1, drafted)):
            self.book.observe(rule, accepted_len, drafted)
        self._tokens.observe(rule, accepted_len, drafted)
        self._count_round(rule, drafted, complete=accepted_len == drafted)

    def observe_judged(self, draft_tokens: int, accepted_len: int, overrides: Sequence[int]) -> None:
        """Learn from a chain under the semantic rule: ``overrides`` are the accepted tokens that a judge let pass."""
        rejected = int(accepted_len < draft_tokens)
        matches = [index not in overrides for index in range(accepted_len)] + [False] * rejected
        if self._teaches(len(matches)):
            if self.book.drift is not None:
                self.book.drift.observe(rejected, len(overrides) + rejected)
            self.book.observe_judged(matches, rejected, len(overrides) + rejected)
        self._tokens.observe_firsts(AcceptanceRule.GREEDY, matches)
        self._count_round(AcceptanceRule.SEMANTIC, draft_tokens, complete=not rejected)

    def observe_drafted(self, rule: AcceptanceRule, accepted_len: int, drafted: int, ordered: int) -> None:
        """Learn how far a chain was drafted (as ``AcceptanceBook.observe_drafted``), beside its verdict."""
        if self._taught_tokens > 0:
            self.book.observe_drafted(rule, accepted_len, drafted, ordered)

    def observe_grown(self, rule: AcceptanceRule, rows: int, accepted_len: int, window: int) -> None:
        """Learn from a grown tree's verdict (as ``AcceptanceBook.observe_grown``)."""
        if self._teaches(min(accepted_len + 1, window)):
            self.book.observe_grown(rule, rows, accepted_len, window)
        self._count_round(rule, window, complete=accepted_len == window)

    def observe_tree(self, rule: AcceptanceRule, siblings: Sequence[int], accepted: Sequence[int]) -> None:
        """Learn from a tree's verdict (as ``AcceptanceBook.observe_tree``)."""
        if self._teaches(len(siblings)):
            self.book.observe_tree(rule, siblings, accepted)
        self._tokens.observe_firsts(rule, _first_siblings(siblings, accepted))
        self._count_round(rule, len(siblings), complete=len(siblings) == len(accepted))

    def view(self) -> AcceptanceView:
        """What this generation's next round has to expect.

        The pair's profile over draft positions, its odds multiplied by one factor: the generation's own acceptance
        over what the pair's profile foretold for the same rules and positions.
        """
        pair = self.book.view()
        means = np.clip(pair.means, _LEAST, 1.0 - _LEAST)
        seen, accepted = float(self._tokens.seen.sum()), float(self._tokens.accepted.sum())
        foretold = float((self._tokens.seen * means).sum())
        expected = foretold / seen if seen > 0.0 else 0.5
        level = (_GENERATION_TOKENS * expected + accepted) / (_GENERATION_TOKENS + seen)
        factor = (level / (1.0 - level)) * ((1.0 - expected) / expected)
        means = factor * means / (1.0 - means + factor * means)
        # The pair's own uncertainty, as far as it is not the smaller one, and what this generation added.
        variance = np.maximum(pair.deviations**2, _LEAST)
        weights = np.minimum(means * (1.0 - means) / variance, _GENERATION_TOKENS) + seen
        deviations = _deviations(means, weights)
        own = replace(
            pair, means=means, deviations=deviations, idle_rounds=self._idle_rounds.copy(), streak=self._streak
        )
        return _with_judge(own, pair.rejection, pair.rejection_deviation)

    def _teaches(self, tested: int) -> bool:
        """Whether the book learns from a verdict on so many tokens."""
        self._taught_tokens -= tested
        return self._taught_tokens >= 0

    def _count_round(self, rule: AcceptanceRule, drafted: int, *, complete: bool) -> None:
        self._idle_rounds += 1
        if drafted > 0:
            self._idle_rounds[_ROW[rule]] = 0
        self._streak = self._streak + 1 if drafted > 0 and complete else 0


class _Tally:
    """Forgetful counts ``[rules, DEPTHS]`` of tokens tested and accepted."""

    def __init__(self, memory_tokens: float) -> None:
        self._memory_tokens = memory_tokens
        self.seen = np.zeros((len(_RULES), DEPTHS))
        self.accepted = np.zeros((len(_RULES), DEPTHS))

    def observe(self, rule: AcceptanceRule, accepted_len: int, drafted: int) -> None:
        if not 0 <= accepted_len <= drafted:
            raise ParameterError("accepted_len", f"a number in 0..{drafted}, the tokens drafted", accepted_len)
        self.observe_firsts(rule, [True] * accepted_len + [False] * (accepted_len < drafted))

    def observe_firsts(self, rule: AcceptanceRule, accepted: Sequence[bool]) -> None:
        """Position by position: whether the only token, or the first sibling, was accepted."""
        row = _TOKEN_ROW[_ROW[rule]]
        keep = np.exp(-len(accepted) / self._memory_tokens)
        self.seen *= keep  # of other rules too: what is no longer seen grows old
        self.accepted *= keep
        for depth, one in enumerate(accepted):
            self.seen[row, min(depth, DEPTHS - 1)] += 1.0
            self.accepted[row, min(depth, DEPTHS - 1)] += one


def _as_far(tally: _Tally, means: Floats) -> Floats:
    """``[rules, DEPTHS]``: how grown trees go on; a chain is what they are taken for before anything is known."""
    accepted, seen = tally.accepted[_TOKEN_ROW], tally.seen[_TOKEN_ROW]
    passes: Floats = (_DEPTH_TOKENS * means + accepted) / (_DEPTH_TOKENS + seen)
    return passes


def _with_judge(view: AcceptanceView, rejection: float, spread: float) -> AcceptanceView:
    """The same with acceptance under the semantic rule: a mismatch that is not rejected."""
    means, deviations = view.means.copy(), view.deviations.copy()
    mismatch, unsure = 1.0 - means[_GREEDY], deviations[_GREEDY]
    means[_SEMANTIC] = 1.0 - mismatch * rejection
    deviations[_SEMANTIC] = np.sqrt((rejection * unsure) ** 2 + (mismatch * spread) ** 2)
    return replace(view, means=means, deviations=deviations, rejection=rejection, rejection_deviation=spread)


def shared_noise_from_ratio(ratio: float) -> float:
    """Acceptance under shared noise to expect of a pair whose ratio acceptance 1 - TV is known.

    At least (1 - TV) / (1 + TV) (Daliri, Musco, Suresh 2024), at most 1 - TV, which no exact sampler passes; measured
    pairs lie about three quarters of the way up.
    """
    return 0.25 * ratio / (2.0 - ratio) + 0.75 * ratio


def ratio_from_shared_noise(shared_noise: float) -> float:
    """The inverse of ``shared_noise_from_ratio``."""
    # 0.25 r / (2 - r) + 0.75 r = s is a quadratic in r.
    half = (1.75 + shared_noise) / 1.5
    return float(half - np.sqrt(max(half * half - 2.0 * shared_noise / 0.75, 0.0)))


def _related_prior(accepted: Floats, seen: Floats) -> tuple[Floats, Floats]:
    """Prior mean and weight of each rule: the default, and what the other sampling rule tells of it."""
    prior, weight = _PRIOR_MEAN.copy(), np.full(len(_RULES), _PRIOR_TOKENS)
    for row, other, related in (
        (_SHARED_NOISE, _RATIO, shared_noise_from_ratio),
        (_RATIO, _SHARED_NOISE, ratio_from_shared_noise),
    ):
        known = min(float(seen[other]), _RELATED_TOKENS)
        if known > 0.0:
            weight[row] = _PRIOR_TOKENS + known
            prior[row] = (_PRIOR_TOKENS * prior[row] + known * related(accepted[other] / seen[other])) / weight[row]
    return prior, weight


def _deviations(means: Floats, weights: Floats) -> Floats:
    """Standard deviations of Beta distributions with these means and total counts."""
    deviations: Floats = np.sqrt(means * (1.0 - means) / (weights + 1.0))
    return deviations


def _check_path(siblings: Sequence[int], accepted: Sequence[int]) -> None:
    if not len(siblings) - 1 <= len(accepted) <= len(siblings):
        raise ParameterError("accepted", f"{len(siblings)} siblings, or one less", list(accepted))
    for offered, winner in zip(siblings, accepted, strict=False):
        if not 0 <= winner < offered:
            raise ParameterError("accepted", f"one of {offered} siblings, counted from 0", winner)


def _first_siblings(siblings: Sequence[int], accepted: Sequence[int]) -> list[bool]:
    return [winner == 0 for winner in accepted] + [False] * (len(siblings) - len(accepted))
