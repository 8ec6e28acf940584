"""Files of acceptance predictors: a perceptron, what it was trained for, and measurements.

A predictor holds for one target, one drafter and one acceptance rule; for others its probabilities have no meaning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from outrider.contracts.errors import ModelUnavailableError, ShapeError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.features import FEATURE_NAMES
from outrider.drafting.perceptron import Perceptron
from outrider.models.pair_file import FileKind, PairInfo, incomplete, read_arrays


@dataclass(frozen=True, slots=True)
class PredictorInfo(PairInfo):
    kind: ClassVar[FileKind] = FileKind("predictor", "outrider_predictor", "outrider train predictor")
    rule: AcceptanceRule  # by which its training tokens were verified
    temperatures: tuple[float, ...]  # of the requests it was trained on
    threshold: float  # probability below which it predicts rejection; balances both classes
    measured: Mapping[str, float] = field(default_factory=dict)  # during training


@dataclass(frozen=True, slots=True, eq=False)
class LoadedPredictor:
    info: PredictorInfo
    perceptron: Perceptron


def read_predictor(file: Path) -> LoadedPredictor:
    arrays, described = read_arrays(file, PredictorInfo.kind)
    if (features := tuple(described.pop("features", ()))) != FEATURE_NAMES:
        raise ModelUnavailableError(
            f"needs a predictor by {', '.join(FEATURE_NAMES)} in {file}, found one by "
            f"{', '.join(features) or 'nothing'}; train it again"
        )
    try:
        layers = [
            (np.asarray(arrays[f"{index}.weights"], np.float32), np.asarray(arrays[f"{index}.bias"], np.float32))
            for index in range(len(arrays) // 2)
        ]
        perceptron = Perceptron(layers)
        rule, temperatures = AcceptanceRule(described.pop("rule")), tuple(described.pop("temperatures"))
        info = PredictorInfo(rule=rule, temperatures=temperatures, **described)
    except (KeyError, TypeError, ValueError, ShapeError) as error:
        raise incomplete(file, PredictorInfo.kind, error) from error
    return LoadedPredictor(info, perceptron)
