"""Files of decision heads: parameters, the pair of models they were trained for, and measurements.

A head reads the hidden states of one target and one drafter; with another pair its decisions would be arbitrary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from outrider.models.pair_file import FileKind, PairInfo, incomplete, read_arrays
from outrider.verification.decision_head import DecisionHead, HeadWeights, Standard

STANDARDS = ("drafter", "target", "csi")


@dataclass(frozen=True, slots=True)
class HeadInfo(PairInfo):
    kind: ClassVar[FileKind] = FileKind("decision head", "outrider_head", "outrider train head")
    threshold: float  # in 0..1: mismatches of at least this rejection probability are rejected
    rejection_low: float  # of the calibration mismatches at least this share is rejected at that threshold,
    rejection_high: float  # and at most this one, for any link state: drift is measured against both
    hidden_field: str  # encoding of drafters' hidden states on the link in calibration
    measured: Mapping[str, float] = field(default_factory=dict)  # during training


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    info: HeadInfo
    decisions: DecisionHead


def read_head(file: Path) -> Head:
    arrays, described = read_arrays(file, HeadInfo.kind)
    wide = {name: values.astype(np.float64) for name, values in arrays.items()}
    try:
        info = HeadInfo(**described)
        drafter, target, csi = (Standard(wide[f"{kind}.mean"], wide[f"{kind}.deviation"]) for kind in STANDARDS)
        inner, inner_bias, outer = (wide[name] for name in ("inner", "inner_bias", "outer"))
        weights = HeadWeights(drafter, target, csi, inner, inner_bias, outer, float(wide["outer_bias"][0]))
    except (KeyError, TypeError) as error:
        raise incomplete(file, HeadInfo.kind, error) from error
    return Head(info, DecisionHead(weights, info.threshold))
