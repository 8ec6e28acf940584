"""Writing of what was trained for a pair of models, as ``outrider.models`` reads it."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from outrider.documents.whole_file import whole_file
from outrider.drafting.features import FEATURE_NAMES
from outrider.drafting.perceptron import Perceptron
from outrider.models.head_file import STANDARDS, HeadInfo
from outrider.models.pair_file import FORMAT, PairInfo
from outrider.models.predictor_file import PredictorInfo
from outrider.verification.decision_head import HeadWeights

Arrays = Mapping[str, npt.NDArray[Any]]


def save_head(file: Path, weights: HeadWeights, info: HeadInfo) -> None:
    arrays = {
        f"{kind}.{part}": np.asarray(getattr(getattr(weights, kind), part), np.float32)
        for kind in STANDARDS
        for part in ("mean", "deviation")
    }
    arrays |= {name: np.asarray(getattr(weights, name), np.float16) for name in ("inner", "inner_bias", "outer")}
    arrays["outer_bias"] = np.array([weights.outer_bias], np.float32)
    _save_arrays(file, arrays, info)


def save_predictor(file: Path, perceptron: Perceptron, info: PredictorInfo) -> None:
    """Write a predictor, weights as float16 if that is exact; the file appears complete or not at all."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for index, (weights, bias) in enumerate(perceptron.layers):
        halves = weights.astype(np.float16)
        arrays |= {f"{index}.weights": halves if np.array_equal(halves, weights) else weights, f"{index}.bias": bias}
    _save_arrays(file, arrays, info, features=FEATURE_NAMES)


def _save_arrays(file: Path, arrays: Arrays, info: PairInfo, **more: object) -> None:
    """Write arrays and their description; the file appears complete or not at all."""
    # A single entry: safetensors writes several in random order, and equal content should give equal files.
    header = {info.kind.key: json.dumps({"format": FORMAT, **more, **asdict(info)})}
    with whole_file(file) as partial:
        save_file({name: np.ascontiguousarray(values) for name, values in arrays.items()}, partial, metadata=header)
        partial.chmod(0o644)
