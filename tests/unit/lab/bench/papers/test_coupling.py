"""Closed forms against enumeration of everything that can be drawn, on tiny vocabularies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.papers.coupling import (
    SCHEMES,
    Coupled,
    Scheme,
    argmax_draft,
    by_falling,
    distinct_pair,
    keep_top,
    shared_noise,
    siblings,
)
from outrider.sampling.distributions import Probs, acceptance_probability, residual, total_variation, without
from outrider.sampling.noise import Purpose, gumbel_noise


@st.composite
def rows(draw: st.DrawFn) -> tuple[Probs, Probs]:
    """A target row without zeros and a draft row that may have some."""
    size = draw(st.integers(2, 6))
    weight = st.floats(0.01, 1.0)
    target = np.array(draw(st.lists(weight, min_size=size, max_size=size)))
    rare = st.sampled_from([0.0, 1e-17, 1e-9])  # beside which one token is nearly certain
    draft = np.array(draw(st.lists(weight | rare, min_size=size, max_size=size).filter(any)))
    return target / target.sum(), draft / draft.sum()


def enumerate_siblings(target: Probs, draft: Probs, count: int, *, distinct: bool) -> tuple[Probs, Probs]:
    """Probability that each token is emitted as an accepted candidate, and as the final draw from what is left."""
    accepted, drawn_last = np.zeros_like(target), np.zeros_like(target)

    def test(reached: float, rest: Probs, proposal: Probs, left: int) -> None:
        if left == 0 or not proposal.any():
            drawn_last[:] += reached * rest
            return
        for token in np.flatnonzero(proposal):
            kept = acceptance_probability(rest[token], proposal[token])
            accepted[token] += reached * proposal[token] * kept
            missed = reached * proposal[token] * (1.0 - kept)
            if missed > 0.0:
                after = without(proposal, int(token)) if distinct else proposal
                test(missed, residual(rest, proposal), after, left - 1)

    test(1.0, target, draft, count)
    return accepted, drawn_last


@given(rows())
@pytest.mark.parametrize(
    ("scheme", "count", "distinct"),
    [(Scheme.SINGLE, 1, False), (Scheme.PAIR, 2, False), (Scheme.DISTINCT_PAIR, 2, True)],
)
def test_ratio_schemes_equal_enumeration(scheme: Scheme, count: int, distinct: bool, pair: tuple[Probs, Probs]) -> None:
    target, draft = pair
    accepted, drawn_last = enumerate_siblings(target, draft, count, distinct=distinct)
    assert accepted + drawn_last == pytest.approx(target, abs=1e-9)  # the enumeration is lossless itself
    for token in range(len(target)):
        found = SCHEMES[scheme](target, draft, token)
        assert found.acceptance == pytest.approx(accepted.sum(), abs=1e-9)
        assert found.given_token == pytest.approx(accepted[token] / target[token], abs=1e-9)


@given(rows(), st.integers(1, 4))
def test_more_siblings_with_replacement_equal_enumeration(pair: tuple[Probs, Probs], count: int) -> None:
    target, draft = pair
    accepted, _ = enumerate_siblings(target, draft, count, distinct=False)
    assert siblings(target, draft, 0, count).acceptance == pytest.approx(accepted.sum(), abs=1e-9)


def exact_shared_noise(target: Probs, draft: Probs, token: int) -> Coupled:
    """The same sum term by term, without the sort."""
    both = [
        1.0 / sum(max(target[y] / target[x], draft[y] / draft[x]) for y in range(len(target))) if draft[x] > 0 else 0.0
        for x in range(len(target))
    ]
    return Coupled(sum(both), both[token] / float(target[token]))


@given(rows())
def test_shared_noise_equals_its_sum_and_keeps_its_bounds(pair: tuple[Probs, Probs]) -> None:
    target, draft = pair
    apart = total_variation(target, draft)
    for token in range(len(target)):
        found, expected = shared_noise(target, draft, token), exact_shared_noise(target, draft, token)
        assert found.acceptance == pytest.approx(expected.acceptance, abs=1e-9)
        assert found.given_token == pytest.approx(expected.given_token, abs=1e-9)
        assert (1 - apart) / (1 + apart) - 1e-9 <= found.acceptance <= 1 - apart + 1e-9


def test_shared_noise_is_how_often_two_draws_with_the_projects_noise_agree() -> None:
    target, draft = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.2, 0.2, 0.5, 0.1])
    noise = np.stack([gumbel_noise(7, position, Purpose.TARGET_TOKEN, 4) for position in range(20_000)])
    theirs, ours = (np.argmax(np.log(probs) + noise, axis=1) for probs in (target, draft))
    assert np.mean(theirs == ours) == pytest.approx(shared_noise(target, draft, 0).acceptance, abs=0.015)
    for token in range(4):
        share = np.mean(ours[theirs == token] == token)
        assert share == pytest.approx(shared_noise(target, draft, token).given_token, abs=0.05)


@given(rows())
@pytest.mark.parametrize("scheme", Scheme)
def test_given_tokens_average_to_the_acceptance(scheme: Scheme, pair: tuple[Probs, Probs]) -> None:
    target, draft = pair
    found = [SCHEMES[scheme](target, draft, token) for token in range(len(target))]
    mean = sum(p * at.given_token for p, at in zip(target, found, strict=True))
    assert mean == pytest.approx(found[0].acceptance, abs=1e-9)


@given(rows(), st.integers(1, 6))
def test_truncation_moves_acceptance_by_at_most_the_mass_cut_off(pair: tuple[Probs, Probs], kept: int) -> None:
    """TSLT eq. 20 and 21."""
    target, draft = pair
    order = by_falling(draft)
    cut = keep_top(draft, order, kept)
    lost = draft[order[kept:]].sum()
    assert total_variation(cut, draft) == pytest.approx(lost, abs=1e-12)
    cut_off, whole = (siblings(target, kept_draft, 0, 1).acceptance for kept_draft in (cut, draft))
    assert abs(cut_off - whole) <= lost + 1e-12


def test_kept_tokens_are_the_most_probable_and_the_lowest_ids_on_ties() -> None:
    draft = np.array([0.1, 0.3, 0.3, 0.3])
    assert keep_top(draft, by_falling(draft), 2).tolist() == [0.0, 0.5, 0.5, 0.0]


def test_equal_rows_are_always_accepted() -> None:
    row = np.array([0.25, 0.75])
    for scheme in (Scheme.SINGLE, Scheme.PAIR, Scheme.DISTINCT_PAIR, Scheme.SHARED_NOISE):
        assert SCHEMES[scheme](row, row, 1) == Coupled(1.0, 1.0)
    assert argmax_draft(row, row, 1) == Coupled(0.75, 1.0)
    assert argmax_draft(row, row, 0) == Coupled(0.75, 0.0)


def test_a_draft_of_one_token_has_no_second_candidate() -> None:
    target, draft = np.array([0.25, 0.75]), np.array([1.0, 0.0])
    assert distinct_pair(target, draft, 0) == Coupled(0.25, 1.0)
    assert distinct_pair(target, draft, 1) == Coupled(0.25, 0.0)


def test_the_second_of_two_candidates_counts_however_rare_the_draft_has_it() -> None:
    target, draft = np.array([0.5, 0.5]), np.array([6e-17, 1.0])
    assert distinct_pair(target, draft, 1) == Coupled(1.0, 1.0)
