"""Predictors of acceptance as files: a perceptron, what it was trained for, and what was measured of it.

What one learned holds for one target, one drafter and one rule of acceptance; elsewhere its probabilities are of
something else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ModelUnavailableError, PairMismatchError, ShapeError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.features import FEATURE_NAMES
from outrider.drafting.perceptron import Perceptron
from outrider.models.pair_file import FileKind, PairInfo, check_pair, incomplete, read_arrays, save_arrays


@dataclass(frozen=True, slots=True)
class PredictorInfo(PairInfo):
    """What a predictor says of itself."""

    kind: ClassVar[FileKind] = FileKind("predictor", "outrider_predictor", "outrider train predictor")
    rule: AcceptanceRule  # by which its tokens were verified
    temperatures: tuple[float, ...]  # of the requests it learned from
    threshold: float  # probability below which it takes a token for rejected: where both classes weigh the same
    measured: Mapping[str, float] = field(default_factory=dict)  # by training


@dataclass(frozen=True, slots=True, eq=False)
class LoadedPredictor:
    """A predictor, and what it says of itself."""

    info: PredictorInfo
    perceptron: Perceptron


def save_predictor(file: Path, perceptron: Perceptron, info: PredictorInfo) -> None:
    """Write a predictor, weights as float16 if nothing is lost by that; the file appears complete or not at all."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for index, (weights, bias) in enumerate(perceptron.layers):
        halves = weights.astype(np.float16)
        arrays |= {f"{index}.weights": halves if np.array_equal(halves, weights) else weights, f"{index}.bias": bias}
    save_arrays(file, arrays, info, features=FEATURE_NAMES)


def read_predictor(file: Path) -> LoadedPredictor:
    """A predictor; anything else than a predictor's file is a ``ModelUnavailableError``."""
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


def check_use(
    info: PredictorInfo,
    *,
    target_hash: str | None = None,
    drafter_hash: str | None = None,
    rule: AcceptanceRule | None = None,
) -> None:
    """Refuse another pair, with both hashes, or another rule; what is not given is not compared.

    Raises:
        PairMismatchError: it is not for these.
    """
    check_pair(info, target_hash=target_hash, drafter_hash=drafter_hash)
    if rule is not None and rule is not info.rule:
        raise PairMismatchError(
            f"a predictor needs blocks verified by the rule it was trained for, {info.rule}, found {rule}; train one "
            "for this rule, or configure none"
        )
