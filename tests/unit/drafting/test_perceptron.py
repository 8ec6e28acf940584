import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit, softmax

from outrider.contracts.errors import ShapeError
from outrider.drafting.features import DraftFeatures
from outrider.drafting.perceptron import Perceptron, PerceptronLayer
from outrider.drafting.stops import StopBefore, StopDecision


def layer(outputs: int, inputs: int, seed: int = 0, scale: float = 1.0) -> PerceptronLayer:
    rng = np.random.default_rng(seed)
    weights, bias = rng.normal(size=(outputs, inputs)) * scale, rng.normal(size=outputs) * scale
    return weights.astype(np.float32), bias.astype(np.float32)


LAYERS = [layer(7, 4), layer(5, 7, 1), layer(1, 5, 2)]


def by_hand(vector: NDArray[np.float64]) -> float:
    x = vector
    for weights, bias in LAYERS[:-1]:
        x = np.maximum(weights.astype(np.float64) @ x + bias, 0.0)
    weights, bias = LAYERS[-1]
    return float(expit(weights[0].astype(np.float64) @ x + bias[0]))


@given(st.lists(st.floats(-10.0, 10.0), min_size=2, max_size=20))
def test_it_is_layers_with_relu_between_and_a_sigmoid_behind(row: list[float]) -> None:
    features = DraftFeatures(softmax(np.array(row)))
    perceptron = Perceptron(LAYERS)
    found = perceptron.probability(features)
    assert found == pytest.approx(by_hand(features.vector), abs=1e-5)
    many = expit(perceptron.scores(np.stack([features.vector, features.vector * 2.0])))
    assert many == pytest.approx([found, by_hand(features.vector * 2.0)], abs=1e-5)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_no_score_is_too_large(sign: float) -> None:
    outer = np.full((1, 4), sign * 1e30, np.float32), np.zeros(1, np.float32)
    assert Perceptron([outer]).probability(DraftFeatures(np.array([0.7, 0.3]))) == (sign > 0)


def test_layers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"a layer of 4 inputs needs weights \[n, 4\] and biases \[n\], found \[1, 3\]"
    ):
        Perceptron([layer(1, 3)])
    with pytest.raises(ShapeError, match="a layer of 7 inputs"):
        Perceptron([layer(7, 4), layer(1, 5)])
    with pytest.raises(ShapeError, match="end in 1 output, found 1 ending in 7"):
        Perceptron([layer(7, 4)])
    with pytest.raises(ShapeError, match="found 0 ending in 4"):
        Perceptron([])


def test_a_rule_can_stop_by_it() -> None:
    margin = np.array([[0.0, 0.0, 4.0, 0.0]], np.float32), np.array([-2.0], np.float32)
    rule = StopBefore(Perceptron([margin]), 0.5)
    assert rule.step(DraftFeatures(np.array([0.7, 0.3]))) is StopDecision.STOP
    assert rule.step(DraftFeatures(np.array([0.8, 0.2]))) is StopDecision.DRAW
