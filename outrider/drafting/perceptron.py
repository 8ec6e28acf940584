"""A small perceptron that predicts acceptance from all four features of a row (WISP section 4.1 and appendix B).

Linear layers with ReLU between them and a sigmoid behind the last. Training folds the rest into the weights: the
standardisation of features into the first layer, batch normalisation into each, calibration into the last. It runs
once for each token that a device drafts, so it uses numpy only, in float32.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ShapeError
from outrider.contracts.exchanged import FloatRow
from outrider.drafting.acceptance import sigmoid
from outrider.drafting.features import FEATURE_NAMES, DraftFeatures

FloatMatrix = npt.NDArray[np.float32]
PerceptronLayer = tuple[FloatMatrix, FloatRow]  # ``[out, in]`` weights and ``[out]`` biases


class Perceptron:
    def __init__(self, layers: Sequence[PerceptronLayer]) -> None:
        """Take layers from four inputs to one output; anything else raises a ``ShapeError``."""
        width = len(FEATURE_NAMES)
        for weights, bias in layers:
            if weights.ndim != 2 or weights.shape[1] != width or bias.shape != weights.shape[:1]:
                found = f"{list(weights.shape)} and {list(bias.shape)}"
                raise ShapeError(f"a layer of {width} inputs needs weights [n, {width}] and biases [n], found {found}")
            width = len(bias)
        if not layers or width != 1:
            raise ShapeError(f"a perceptron needs layers that end in 1 output, found {len(layers)} ending in {width}")
        self.layers = tuple((_ready(weights), _ready(bias)) for weights, bias in layers)
        self._inner = self.layers[:-1]
        outer, outer_bias = self.layers[-1]
        self._outer, self._outer_bias = outer[0], float(outer_bias[0])

    def probability(self, features: DraftFeatures) -> float:
        x = features.vector.astype(np.float32)
        for weights, bias in self._inner:
            x = weights @ x
            x += bias
            np.maximum(x, 0.0, out=x)
        return sigmoid(float(self._outer @ x) + self._outer_bias)

    def scores(self, vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return ``[N]`` logits of acceptance for the features of many rows, ``[N, 4]``."""
        x = vectors.astype(np.float32)
        for weights, bias in self._inner:
            x = np.maximum(x @ weights.T + bias, 0.0)
        logits: npt.NDArray[np.float64] = (x @ self._outer + self._outer_bias).astype(np.float64)
        return logits


def _ready(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(values, np.float32)
