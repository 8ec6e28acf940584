"""Estimate the acceptance of draft tokens by acceptance rule and draft position, for a model pair and a generation.

There are two levels. A *book* belongs to a pair of drafter and target (the caller keys it by their hashes) and learns
from all their generations. A *generation* has one factor on the pair's odds of acceptance, for all rules and positions,
learned from its own verdicts with the pair as the prior. Both are Beta posteriors over exponentially forgotten counts.
A generation teaches its pair's book a bounded number of tokens, so that none dominates. One whose request edits logits
(penalties, bias) teaches it nothing, as its acceptance is no property of the pair.

Acceptance is that of tokens that were drafted. A device that stops early leaves out tokens that it expects to be
rejected. How far devices draft is learned separately (``DraftedShares``); a plan's yield follows from both.

Only positions up to the first rejection are observed: a choice made from these statistics never depends on the noise of
uncommitted positions, and cannot change the output of a lossless protocol.

Trees: a sibling's acceptance is the first one's times a factor (``AcceptanceView``). Until measured, factors halve from
sibling to sibling.

Under the semantic rule a token is rejected if it is a mismatch, as under the greedy rule, and the judge does not let it
pass. The two probabilities are learned separately: mismatches from greedy rounds too, the judge's from mismatches only.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.acceptance_view import (
    DEPTHS,
    PRIOR_REJECTION,
    RULES,
    SIBLINGS,
    AcceptanceView,
    Floats,
    GrownShape,
    guessed_grown,
    rule_row,
)
from outrider.selection.drafted_shares import DraftedShares
from outrider.selection.drift import RejectionDrift
from outrider.selection.related_rules import related_prior
from outrider.selection.tallies import TOKEN_ROW, Tally, check_path, first_siblings

_DEPTH_TOKENS = 20.0  # weight, in tokens, of a draft position's prior: the mean over all positions
_GENERATION_TOKENS = 20.0  # weight, in tokens, of the pair as a generation's prior: responses differ by about 0.1
_SIBLING_TOKENS = 10.0  # weight of the prior of a sibling's factor, in expected acceptances
_SIBLING_DECLINE = 0.5
_PAIR_MEMORY_TOKENS = 4096.0  # an observation's weight falls to 1/e after so many more
_GENERATION_MEMORY_TOKENS = 192.0
_TAUGHT_TOKENS = 256  # that a pair's book learns from one generation, at most
_JUDGED_TOKENS = 4.0  # weight of the prior of a judge, in mismatches
_LEAST = 1e-6  # means stay this far inside (0, 1), so that odds exist


class AcceptanceBook:
    """Statistics of all generations of one pair of models. Mutable; not thread-safe."""

    def __init__(self, drift: RejectionDrift | None = None) -> None:
        self.drift = drift  # test on the judge of this pair's mismatches; None without one
        self._tokens = Tally(_PAIR_MEMORY_TOKENS)
        self._drafted = DraftedShares(len(RULES), DEPTHS, _PAIR_MEMORY_TOKENS)
        self._grown: dict[GrownShape, Tally] = {}
        self._sibling_accepted = np.zeros((len(RULES), SIBLINGS))
        self._sibling_expected = np.zeros((len(RULES), SIBLINGS))
        self._judged = self._rejected = 0.0  # mismatches, exponentially forgotten

    def observe_judged(self, matches: Sequence[bool], rejected: int, judged: int) -> None:
        """Learn from a chain under the semantic rule.

        Args:
            matches: for each token up to the first rejected one, whether it was the target's choice.
            rejected: 1 if a token was rejected, else 0.
            judged: number of mismatches up to there.
        """
        self._tokens.observe_firsts(AcceptanceRule.GREEDY, matches)
        keep = np.exp(-judged / _PAIR_MEMORY_TOKENS)
        self._judged, self._rejected = keep * self._judged + judged, keep * self._rejected + rejected

    def observe(self, rule: AcceptanceRule, accepted_len: int, drafted: int) -> None:
        """Learn from a chain's verdict; more tokens accepted than drafted are a ``ParameterError``."""
        self._tokens.observe(rule, accepted_len, drafted)

    def observe_drafted(self, rule: AcceptanceRule, accepted_len: int, drafted: int, ordered: int) -> None:
        """Learn how far a chain was drafted; arguments as of ``DraftedShares.observe``."""
        self._drafted.observe(rule_row(rule), accepted_len, drafted, ordered)

    def observe_grown(self, rule: AcceptanceRule, shape: GrownShape, accepted_len: int, *, first: bool) -> None:
        """Learn from the verdict on a dynamic tree: its accepted depth, and whether its ``first`` node was accepted.

        The first node is the token that a chain would begin with. Deeper nodes were selected for their probability, so
        they are no sample of a chain's tokens. More tokens than the tree may be deep are a ``ParameterError``.
        """
        self._grown.setdefault(shape, Tally(_PAIR_MEMORY_TOKENS)).observe(rule, accepted_len, shape[1])
        self._tokens.observe_firsts(rule, (first,))

    def observe_tree(self, rule: AcceptanceRule, siblings: Sequence[int], accepted: Sequence[int]) -> None:
        """Learn from a tree's verdict.

        Args:
            rule: that judged it.
            siblings: number of children at each depth along the accepted path, and at its last node unless a leaf.
            accepted: index of the accepted child at each depth; one shorter than ``siblings`` if all were rejected at
                the last depth.

        Raises:
            ParameterError: the two do not fit together.
        """
        check_path(siblings, accepted)
        means = self.view().means[rule_row(rule)]
        keep = np.exp(-len(siblings) / _PAIR_MEMORY_TOKENS)
        self._sibling_accepted *= keep
        self._sibling_expected *= keep
        for depth, offered in enumerate(siblings):
            winner = accepted[depth] if depth < len(accepted) else None
            tested = offered if winner is None else winner + 1
            for sibling in range(1, tested):
                column = min(sibling, SIBLINGS - 1)
                self._sibling_expected[rule_row(rule), column] += means[min(depth, DEPTHS - 1)]
                self._sibling_accepted[rule_row(rule), column] += sibling == winner
        self._tokens.observe_firsts(rule, first_siblings(siblings, accepted))

    def view(self) -> AcceptanceView:
        means, weights = self._posterior()
        idle_rounds = np.zeros(len(RULES), dtype=np.int64)
        weight = _JUDGED_TOKENS + self._judged
        rejection = (_JUDGED_TOKENS * PRIOR_REJECTION + self._rejected) / weight
        spread = float(np.sqrt(rejection * (1.0 - rejection) / (weight + 1.0)))
        deviations, drafted = _deviations(means, weights), self._drafted.shares()
        grown = {shape: _as_far(tally, guessed_grown(means, shape)) for shape, tally in self._grown.items()}
        known = AcceptanceView(means, deviations, *self._sibling_factors(), idle_rounds, drafted=drafted, grown=grown)
        return known.with_judge(rejection, spread)

    def generation(self, *, teaches: bool = True) -> "GenerationAcceptance":
        """Return statistics of a new generation with this book as prior; ``teaches``: the book learns from it."""
        return GenerationAcceptance(self, _TAUGHT_TOKENS if teaches else 0)

    def _posterior(self) -> tuple[Floats, Floats]:
        """Return posterior means and their weights in tokens, ``[rules, DEPTHS]`` each."""
        accepted, seen = self._tokens.hits, self._tokens.seen
        all_accepted, all_seen = accepted.sum(axis=1), seen.sum(axis=1)
        prior, prior_weight = related_prior(all_accepted, all_seen)
        pooled_weight = prior_weight + all_seen
        pooled = (prior_weight * prior + all_accepted) / pooled_weight
        # Each position's prior is the rule's mean over all positions, with no more weight than that itself has.
        strength = np.minimum(pooled_weight, _DEPTH_TOKENS)[:, None]
        means = (strength * pooled[:, None] + accepted) / (strength + seen)
        return means[TOKEN_ROW], (strength + seen)[TOKEN_ROW]

    def _sibling_factors(self) -> tuple[Floats, Floats]:
        """Return factors (acceptances counted over expected ones) and standard deviations, ``[rules, SIBLINGS]``."""
        weights = _SIBLING_TOKENS + self._sibling_expected
        factors = (_SIBLING_TOKENS * _SIBLING_DECLINE ** np.arange(SIBLINGS) + self._sibling_accepted) / weights
        deviations = np.sqrt(factors / weights)
        deviations[:, 0] = 0.0
        return factors, deviations


class GenerationAcceptance:
    """Statistics of one generation. Mutable."""

    def __init__(self, book: AcceptanceBook, taught_tokens: int) -> None:
        """Begin with the book as prior; it learns from the generation's first ``taught_tokens`` tested tokens."""
        self.book = book  # of its pair
        self._taught_tokens = taught_tokens  # left
        self._tokens = Tally(_GENERATION_MEMORY_TOKENS)
        self._idle_rounds = np.zeros(len(RULES), dtype=np.int64)
        self._streak = 0

    def observe(self, rule: AcceptanceRule, accepted_len: int, drafted: int) -> None:
        """Learn from a chain's verdict (as ``AcceptanceBook.observe``); ``drafted`` 0 is a round without a draft."""
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

    def observe_grown(self, rule: AcceptanceRule, shape: GrownShape, accepted_len: int, *, first: bool) -> None:
        """Learn from a grown tree's verdict (as ``AcceptanceBook.observe_grown``)."""
        _, window = shape
        if self._teaches(min(accepted_len + 1, window)):
            self.book.observe_grown(rule, shape, accepted_len, first=first)
        self._tokens.observe_firsts(rule, (first,))
        self._count_round(rule, window, complete=accepted_len == window)

    def observe_tree(self, rule: AcceptanceRule, siblings: Sequence[int], accepted: Sequence[int]) -> None:
        """Learn from a tree's verdict (as ``AcceptanceBook.observe_tree``)."""
        if self._teaches(len(siblings)):
            self.book.observe_tree(rule, siblings, accepted)
        self._tokens.observe_firsts(rule, first_siblings(siblings, accepted))
        self._count_round(rule, len(siblings), complete=len(siblings) == len(accepted))

    def view(self) -> AcceptanceView:
        """Return the acceptance to expect of this generation's next round.

        It is the pair's profile over positions with its odds times one factor: the odds of the generation's own
        acceptance over those that the pair's profile predicts for the same rules and positions.
        """
        pair = self.book.view()
        means = np.clip(pair.means, _LEAST, 1.0 - _LEAST)
        seen, accepted = float(self._tokens.seen.sum()), float(self._tokens.hits.sum())
        foretold = float((self._tokens.seen * means).sum())
        expected = foretold / seen if seen > 0.0 else 0.5
        level = (_GENERATION_TOKENS * expected + accepted) / (_GENERATION_TOKENS + seen)
        factor = (level / (1.0 - level)) * ((1.0 - expected) / expected)
        means = _at_odds(factor, means)
        # The pair counts as a prior of at most _GENERATION_TOKENS, or fewer where it is itself less certain.
        variance = np.maximum(pair.deviations**2, _LEAST)
        weights = np.minimum(means * (1.0 - means) / variance, _GENERATION_TOKENS) + seen
        deviations = _deviations(means, weights)
        own = replace(
            pair,
            means=means,
            deviations=deviations,
            idle_rounds=self._idle_rounds.copy(),
            streak=self._streak,
            grown={shape: _at_odds(factor, passes) for shape, passes in pair.grown.items()},
        )
        return own.with_judge(pair.rejection, pair.rejection_deviation)

    def _teaches(self, tested: int) -> bool:
        """Use up taught tokens for a verdict. Return whether the book learns from it."""
        self._taught_tokens -= tested
        return self._taught_tokens >= 0

    def _count_round(self, rule: AcceptanceRule, drafted: int, *, complete: bool) -> None:
        self._idle_rounds += 1
        if drafted > 0:
            self._idle_rounds[rule_row(rule)] = 0
        self._streak = self._streak + 1 if drafted > 0 and complete else 0


def _at_odds(factor: float, means: Floats) -> Floats:
    """Return the probabilities whose odds are ``factor`` times those of ``means``."""
    raised: Floats = factor * means / (1.0 - means + factor * means)
    return raised


def _as_far(tally: Tally, guessed: Floats) -> Floats:
    """Return ``[rules, DEPTHS]`` acceptance of a dynamic tree by depth, with the guess as prior."""
    accepted, seen = tally.hits[TOKEN_ROW], tally.seen[TOKEN_ROW]
    passes: Floats = (_DEPTH_TOKENS * guessed + accepted) / (_DEPTH_TOKENS + seen)
    return passes


def _deviations(means: Floats, weights: Floats) -> Floats:
    """Return the standard deviations of Beta distributions with these means and total counts."""
    deviations: Floats = np.sqrt(means * (1.0 - means) / (weights + 1.0))
    return deviations
