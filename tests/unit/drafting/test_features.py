"""Against scipy's definitions, and edges that definitions leave open."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from scipy.stats import entropy

from outrider.drafting.features import FEATURE_NAMES, DraftFeatures

rows = st.lists(st.one_of(st.just(-np.inf), st.floats(-40.0, 40.0)), min_size=1, max_size=30).filter(
    lambda row: max(row) > -np.inf
)


@given(rows)
def test_they_are_what_their_names_say(logits: list[float]) -> None:
    row = np.array(logits)
    probs: npt.NDArray[np.float64] = softmax(row)
    features = DraftFeatures(probs)
    falling = [*np.sort(probs)[::-1], 0.0]
    assert features.confidence == falling[0]
    assert features.margin == pytest.approx(falling[0] - falling[1], abs=1e-15)
    assert features.entropy_nats == pytest.approx(float(entropy(probs)), abs=1e-12)
    assert features.logit_std == pytest.approx(float(log_softmax(row[row > -np.inf]).std()), abs=1e-9)


def test_a_vector_has_them_by_their_names() -> None:
    features = DraftFeatures(np.array([0.6, 0.1, 0.3]))
    assert features.vector.tolist() == [getattr(features, name) for name in FEATURE_NAMES]


def test_nothing_is_open_where_one_token_is_left() -> None:
    for probs in (np.ones(1), np.array([0.0, 1.0, 0.0])):
        features = DraftFeatures(probs)
        assert (features.confidence, features.margin, features.entropy_nats, features.logit_std) == (1.0, 1.0, 0.0, 0.0)


def test_only_what_is_asked_for_is_computed() -> None:
    features = DraftFeatures(np.full(4, 0.25))
    assert features.confidence == 0.25
    assert [name for name in vars(features) if name != "_probs"] == ["confidence"]
