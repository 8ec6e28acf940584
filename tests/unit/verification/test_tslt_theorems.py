"""What the TSLT paper proves, checked on the functions the product runs.

Errata 6 of the paper: Theorem 4.14 multiplies ``2 / Z(s)`` over s = k + 1 .. j. That holds with Lemma 4.11's
``Z(i) = TV(P(i-1), Q)``, the mass of the residual that P(i) is normalised by. The appendix (eq. 56) prints
``Z(i) = TV(P(i), Q)``, and Corollary 4.13 counts that way (its Z(1) is the lemma's Z(2)); with that index the theorem
is false, by a factor of nine in the example below.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import FloatField, FloatRow, WireFormat
from outrider.sampling.distributions import Probs, residual, softmax, total_variation
from outrider.sampling.rounding import rounded_logits, truncated
from tests.unit.verification.models import pair, pairs
from tests.unit.verification.played import PROMPT, Case, Played
from tests.unit.verification.played import pair as pair_of_tables
from tests.unit.verification.tape import Tape

FP32 = FloatField.FP32


def before_and_after(logits: FloatRow, top_k: int, top_rho: float) -> tuple[Probs, Probs, float]:
    """The draft distribution whole and truncated, ``[vocab]`` each, and the mass that was cut off."""
    wire = WireFormat(len(logits), logit_field=FP32, top_k=top_k, top_rho=top_rho)
    whole, kept = softmax(rounded_logits(logits, FP32)), truncated(logits, wire)
    cut = np.zeros_like(whole)
    cut[kept[0]] = softmax(kept[1])
    return whole, cut, float(whole[cut == 0].sum())


def rejections(target: Probs, draft: Probs, count: int) -> list[Probs]:
    """P(1) .. P(count): the target, and what is left of it after each rejected candidate (eq. 25)."""
    left = [target]
    while len(left) < count:
        left.append(residual(left[-1], draft))
    return left


def acceptances(target: Probs, draft: Probs, count: int) -> list[float]:
    """beta(1) .. beta(count) by Lemma 4.7 (eq. 30)."""
    return [1.0 - total_variation(draft, left) for left in rejections(target, draft, count)]


cuts = st.tuples(st.integers(0, 8), st.sampled_from([0.2, 0.7, 0.95, 1.0]))


@settings(max_examples=300)
@given(of=pairs, cut=cuts)
def test_theorem_3_2_truncation_moves_acceptance_by_at_most_the_mass_cut_off(
    of: tuple[str, int, int], cut: tuple[int, float]
) -> None:
    draft_logits, target_probs = pair(*of)
    target = target_probs(()).astype(np.float64)
    whole, kept, sigma = before_and_after(draft_logits(()), *cut)
    assert total_variation(kept, whole) == pytest.approx(sigma, abs=1e-12)  # eq. 21
    beta, truncated_beta = np.minimum(target, whole).sum(), np.minimum(target, kept).sum()
    assert abs(truncated_beta - beta) <= sigma + 1e-12  # eq. 20


@pytest.mark.parametrize("kind", ["random", "flat", "peaked", "equal"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_lemma_4_7_and_eq_39_are_what_the_tree_rule_accepts(count: int, kind: str) -> None:
    wire = WireFormat(3, logit_field=FP32, top_k=0, distinct_siblings=False)
    case = Case(pair_of_tables(kind, 1), [DraftPlan("tslt_tree", 1, (count,))], wire=wire, length=1)
    accepted = np.zeros(count)
    for prob, path in Tape().runs(lambda: accepted_path(case)):
        if path:
            accepted[path[0]] += prob
    target, draft = (softmax(logits(PROMPT)) for logits in (case.models.target_logits, case.models.draft_logits))
    betas = acceptances(target, draft, count)
    failed = np.cumprod([1.0, *(1.0 - beta for beta in betas)])
    assert accepted == pytest.approx([failed[j] * betas[j] for j in range(count)], abs=1e-6)  # eq. 30
    assert accepted.sum() == pytest.approx(1.0 - failed[-1], abs=1e-6)  # eq. 39


def accepted_path(case: Case) -> tuple[int, ...]:
    played = Played(case)
    played.output()
    return played.outcomes[0].accepted_path


def bound(masses: list[float], sigma: float) -> float:
    """Theorem 4.14 (eq. 35) for candidate j; ``masses`` are Z(1) .. Z(j), of which the first is not used."""
    count = len(masses)
    products = [float(np.prod([2.0 / mass for mass in masses[first:]])) for first in range(1, count)]
    return (sum(products) + 1.0) * sigma


def lemma_masses(target: Probs, draft: Probs, count: int) -> list[float]:
    """Z(i) = TV(P(i-1), Q) of Lemma 4.11, for i = 1 .. count; Z(1) does not exist and is not used."""
    return [np.nan, *(total_variation(left, draft) for left in rejections(target, draft, count - 1))][:count]


@settings(max_examples=300)
@given(of=pairs, cut=cuts, candidate=st.integers(1, 4))
def test_theorem_4_14_bounds_the_change_of_every_candidates_acceptance(
    of: tuple[str, int, int], cut: tuple[int, float], candidate: int
) -> None:
    draft_logits, target_probs = pair(*of)
    target = target_probs(()).astype(np.float64)
    target /= target.sum()
    whole, kept, sigma = before_and_after(draft_logits(()), *cut)
    masses = lemma_masses(target, whole, candidate)
    assume(all(mass > 1e-6 for mass in masses[1:]))  # else there is no rejection to speak of
    change = acceptances(target, kept, candidate)[-1] - acceptances(target, whole, candidate)[-1]
    assert abs(change) <= bound(masses, sigma) + 1e-9


@settings(max_examples=300)
@given(of=pairs, cut=cuts)
def test_lemma_4_11_bounds_how_residuals_drift_apart(of: tuple[str, int, int], cut: tuple[int, float]) -> None:
    draft_logits, target_probs = pair(*of)
    target = target_probs(()).astype(np.float64)
    target /= target.sum()
    whole, kept, sigma = before_and_after(draft_logits(()), *cut)
    lefts = list(zip(rejections(target, whole, 4), rejections(target, kept, 4), strict=True))
    for (left, cut_left), (after, cut_after) in pairwise(lefts):
        mass = total_variation(left, whole)
        if mass < 1e-6 or total_variation(cut_left, kept) < 1e-6:
            return
        assert total_variation(after, cut_after) <= 2.0 / mass * (total_variation(left, cut_left) + sigma) + 1e-9


def test_with_the_index_of_eq_56_theorem_4_14_is_false() -> None:
    """A target that differs from the draft by less than the cut: the residual moves to the token cut off."""
    whole = np.array([0.49, 0.5, 0.01])
    kept = np.array([0.49, 0.5, 0.0]) / 0.99
    target = whole + np.array([-0.001, 0.001, 0.0])
    change = abs(acceptances(target, kept, 2)[1] - acceptances(target, whole, 2)[1])
    misprinted = [total_variation(left, whole) for left in rejections(target, whole, 2)]
    assert change > 9 * bound(misprinted, 0.01)
    assert change <= bound(lemma_masses(target, whole, 2), 0.01)
