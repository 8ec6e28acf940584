"""Decision heads as files: parameters, the pair of models they were trained for, and what was measured of them.

A head reads one target's and one drafter's hidden states; with any other pair it would decide at random.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from outrider.contracts.errors import HeadMismatchError, ModelUnavailableError
from outrider.verification.decision_head import DecisionHead, HeadWeights, Standard

FORMAT_VERSION = 1
_METADATA_KEY = "outrider_head"
_STANDARDS = ("drafter", "target", "csi")


@dataclass(frozen=True, slots=True)
class HeadInfo:
    """What a head says of itself."""

    target: str  # name of the target
    target_hash: str  # its ``ModelFacts.model_hash``
    drafter: str
    drafter_hash: str
    threshold: float  # in 0..1: rejected is what is at least as probable
    rejection_low: float  # of the mismatches it was calibrated on at least such a share is rejected at that threshold,
    rejection_high: float  # and at most such a one, whatever the link: what drift is measured against
    hidden_field: str  # of drafters' states on the link in calibration
    measured: Mapping[str, float] = field(default_factory=dict)  # by training


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A head, and what it says of itself."""

    info: HeadInfo
    decisions: DecisionHead


def save_head(file: Path, weights: HeadWeights, info: HeadInfo) -> None:
    """Write a head; the file appears complete or not at all."""
    tensors = {
        f"{kind}.{part}": np.asarray(getattr(getattr(weights, kind), part), np.float32)
        for kind in _STANDARDS
        for part in ("mean", "deviation")
    }
    tensors |= {name: np.asarray(getattr(weights, name), np.float16) for name in ("inner", "inner_bias", "outer")}
    tensors["outer_bias"] = np.array([weights.outer_bias], np.float32)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    save_file(tensors, partial, metadata={_METADATA_KEY: json.dumps({"format": FORMAT_VERSION, **asdict(info)})})
    partial.chmod(0o644)
    partial.replace(file)


def read_head(file: Path) -> Head:
    """A head; anything else than a head's file is a ``ModelUnavailableError``."""
    try:
        with safe_open(file, framework="np") as opened:
            described = json.loads((opened.metadata() or {}).get(_METADATA_KEY, "{}"))
            tensors = {name: opened.get_tensor(name).astype(np.float64) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelUnavailableError(
            f"needs a decision head written by `outrider train head` at {file}, found: {error}; train one for this pair"
        ) from error
    if (found := described.pop("format", None)) != FORMAT_VERSION:
        raise ModelUnavailableError(
            f"needs head format {FORMAT_VERSION} in {file}, found {found}; train the head again"
        )
    try:
        info = HeadInfo(**described)
        drafter, target, csi = (Standard(tensors[f"{kind}.mean"], tensors[f"{kind}.deviation"]) for kind in _STANDARDS)
        inner, inner_bias, outer = (tensors[name] for name in ("inner", "inner_bias", "outer"))
        weights = HeadWeights(drafter, target, csi, inner, inner_bias, outer, float(tensors["outer_bias"][0]))
    except (KeyError, TypeError) as error:
        raise ModelUnavailableError(
            f"needs a whole head in {file}, found one without {error}; train it again"
        ) from error
    return Head(info, DecisionHead(weights, info.threshold))


def pair_fault(info: HeadInfo, *, target_hash: str | None = None, drafter_hash: str | None = None) -> str | None:
    """Why a head is not for a pair, with both hashes; None if it is. A hash that is not given is not compared."""
    for kind, name, made_for, found in (
        ("target", info.target, info.target_hash, target_hash),
        ("drafter", info.drafter, info.drafter_hash, drafter_hash),
    ):
        if found is not None and found != made_for:
            return (
                f"a decision head needs the {kind} it was trained for ({name}, hash {made_for}), found hash {found}; "
                "train a head for this pair (`outrider train head`), or configure none"
            )
    return None


def check_pair(info: HeadInfo, *, target_hash: str | None = None, drafter_hash: str | None = None) -> None:
    """The same, raised as a ``HeadMismatchError``."""
    if (fault := pair_fault(info, target_hash=target_hash, drafter_hash=drafter_hash)) is not None:
        raise HeadMismatchError(fault)
