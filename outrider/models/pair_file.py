"""Files of what was trained for one pair of models, and does not apply to others.

A safetensors file: arrays, and as JSON in its header their kind, their pair, and measurements.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from outrider.contracts.errors import ModelUnavailableError, PairMismatchError

FORMAT = 1  # of all kinds


@dataclass(frozen=True, slots=True)
class FileKind:
    """Kind of content, and the command that writes it."""

    name: str  # used in messages
    key: str  # of the description in the header
    command: str  # that writes such a file


@dataclass(frozen=True, slots=True)
class PairInfo:
    """The pair of models. Subclasses add the kind of file and further facts."""

    kind: ClassVar[FileKind]
    target: str  # name
    target_hash: str  # ``ModelFacts.model_hash``
    drafter: str
    drafter_hash: str


def read_arrays(file: Path, kind: FileKind) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Read arrays and their description; of another kind or format they are a ``ModelUnavailableError``."""
    try:
        with safe_open(file, framework="np") as opened:
            described: dict[str, Any] = json.loads((opened.metadata() or {}).get(kind.key, "{}"))
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelUnavailableError(
            f"needs a {kind.name} written by `{kind.command}` at {file}, found: {error}; train one for this pair"
        ) from error
    if (found := described.pop("format", None)) != FORMAT:
        raise ModelUnavailableError(
            f"needs {kind.name} format {FORMAT} in {file}, found {found}; train it again with `{kind.command}`"
        )
    return arrays, described


def incomplete(file: Path, kind: FileKind, error: Exception) -> ModelUnavailableError:
    """Return the error for a file whose description or arrays are not those of its kind."""
    return ModelUnavailableError(
        f"needs a whole {kind.name} in {file}, found: {error!r}; train it again with `{kind.command}`"
    )


def pair_fault(info: PairInfo, *, target_hash: str | None = None, drafter_hash: str | None = None) -> str | None:
    """Return why a file is not for a pair; None if it is. A hash of None is not compared."""
    for model, name, made_for, found in (
        ("target", info.target, info.target_hash, target_hash),
        ("drafter", info.drafter, info.drafter_hash, drafter_hash),
    ):
        if found is not None and found != made_for:
            needed = f"a {info.kind.name} needs the {model} it was trained for ({name}, hash {made_for})"
            remedy = f"train one for this pair (`{info.kind.command}`), or configure none"
            return f"{needed}, found hash {found}; {remedy}"
    return None


def check_pair(info: PairInfo, *, target_hash: str | None = None, drafter_hash: str | None = None) -> None:
    if (fault := pair_fault(info, target_hash=target_hash, drafter_hash=drafter_hash)) is not None:
        raise PairMismatchError(fault)
