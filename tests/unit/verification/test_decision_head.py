"""The head against its equations, whatever it is asked beside."""

import math

import numpy as np
import pytest

from outrider.contracts.errors import ParameterError, ShapeError
from outrider.contracts.link import Csi
from outrider.verification.decision_head import CSI_WIDTH, DecisionHead, HeadWeights, Standard, csi_features
from outrider.verification.semantic import MismatchQuestion

DRAFTER, TARGET, HIDDEN = 6, 9, 7
LINK = Csi(20e6, 50e6, per_up=0.1, per_down=0.02, rtt_s=0.05)


def standard(rng: np.random.Generator, width: int) -> Standard:
    return Standard(rng.normal(size=width), rng.uniform(0.1, 3.0, size=width))


def weights(seed: int = 0) -> HeadWeights:
    rng = np.random.default_rng(seed)
    width = DRAFTER + TARGET + CSI_WIDTH
    return HeadWeights(
        standard(rng, DRAFTER),
        standard(rng, TARGET),
        standard(rng, CSI_WIDTH),
        rng.normal(size=(HIDDEN, width)),
        rng.normal(size=HIDDEN),
        rng.normal(size=HIDDEN),
        float(rng.normal()),
    )


def question(seed: int, mismatches: int, channel: Csi | None = LINK) -> MismatchQuestion:
    rng = np.random.default_rng(seed)
    states = [rng.normal(size=(mismatches, width)).astype(np.float32) for width in (DRAFTER, TARGET)]
    return MismatchQuestion(states[0], states[1], channel)


def by_hand(w: HeadWeights, drafter: list[float], target: list[float], csi: list[float]) -> float:
    """WISV eq. 23-25, number by number."""
    x = []
    for numbers, kind, most in ((drafter, w.drafter, 8.0), (target, w.target, 8.0), (csi, w.csi, 2.0)):
        x += [min(most, max(-most, (n - m) / d)) for n, m, d in zip(numbers, kind.mean, kind.deviation, strict=True)]
    units = [
        max(0.0, sum(a * b for a, b in zip(row, x, strict=True)) + c)
        for row, c in zip(w.inner, w.inner_bias, strict=True)
    ]
    return 1.0 / (1.0 + math.exp(-(sum(a * b for a, b in zip(w.outer, units, strict=True)) + w.outer_bias)))


def test_probabilities_are_those_of_the_equations() -> None:
    w, asked = weights(), question(1, 4)
    csi = [math.log10(20e6), math.log10(50e6), 0.1, 0.02, math.log10(0.05)]
    expected = [by_hand(w, *states, csi) for states in zip(asked.drafter_hidden, asked.target_hidden, strict=True)]
    head = DecisionHead(w, 0.5)
    found = head.rejection_probs(
        asked.drafter_hidden.astype(np.float64), asked.target_hidden.astype(np.float64), np.array([csi] * 4)
    )
    assert found == pytest.approx(expected, rel=1e-12)
    assert head.accepts([asked]) == [[prob < 0.5 for prob in expected]]


def test_an_answer_does_not_depend_on_what_is_asked_beside_it() -> None:
    head = DecisionHead(weights(2), 0.5)
    questions = [question(seed, 1 + seed % 5, LINK if seed % 2 else None) for seed in range(40)]
    assert head.accepts(questions) == [head.accepts([one])[0] for one in questions]
    assert len({answer for answers in head.accepts(questions) for answer in answers}) == 2


def test_what_reaches_the_threshold_is_rejected_at_0_all_and_at_1_none() -> None:
    asked = [question(seed, 5) for seed in range(10)]
    assert not any(map(any, DecisionHead(weights(), 0.0).accepts(asked)))
    assert all(map(all, DecisionHead(weights(), 1.0).accepts(asked)))
    assert DecisionHead(weights(), 0.25).passes(np.array([0.2, 0.25, 0.3])).tolist() == [True, False, False]
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(ParameterError, match=r"threshold needs a number in 0\.\.1"):
            DecisionHead(weights(), bad)


@pytest.mark.parametrize("threshold", [0.999999, 1.0])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_state_that_is_not_finite_never_passes(threshold: float, value: float) -> None:
    """In any element, whatever else it is asked about, and however lenient it is."""
    head = DecisionHead(weights(), threshold)
    for side, width in (("drafter_hidden", DRAFTER), ("target_hidden", TARGET)):
        for at in range(width):
            asked, sound = question(1, 3), question(2, 2)
            getattr(asked, side)[1, at] = value
            answer, beside = head.accepts([asked, sound])
            assert answer == [head.accepts([question(1, 3)])[0][0], False, head.accepts([question(1, 3)])[0][2]]
            assert beside == head.accepts([sound])[0]
    assert True in head.accepts([question(1, 3)])[0]


def test_a_huge_number_counts_for_no_more_than_eight_deviations() -> None:
    head, asked = DecisionHead(weights(), 0.5), question(3, 1)
    large, larger = asked.drafter_hidden.copy(), asked.drafter_hidden.copy()
    large[0, 2], larger[0, 2] = 1e3, 2.5e4
    probs = [
        head.rejection_probs(
            hidden.astype(np.float64), asked.target_hidden.astype(np.float64), csi_features(LINK)[None]
        )
        for hidden in (large, larger)
    ]
    assert probs[0] == probs[1]


def test_a_link_that_is_not_known_is_taken_for_the_mean() -> None:
    w = weights()
    known = np.array([w.csi.mean])
    states = (np.zeros((1, DRAFTER)), np.zeros((1, TARGET)))
    head = DecisionHead(w, 0.5)
    assert head.rejection_probs(*states, csi_features(None)[None]) == head.rejection_probs(*states, known)


def test_parameters_that_do_not_fit_are_refused() -> None:
    w = weights()
    with pytest.raises(ShapeError, match="a head needs inner weights of"):
        HeadWeights(w.drafter, w.target, w.csi, w.inner[:, 1:], w.inner_bias, w.outer, 0.0)
    with pytest.raises(ShapeError, match="a head needs 5 numbers of the link"):
        HeadWeights(w.drafter, w.csi, w.target, w.inner, w.inner_bias, w.outer, 0.0)
