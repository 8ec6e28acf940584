from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from lab.training.predictor.logistic import fit_logistic
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import ConfidenceLogistic, confidence_logit
from outrider.drafting.features import DraftFeatures
from outrider.drafting.recalibration import Calibration, ChainVerdict, Recalibration, SentChain, verdict_on

GREEDY, SHARED, RATIO = AcceptanceRule.GREEDY, AcceptanceRule.SHARED_NOISE, AcceptanceRule.RATIO
TEMPERATURE = 0.7


def chain_of(logits: Sequence[float], rule: AcceptanceRule = RATIO, temperature: float = TEMPERATURE) -> SentChain:
    return SentChain(rule, temperature, tuple(logits))


def rounds_of(scale: float, bias: float, rounds: int, seed: int = 0) -> list[ChainVerdict]:
    """Chains of up to four tokens that are accepted with ``sigmoid(scale * logit + bias)``."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(rounds):
        logits = rng.normal(0.8, 1.5, size=rng.integers(1, 5))
        accepted = rng.uniform(size=len(logits)) < expit(scale * logits + bias)
        front = len(logits) if accepted.all() else int(np.argmin(accepted))
        found.append(ChainVerdict(chain_of(logits.tolist()), front, front < len(logits)))
    return found


def learned(verdicts: Sequence[ChainVerdict]) -> Calibration:
    recalibration = Recalibration({})
    for verdict in verdicts:
        recalibration.learn(verdict)
    return recalibration.calibration(RATIO, TEMPERATURE)


@pytest.mark.parametrize(("scale", "bias"), [(1.0, 0.0), (0.6, -0.9), (1.5, 0.8)])
def test_a_shift_is_found_in_a_few_hundred_rounds(scale: float, bias: float) -> None:
    logits = np.linspace(-2.0, 3.5, 12)
    truth = expit(scale * logits + bias)
    gaps = []
    for seed in range(5):
        found = learned(rounds_of(scale, bias, 400, seed))
        gaps.append(np.abs([found.probability(logit) for logit in logits] - truth).mean())
    assert max(gaps) < 0.06
    assert np.mean(gaps) < max(0.03, 0.25 * np.abs(expit(logits) - truth).mean())


def test_it_follows_what_changes() -> None:
    found = learned([*rounds_of(1.0, 1.0, 600), *rounds_of(1.0, -1.0, 600, 1)])
    assert found.probability(0.0) == pytest.approx(expit(-1.0), abs=0.1)


def test_of_the_confidence_alone_it_learns_what_a_regression_finds() -> None:
    verdicts = rounds_of(0.7, -0.5, 300)
    tokens = [
        (logit, float(index < one.accepted))
        for one in verdicts
        for index, logit in enumerate(one.sent_chain.logits[: one.accepted + one.rejected])
    ]
    inputs, labels = np.array([[logit] for logit, _ in tokens]), np.array([label for _, label in tokens])
    fitted, found = fit_logistic(inputs, labels), learned(verdicts)
    assert found.scale == pytest.approx(fitted.weights[0], abs=0.1)
    assert found.bias == pytest.approx(fitted.bias, abs=0.15)


LOGITS = st.floats(allow_nan=True, allow_infinity=True)
VERDICTS = st.builds(
    lambda logits, accepted, rejected: ChainVerdict(chain_of(logits), accepted, rejected),
    st.lists(LOGITS, max_size=4),
    st.integers(0, 6),
    st.booleans(),
)


@given(st.lists(VERDICTS, max_size=60), st.lists(st.floats(-20.0, 20.0), min_size=2))
def test_nothing_it_is_told_makes_it_absurd(verdicts: list[ChainVerdict], logits: list[float]) -> None:
    found = learned(verdicts)
    assert 0.2 <= found.scale <= 5.0
    assert -4.0 <= found.bias <= 4.0
    sent_chain = [found.probability(logit) for logit in sorted(logits)]
    assert sent_chain == sorted(sent_chain), "the order of tokens is kept"
    assert 0.0 <= sent_chain[0] <= sent_chain[-1] <= 1.0
    both, shared, alone = found.information
    assert both * alone > shared * shared


@pytest.mark.parametrize("label", [False, True])
def test_who_was_told_one_thing_for_long_can_be_told_another(label: bool) -> None:
    one, other = (ChainVerdict(chain_of([0.5]), int(right), not right) for right in (label, not label))
    assert abs(learned([one] * 3000).probability(0.5) - label) < 0.05
    assert abs(learned([one] * 3000 + [other] * 1000).probability(0.5) - label) > 0.5


def test_a_device_that_was_talked_out_of_drafting_tries_again() -> None:
    lied_to = [ChainVerdict(chain_of([2.0]), 0, rejected=True)] * 2000
    assert learned(lied_to).probability(2.0) < 0.05
    empty = ChainVerdict(chain_of([]), 0, rejected=False)
    assert learned([*lied_to, *[empty] * 600]).probability(2.0) == pytest.approx(expit(2.0), abs=0.02)


def test_rules_and_temperatures_are_learned_apart() -> None:
    recalibration = Recalibration({})
    for _ in range(50):
        recalibration.learn(ChainVerdict(chain_of([0.0]), 0, rejected=True))
    assert recalibration.calibration(RATIO, 0.75).bias < -0.5, "temperatures that are close are one band"
    for rule, temperature in ((SHARED, TEMPERATURE), (RATIO, 1.0), (RATIO, 0.2)):
        assert recalibration.calibration(rule, temperature) == Calibration()


def test_only_tokens_that_were_tested_are_learned_from() -> None:
    front = ChainVerdict(chain_of([1.0, -0.5]), 1, rejected=True)
    for sent_chain in ([1.0, -0.5, 9.0], [1.0, -0.5, -9.0, 3.0]):
        assert learned([ChainVerdict(chain_of(sent_chain), 1, rejected=True)]) == learned([front])
    assert learned([ChainVerdict(chain_of([1.0, 2.0]), 0, rejected=False)]) == Calibration(), "nothing was"


def test_a_chain_goes_by_what_was_known_when_it_began_and_asks_once_of_each_row() -> None:
    asked = []

    class Counted:
        def probability(self, features: DraftFeatures) -> float:
            asked.append(features)
            return features.confidence

    recalibration = Recalibration({RATIO: Counted()})
    chain = recalibration.chain(RATIO, TEMPERATURE)
    assert chain.sent_chain(0) is None, "nobody asked it"
    rows = [DraftFeatures(np.array([largest, 1.0 - largest])) for largest in (0.8, 0.6, 0.7)]
    before = [chain.probability(row) for row in rows[:2] for _ in range(3)][::3]
    assert before == pytest.approx([0.8, 0.6])
    recalibration.learn(ChainVerdict(chain_of([3.0]), 0, rejected=True))
    assert chain.probability(rows[2]) == pytest.approx(0.7)
    assert asked == rows
    assert recalibration.chain(RATIO, TEMPERATURE).probability(rows[2]) < 0.69
    sent_chain = chain.sent_chain(2)
    assert sent_chain is not None
    assert sent_chain.logits == pytest.approx([confidence_logit(0.8), confidence_logit(0.6)])


def test_without_a_predictor_it_is_the_confidence() -> None:
    row = DraftFeatures(np.array([0.9, 0.1]))
    sent_chain = Recalibration({SHARED: ConfidenceLogistic(bias=5.0)}).chain(RATIO, 1.0).probability(row)
    assert sent_chain == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("committed", "owed", "expected"),
    [
        ((4, 5, 6, 7), False, (3, False)),  # and the target's own behind
        ((4, 5, 6), False, (3, False)),
        ((4, 5, 9), False, (2, True)),
        ((9, 5, 6), False, (0, True)),
        ((4, 5), False, (2, False)),  # the rest was not tested
        ((), False, (0, False)),
        ((4, 5), True, (2, True)),  # the device draws what replaces it
        ((), True, (0, True)),
    ],
)
def test_the_next_order_tells_what_became_of_a_chain(
    committed: tuple[int, ...], owed: bool, expected: tuple[int, bool]
) -> None:
    sent_chain = chain_of([0.1, 0.2, 0.3])
    found = verdict_on(sent_chain, (4, 5, 6), committed, correction_owed=owed, next_round=True)
    assert found == ChainVerdict(sent_chain, *expected)


def test_what_was_not_verified_tells_only_where_equal_tokens_do() -> None:
    for rule, tells in ((GREEDY, True), (SHARED, True), (RATIO, False), (AcceptanceRule.SEMANTIC, False)):
        sent_chain = chain_of([0.1], rule)
        found = verdict_on(sent_chain, (4,), (4, 5), correction_owed=False, next_round=False)
        assert (found == ChainVerdict(sent_chain, 1, rejected=False)) if tells else (found is None)
