"""Predictors of acceptance for a pair: those shipped with the package, or an operator's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from outrider.contracts.errors import ModelUnavailableError, ShapeError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import AcceptancePredictor
from outrider.drafting.features import FEATURE_NAMES
from outrider.drafting.perceptron import Perceptron
from outrider.models.embedded import embedded_predictor_paths
from outrider.models.folders import AUTO
from outrider.models.pair_file import FileKind, PairInfo, check_pair, incomplete, pair_fault, read_arrays


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


def load_predictors(
    named: str | None, *, target_hash: str, drafter_hash: str
) -> dict[AcceptanceRule, AcceptancePredictor]:
    """Return a pair's predictors by acceptance rule.

    Args:
        named: a file of ``outrider train predictor``, or a folder of such files; ``auto``: what the package has for
            this pair, possibly nothing; None: none.
        target_hash: the target's ``ModelFacts.model_hash``.
        drafter_hash: the drafter's.

    Raises:
        ModelUnavailableError: a file is missing or holds no predictor; or two are for one rule.
        PairMismatchError: one is for another pair.
    """
    if named is None:
        return {}
    if named == AUTO:
        found = shipped_predictors(target_hash, drafter_hash)
    else:
        found = _by_rule([read_predictor(file) for file in _files(Path(named).expanduser())])
        for predictor in found.values():
            check_pair(predictor.info, target_hash=target_hash, drafter_hash=drafter_hash)
    return {rule: predictor.perceptron for rule, predictor in found.items()}


def shipped_predictors(target_hash: str, drafter_hash: str) -> dict[AcceptanceRule, LoadedPredictor]:
    every = [read_predictor(file) for file in embedded_predictor_paths()]
    hashes = {"target_hash": target_hash, "drafter_hash": drafter_hash}
    return _by_rule([predictor for predictor in every if pair_fault(predictor.info, **hashes) is None])


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    files = sorted(place.glob("*.safetensors"))
    if not files:
        raise ModelUnavailableError(
            f"needs predictors written by `{PredictorInfo.kind.command}` in {place}, found no *.safetensors"
        )
    return files


def _by_rule(predictors: list[LoadedPredictor]) -> dict[AcceptanceRule, LoadedPredictor]:
    found: dict[AcceptanceRule, LoadedPredictor] = {}
    for predictor in predictors:
        if found.setdefault(predictor.info.rule, predictor) is not predictor:
            raise ModelUnavailableError(
                f"needs one predictor for each rule, found two for {predictor.info.rule}; name the file of one"
            )
    return found
