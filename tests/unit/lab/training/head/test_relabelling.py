"""Relabelling only ever lowers labels, keeps to its budget, and asks less the better a link is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.training.head.links import EVALUATED, LinkRanges, LinkScale, as_measured, round_s, symmetric_link
from lab.training.head.relabelling import Relabelling, relabelled, repair_price, repair_probs, smoothed_importance
from outrider.contracts.link import Csi

SCALE = LinkScale(window_tokens=24, hidden_width=576)
LABELS = st.lists(st.integers(0, 1), min_size=1, max_size=30).filter(any)
SHARES = st.floats(0.05, 1.0)


@given(LABELS, SHARES, st.floats(0.01, 2.0))
def test_the_expected_number_of_repairs_is_the_budget_or_all_there_are(
    labels: list[int], share: float, temperature: float
) -> None:
    own, importance = np.array(labels), smoothed_importance(range(len(labels)), labels, 2.0)
    budget = share * own.sum()
    price = repair_price(importance, own, budget, temperature)
    probs = repair_probs(importance, own, price, temperature)
    assert probs.sum() <= budget + 1e-9
    assert probs.sum() == pytest.approx(budget, rel=1e-6)
    assert (probs[own == 0] == 0.0).all()
    assert (np.diff(probs[own == 1][np.argsort(importance[own == 1], kind="stable")]) >= -1e-12).all()


@given(LABELS, SHARES, SHARES)
def test_a_repair_is_the_dearer_the_smaller_the_budget(labels: list[int], one: float, other: float) -> None:
    own, importance = np.array(labels), smoothed_importance(range(len(labels)), labels, 2.0)
    small, large = (repair_price(importance, own, share * own.sum(), 0.25) for share in sorted((one, other)))
    assert small >= large
    assert (repair_probs(importance, own, small, 0.25) <= repair_probs(importance, own, large, 0.25)).all()


@given(LABELS, st.integers(0, 2**32))
def test_labels_only_go_from_one_to_zero(labels: list[int], seed: int) -> None:
    own = np.array(labels)
    found = relabelled(own, np.full(len(own), 0.5), np.random.default_rng(seed))
    assert (found <= own).all()
    assert (relabelled(own, own.astype(np.float64), np.random.default_rng(seed)) == own).all()


def test_draws_are_as_frequent_as_their_probabilities() -> None:
    labels, probs = np.array([1, 1, 0]), np.array([0.2, 0.9, 0.0])
    rng = np.random.default_rng(0)
    drawn = np.mean([relabelled(labels, probs, rng) for _ in range(4000)], axis=0)
    assert drawn == pytest.approx(probs, abs=0.03)


def test_the_best_link_keeps_all_labels_and_the_worst_the_least_share() -> None:
    policy = Relabelling(least_share=0.4)
    assert policy.share(SCALE.quality(SCALE.best)) == 1.0
    assert policy.share(SCALE.quality(SCALE.worst)) == pytest.approx(0.4)
    assert repair_price(np.ones(3), np.ones(3, np.int64), 3.0, 0.25) == -np.inf


@given(st.integers(0, 2**32), st.sampled_from(["up_bps", "down_bps", "per_up", "per_down", "rtt_s"]))
def test_a_better_link_has_no_lower_quality(seed: int, field: str) -> None:
    link = LinkRanges().draw(np.random.default_rng(seed))
    factor = 1.5 if field.endswith("bps") else 0.5
    better = replace(link, **{field: factor * getattr(link, field)})
    assert 0.0 <= SCALE.quality(link) <= SCALE.quality(better) <= 1.0


def test_links_are_drawn_within_their_ranges_and_fill_them() -> None:
    ranges, rng = LinkRanges(), np.random.default_rng(0)
    links = [ranges.draw(rng) for _ in range(2000)]
    for field, (low, high) in (
        ("up_bps", ranges.rate_bps),
        ("down_bps", ranges.rate_bps),
        ("per_up", ranges.packet_error_rate),
        ("rtt_s", ranges.rtt_s),
    ):
        found = np.log([getattr(link, field) for link in links if link.per_up])
        assert np.log(low) <= found.min() <= found.max() <= np.log(high)
        assert found.mean() == pytest.approx(np.log(low * high) / 2, abs=0.2)
    assert ranges.draw(np.random.default_rng(5)) == ranges.draw(np.random.default_rng(5))
    assert all(ranges.rate_bps[0] < link.up_bps < ranges.rate_bps[1] for link in EVALUATED.values())


def test_half_of_the_links_are_told_as_a_service_measures_them() -> None:
    rng = np.random.default_rng(0)
    measured = [link for link in (LinkRanges().draw(rng) for _ in range(2000)) if not link.per_up]
    assert len(measured) == pytest.approx(1000, abs=100)
    assert all(link.per_down == 0.0 for link in measured)
    link = symmetric_link(20e6, 0.005, 0.25)
    assert (as_measured(link).up_bps, as_measured(link).per_up) == (15e6, 0.0)
    assert round_s(as_measured(link), 4, 10) == pytest.approx(round_s(link, 4, 10))


def test_a_round_takes_what_the_equations_say() -> None:
    link = Csi(20e6, 40e6, per_up=0.1, per_down=0.2, rtt_s=0.05)
    up, down = 4 * (16 + 10 * 16) + 512, 512 + 32
    assert round_s(link, 4, 10) == pytest.approx(up / (20e6 * 0.9) + down / (40e6 * 0.8) + 0.05)
    assert round_s(symmetric_link(20e6, 0.005), 4, 10) < round_s(link, 4, 10)
