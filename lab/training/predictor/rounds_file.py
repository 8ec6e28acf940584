"""File of verified draft tokens, so that models can be fitted to them again."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from lab.training.head.pair import LoadedPair
from lab.training.predictor.drafted import DraftedTokens
from lab.training.predictor.predictor_config import PredictorConfig
from outrider.contracts.errors import ParameterError
from outrider.drafting.features import FEATURE_NAMES

_FORMAT = 1
_METADATA_KEY = "outrider_rounds"
_COLUMNS = ("features", "accepted", "temperature", "prompt")


def header_of(models: LoadedPair, config: PredictorConfig, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return everything that decides which draft tokens are accepted."""
    reported = {
        "format": _FORMAT,
        "features": FEATURE_NAMES,
        "target": models.target.model_hash,
        "drafter": models.drafter.model_hash,
        "rule": config.rule,
        "temperatures": config.asked_temperatures,
        "dtype": models.spec.dtype,
        "drafter_dtype": models.spec.drafter_dtype,
        "max_new_tokens": config.max_new_tokens,
        "window_tokens": config.window_tokens,
        "seed": config.seed,
        "prompts": hashlib.sha256(json.dumps([list(ids) for ids in prompts]).encode()).hexdigest(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(reported))
    return plain


def read_rounds(file: Path, header: dict[str, Any]) -> DraftedTokens | None:
    """Read saved tokens; None if there is no file.

    Raises:
        ParameterError: the file is not of this kind, or of another pair or rule, or made in another way.
    """
    if not file.exists():
        return None
    try:
        with safe_open(file, framework="np") as opened:
            found = json.loads((opened.metadata() or {}).get(_METADATA_KEY, "{}"))
            columns = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ParameterError("rounds", "a file that `outrider train predictor` made", f"{file}: {error}") from error
    if differing := [key for key in {**header, **found} if header.get(key) != found.get(key)]:
        ours, theirs = (", ".join(f"{key} {one.get(key)}" for key in differing) for one in (header, found))
        needed = f"rounds of this pair and rule, made in this way ({ours}), or another file, or this one deleted"
        raise ParameterError("rounds", needed, f"{theirs} in {file}")
    return DraftedTokens(*(columns[name] for name in _COLUMNS))


def save_rounds(file: Path, tokens: DraftedTokens, header: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    columns = {name: np.ascontiguousarray(getattr(tokens, name)) for name in _COLUMNS}
    save_file(columns, partial, metadata={_METADATA_KEY: json.dumps(header)})
    partial.chmod(0o644)
    partial.replace(file)
