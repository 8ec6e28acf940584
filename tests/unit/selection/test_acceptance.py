"""Acceptance statistics: what is observed, how it is weighed, what one rule tells of the other."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.acceptance_view import DEPTHS, AcceptanceView, rule_row
from outrider.selection.related_rules import ratio_from_shared_noise, shared_noise_from_ratio

RATIO, DISTINCT = AcceptanceRule.RATIO, AcceptanceRule.RATIO_DISTINCT
SHARED, GREEDY = AcceptanceRule.SHARED_NOISE, AcceptanceRule.GREEDY


def chain_verdict(acceptances: list[float], rng: random.Random) -> int:
    accepted = 0
    while accepted < len(acceptances) and rng.random() < acceptances[accepted]:
        accepted += 1
    return accepted


def uncertainty(view: AcceptanceView, rule: AcceptanceRule, depth: int) -> float:
    """Standard deviation of a token's acceptance."""
    return float(view.deviations[rule_row(rule), min(depth, DEPTHS - 1)])


def sibling_acceptance(view: AcceptanceView, rule: AcceptanceRule, depth: int, siblings: int) -> float:
    """That one of so many siblings is accepted."""
    return float(view.grid(depth + 1, siblings)[rule_row(rule), depth, siblings])


def test_means_and_uncertainty_follow_what_is_seen_position_by_position() -> None:
    book, rng, truth = AcceptanceBook(), random.Random(3), [0.9, 0.6, 0.3]
    before = uncertainty(book.view(), RATIO, 0)
    for _ in range(1500):
        book.observe(RATIO, chain_verdict(truth, rng), 3)
    view = book.view()
    for depth, mean in enumerate(truth):
        assert view.token_acceptance(RATIO, depth) == pytest.approx(mean, abs=0.05)
    assert uncertainty(view, RATIO, 0) < uncertainty(view, RATIO, 2) < before, "deep positions are seen less often"


def test_positions_behind_the_first_rejection_are_not_observed() -> None:
    one, other = AcceptanceBook(), AcceptanceBook()
    for _ in range(50):
        one.observe(GREEDY, 1, 2)
        other.observe(GREEDY, 1, 12)
    assert (one.view().means == other.view().means).all()
    assert (one.view().deviations == other.view().deviations).all()


def test_a_new_pair_is_taken_for_a_good_one_and_a_deep_position_for_the_deepest_known() -> None:
    view = AcceptanceBook().view()
    assert all(view.token_acceptance(rule, 0) >= 0.8 for rule in (GREEDY, SHARED, RATIO, DISTINCT))
    assert view.token_acceptance(RATIO, DEPTHS + 40) == view.token_acceptance(RATIO, DEPTHS - 1)
    assert all(uncertainty(view, rule, 0) > 0.08 for rule in (GREEDY, SHARED, RATIO))


@given(st.floats(0.0, 1.0))
def test_each_rule_s_guess_of_the_other_keeps_the_bounds(ratio: float) -> None:
    shared = shared_noise_from_ratio(ratio)
    assert ratio / (2.0 - ratio) - 1e-12 <= shared <= ratio + 1e-12, "(1 - TV) / (1 + TV) <= shared noise <= 1 - TV"
    assert ratio_from_shared_noise(shared) == pytest.approx(ratio, abs=1e-9)


@pytest.mark.parametrize(("seen", "other"), [(RATIO, SHARED), (SHARED, RATIO)])
def test_what_one_sampling_rule_shows_is_the_other_s_prior(seen: AcceptanceRule, other: AcceptanceRule) -> None:
    book = AcceptanceBook()
    greedy = book.view().token_acceptance(GREEDY, 0)
    for _ in range(300):
        book.observe(seen, 2, 6)
    view = book.view()
    assert view.token_acceptance(other, 9) < 0.75, "two of three accepted, where 0.8 was the prior"
    assert view.token_acceptance(SHARED, 9) < view.token_acceptance(RATIO, 9)
    assert uncertainty(view, other, 9) > uncertainty(view, seen, 0)
    assert view.token_acceptance(GREEDY, 0) == greedy, "sampling says nothing about greedy requests"


def test_old_observations_are_forgotten() -> None:
    book = AcceptanceBook()
    for _ in range(3000):
        book.observe(GREEDY, 0, 1)
    assert book.view().token_acceptance(GREEDY, 0) < 0.02
    for _ in range(16000):
        book.observe(GREEDY, 1, 1)
    assert book.view().token_acceptance(GREEDY, 0) > 0.97


def test_a_generation_starts_from_its_pair_and_goes_its_own_way() -> None:
    book = AcceptanceBook()
    for _ in range(400):
        book.observe(RATIO, 1, 2)
    generation = book.generation()
    assert generation.view().means == pytest.approx(book.view().means, abs=1e-9)
    certain = uncertainty(generation.view(), RATIO, 0)
    assert certain > uncertainty(book.view(), RATIO, 0), "responses of one pair differ"
    for _ in range(40):
        generation.observe(RATIO, 2, 2)
    assert generation.view().token_acceptance(RATIO, 1) > book.view().token_acceptance(RATIO, 1) + 0.2
    assert generation.view().token_acceptance(SHARED, 1) > book.view().token_acceptance(SHARED, 1) + 0.1
    assert uncertainty(generation.view(), RATIO, 0) < certain
    other = book.generation().view()
    assert other.means == pytest.approx(book.view().means, abs=1e-9)


def test_a_view_is_a_moment_s() -> None:
    generation = AcceptanceBook().generation()
    view = generation.view()
    means, factors, idle_rounds = view.means.copy(), view.sibling_factors.copy(), view.idle_rounds.copy()
    for _ in range(20):
        generation.observe_tree(DISTINCT, (3, 2), (1,))
    assert (view.means == means).all()
    assert (view.sibling_factors == factors).all()
    assert (view.idle_rounds == idle_rounds).all()


def test_rounds_without_a_draft_are_counted_and_teach_nothing() -> None:
    generation = AcceptanceBook().generation()
    generation.observe(SHARED, 2, 2)
    generation.observe(SHARED, 1, 1)
    view = generation.view()
    assert view.streak == 2
    rows = list(AcceptanceRule)
    assert view.idle_rounds[rows.index(SHARED)] == 0
    assert view.idle_rounds[rows.index(RATIO)] == 2
    for _ in range(5):
        generation.observe(SHARED, 0, 0)
    later = generation.view()
    assert (later.means == view.means).all()
    assert (later.idle_rounds.min(), later.streak) == (5, 0)


def test_siblings_follow_eq_39_and_what_is_seen() -> None:
    book, rng = AcceptanceBook(), random.Random(5)
    view = book.view()
    one = view.token_acceptance(RATIO, 0)
    assert sibling_acceptance(view, RATIO, 0, 1) == pytest.approx(one)
    assert sibling_acceptance(view, RATIO, 0, 3) == pytest.approx(1 - (1 - one) * (1 - one / 2) * (1 - one / 4))
    for _ in range(1500):
        first = rng.random() < 0.5
        second = rng.random() < 0.1
        book.observe_tree(DISTINCT, (2,), (0,) if first else (1,) if second else ())
    view = book.view()
    assert view.token_acceptance(DISTINCT, 0) == pytest.approx(0.5, abs=0.04)
    assert view.token_acceptance(RATIO, 0) == view.token_acceptance(DISTINCT, 0), "the first sibling is a chain's token"
    assert sibling_acceptance(view, DISTINCT, 0, 2) == pytest.approx(0.55, abs=0.04)
    assert sibling_acceptance(view, RATIO, 0, 2) > 0.58, "siblings with replacement are another thing"


@given(
    st.sampled_from([GREEDY, SHARED, RATIO, DISTINCT]),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40),
    st.integers(0, 20),
    st.integers(1, 20),
)
def test_everything_is_a_probability_and_more_siblings_never_hurt(
    rule: AcceptanceRule, verdicts: list[tuple[int, int]], depth: int, siblings: int
) -> None:
    generation = AcceptanceBook().generation()
    for one, other in verdicts:
        generation.observe(rule, min(one, other), max(one, other))
    view = generation.view()
    assert 0.0 < view.token_acceptance(rule, depth) < 1.0
    assert 0.0 < uncertainty(view, rule, depth) <= 0.5
    acceptances = [sibling_acceptance(view, rule, depth, count) for count in range(siblings + 1)]
    assert acceptances == sorted(acceptances)
    assert acceptances[0] == 0.0
    assert acceptances[-1] <= 1.0


def test_verdicts_that_cannot_be_are_refused() -> None:
    generation = AcceptanceBook().generation()
    with pytest.raises(ParameterError, match=r"accepted_len needs a number in 0\.\.2"):
        generation.observe(RATIO, 3, 2)
    with pytest.raises(ParameterError, match="one of 2 siblings"):
        generation.observe_tree(RATIO, (2, 2), (2, 0))
    with pytest.raises(ParameterError, match="3 siblings, or one less"):
        generation.observe_tree(RATIO, (2, 2, 2), (0,))
    assert generation.view().idle_rounds.max() == 0


def test_one_that_teaches_nothing_learns_for_itself_alone() -> None:
    """Such as a request whose penalties make drafts fail."""
    book = AcceptanceBook()
    for _ in range(100):
        book.observe(GREEDY, 3, 4)
    before, edited = book.view(), book.generation(teaches=False)
    for _ in range(200):
        edited.observe(GREEDY, 0, 4)
        edited.observe_tree(GREEDY, [2], [])
    assert edited.view().token_acceptance(GREEDY, 0) < 0.2
    assert (book.view().means == before.means).all()
    assert (book.view().sibling_factors == before.sibling_factors).all()


def test_one_generation_s_weight_in_the_pair_s_book_is_bounded() -> None:
    book = AcceptanceBook()
    for _ in range(30):
        ordinary = book.generation()
        for _ in range(30):
            ordinary.observe(GREEDY, 4, 5)
    known, hostile = book.view().token_acceptance(GREEDY, 0), book.generation()
    for _ in range(20_000):
        hostile.observe(GREEDY, 0, 5)
    assert hostile.view().token_acceptance(GREEDY, 0) < 0.1
    assert book.view().token_acceptance(GREEDY, 0) > 0.6 * known


def judged_world(mismatch: float, rejection: float, seed: int, rounds: int = 600) -> AcceptanceBook:
    """A book that has seen so many chains of four under the semantic rule."""
    rng, book = random.Random(seed), AcceptanceBook()
    for _ in range(rounds // 20):
        generation = book.generation()
        for _ in range(20):
            accepted, overrides = 0, list[int]()
            while accepted < 4:
                if rng.random() < mismatch:
                    if rng.random() < rejection:
                        break
                    overrides.append(accepted)
                accepted += 1
            generation.observe_judged(4, accepted, overrides)
    return book


@pytest.mark.parametrize(("mismatch", "rejection"), [(0.3, 0.5), (0.5, 0.1), (0.1, 0.9)])
def test_mismatches_and_rejections_are_learned_apart(mismatch: float, rejection: float) -> None:
    view = judged_world(mismatch, rejection, 1).view()
    assert view.token_acceptance(GREEDY, 0) == pytest.approx(1.0 - mismatch, abs=0.05)
    assert view.rejection == pytest.approx(rejection, abs=0.06)
    for depth in range(4):
        expected = 1.0 - (1.0 - view.token_acceptance(GREEDY, depth)) * view.rejection
        assert view.token_acceptance(AcceptanceRule.SEMANTIC, depth) == pytest.approx(expected)


def test_greedy_rounds_tell_of_mismatches_and_nothing_of_the_judge() -> None:
    book = AcceptanceBook()
    before = book.view()
    for _ in range(100):
        book.observe(GREEDY, 1, 4)
    view = book.view()
    assert view.rejection == before.rejection
    assert view.token_acceptance(AcceptanceRule.SEMANTIC, 1) < before.token_acceptance(AcceptanceRule.SEMANTIC, 1)


def test_a_judge_that_lets_all_pass_makes_every_draft_welcome() -> None:
    view = judged_world(0.5, 0.0, 2).view()
    assert view.token_acceptance(AcceptanceRule.SEMANTIC, 0) > 0.97
    assert view.deviations[rule_row(AcceptanceRule.SEMANTIC), 0] < 0.05
