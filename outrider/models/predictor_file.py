"""Predictors of acceptance as files: a perceptron, what it was trained for, and what was measured of it.

What one learned holds for one target, one drafter and one rule of acceptance; elsewhere its probabilities are of
something else.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from outrider.contracts.errors import ModelUnavailableError, ParameterError, ShapeError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.features import FEATURE_NAMES
from outrider.drafting.perceptron import Perceptron

FORMAT_VERSION = 1
_METADATA_KEY = "outrider_predictor"


@dataclass(frozen=True, slots=True)
class PredictorInfo:
    """What a predictor says of itself."""

    target: str  # name of the target
    target_hash: str  # its ``ModelFacts.model_hash``
    drafter: str
    drafter_hash: str
    rule: AcceptanceRule  # by which its tokens were verified
    temperatures: tuple[float, ...]  # of the requests it learned from
    threshold: float  # probability below which it takes a token for rejected: where both classes weigh the same
    measured: Mapping[str, float] = field(default_factory=dict)  # by training


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """A predictor, and what it says of itself."""

    info: PredictorInfo
    perceptron: Perceptron


def save_predictor(file: Path, perceptron: Perceptron, info: PredictorInfo) -> None:
    """Write a predictor; the file appears complete or not at all."""
    tensors: dict[str, npt.NDArray[np.float32]] = {}
    for index, (weights, bias) in enumerate(perceptron.layers):
        tensors |= {f"{index}.weights": weights, f"{index}.bias": bias}
    described = {"format": FORMAT_VERSION, "features": FEATURE_NAMES, **asdict(info)}
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    save_file(tensors, partial, metadata={_METADATA_KEY: json.dumps(described)})
    partial.chmod(0o644)
    partial.replace(file)


def read_predictor(file: Path) -> Predictor:
    """A predictor; anything else than a predictor's file is a ``ModelUnavailableError``."""
    try:
        with safe_open(file, framework="np") as opened:
            described = json.loads((opened.metadata() or {}).get(_METADATA_KEY, "{}"))
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelUnavailableError(
            f"needs a predictor written by `outrider train predictor` at {file}, found: {error}; train one for the pair"
        ) from error
    found = described.pop("format", None), tuple(described.pop("features", ()))
    if found != (FORMAT_VERSION, FEATURE_NAMES):
        raise ModelUnavailableError(
            f"needs predictor format {FORMAT_VERSION} of {', '.join(FEATURE_NAMES)} in {file}, found {found[0]} of "
            f"{', '.join(found[1]) or 'nothing'}; train it again"
        )
    try:
        layers = [
            (np.asarray(tensors[f"{index}.weights"], np.float32), np.asarray(tensors[f"{index}.bias"], np.float32))
            for index in range(len(tensors) // 2)
        ]
        perceptron = Perceptron(layers)
        rule, temperatures = AcceptanceRule(described.pop("rule")), tuple(described.pop("temperatures"))
        info = PredictorInfo(rule=rule, temperatures=temperatures, **described)
    except (KeyError, TypeError, ValueError, ShapeError) as error:
        raise ModelUnavailableError(f"needs a whole predictor in {file}, found: {error}; train it again") from error
    return Predictor(info, perceptron)


def check_use(
    info: PredictorInfo,
    *,
    target_hash: str | None = None,
    drafter_hash: str | None = None,
    rule: AcceptanceRule | None = None,
) -> None:
    """Refuse another pair, with both hashes, or another rule; what is not given is not compared.

    Raises:
        ParameterError: it is not for these.
    """
    for kind, name, made_for, found in (
        ("target", info.target, info.target_hash, target_hash),
        ("drafter", info.drafter, info.drafter_hash, drafter_hash),
    ):
        if found is not None and found != made_for:
            raise ParameterError(
                "predictor",
                f"the {kind} it was trained for ({name}, hash {made_for}), or one for this pair (`outrider train "
                "predictor`)",
                found,
            )
    if rule is not None and rule is not info.rule:
        raise ParameterError("predictor", f"blocks verified by the rule it was trained for, {info.rule}", str(rule))
