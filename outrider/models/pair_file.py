"""Files of what was learned for one pair of models, and is of no use to any other.

A safetensors file: arrays, and in its header what they are, whom they are for and what was measured of them, in JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from outrider.contracts.errors import ModelUnavailableError, PairMismatchError

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class FileKind:
    """What is in a file, and how one is made.

    Attributes:
        name: what messages call it.
        key: of its description in the header.
        command: that writes one.
        version: of its format.
    """

    name: str
    key: str
    command: str
    version: int = 1


@dataclass(frozen=True, slots=True)
class PairInfo:
    """Which pair. What else is told of a file, and its kind, is a subclass's."""

    kind: ClassVar[FileKind]
    target: str  # its name
    target_hash: str  # its ``ModelFacts.model_hash``
    drafter: str
    drafter_hash: str


def save_arrays(file: Path, arrays: Arrays, info: PairInfo, **more: object) -> None:
    """Write arrays and what is said of them; the file appears complete or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    # One entry: safetensors writes several in random order, and what is equal should be equal files.
    header = {info.kind.key: json.dumps({"format": info.kind.version, **more, **asdict(info)})}
    save_file({name: np.ascontiguousarray(values) for name, values in arrays.items()}, partial, metadata=header)
    partial.chmod(0o644)
    partial.replace(file)


def read_arrays(file: Path, kind: FileKind) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """The arrays, and what is said of them.

    Raises:
        ModelUnavailableError: the file is of another kind or format, damaged, or not there.
    """
    try:
        with safe_open(file, framework="np") as opened:
            described: dict[str, Any] = json.loads((opened.metadata() or {}).get(kind.key, "{}"))
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelUnavailableError(
            f"needs a {kind.name} written by `{kind.command}` at {file}, found: {error}; train one for this pair"
        ) from error
    if (found := described.pop("format", None)) != kind.version:
        raise ModelUnavailableError(
            f"needs {kind.name} format {kind.version} in {file}, found {found}; train it again with `{kind.command}`"
        )
    return arrays, described


def incomplete(file: Path, kind: FileKind, error: Exception) -> ModelUnavailableError:
    """What is raised of a file whose description or arrays are not those of its kind."""
    return ModelUnavailableError(
        f"needs a whole {kind.name} in {file}, found: {error!r}; train it again with `{kind.command}`"
    )


def pair_fault(info: PairInfo, *, target_hash: str | None = None, drafter_hash: str | None = None) -> str | None:
    """Why it is not for a pair, with both hashes; None if it is. A hash that is not given is not compared."""
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
    """The same, raised as a ``PairMismatchError``."""
    if (fault := pair_fault(info, target_hash=target_hash, drafter_hash=drafter_hash)) is not None:
        raise PairMismatchError(fault)
