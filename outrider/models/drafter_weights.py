"""File format of a distilled drafter: its own layers as int8; embedding and head come from the target.

A distilled drafter consists of some of its target's layers, retrained, and a square projection between its final norm
and the target's output head. Matrices are stored as int8 with one float16 scale per row (weight = q * scale), vectors
and the projection as float16. This costs no measurable acceptance, and takes a quarter of float32's bytes.

Format 2: a safetensors file with tensors ``layers.<i>.<parameter>.q`` and ``.s``, ``layers.<i>.<parameter>`` for
vectors, ``norm``, ``out_proj`` and optionally ``head_ids``. Its metadata names the model it was distilled from, so that
a wrong target is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from outrider.contracts.errors import ModelUnavailableError
from outrider.documents.whole_file import whole_file

FORMAT_VERSION = 2
_METADATA_KEY = "outrider_drafter"
_INT8_MAX = 127


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    target: str  # name of the model it was distilled from
    target_hash: str  # ``target_folder.model_hash`` of it
    token_map_hash: str  # ``TokenMap.sha256`` of its tokenizer; must equal that of the target it is loaded for
    source_layers: tuple[int, ...]  # target layers it was initialised from, in order; their number is its depth
    hidden_size: int  # must equal the target's
    measured: Mapping[str, float] = field(default_factory=dict)  # during distillation, e.g. ``greedy_acceptance``


@dataclass(frozen=True, slots=True)
class DrafterWeights:
    """A drafter's own parameters, dequantised.

    ``layers``: by ``<i>.<parameter>``, as in the state dict of the model's layer list. ``norm``: ``[hidden]``.
    ``projection``: ``[hidden, hidden]``, applied as ``logits = (norm(h) @ projection) @ head.T``. All float32.
    ``head_ids``: ``[n]`` int64, ascending: the tokens it may propose; None: all.
    """

    layers: Mapping[str, torch.Tensor]
    norm: torch.Tensor
    projection: torch.Tensor
    head_ids: torch.Tensor | None = None


def quantise_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to symmetric int8 with a scale per row of the last dimension.

    Returns:
        q, int8 of the weight's shape, and the scales, float16 ``[..., 1]``; ``|weight - q * scale| <= scale / 2``
        up to float16's rounding of the scale.
    """
    weight = weight.float()
    scales = (weight.abs().amax(-1, keepdim=True) / _INT8_MAX).half()
    safe = torch.where(scales > 0, scales, torch.ones_like(scales)).float()
    return (weight / safe).round().clamp(-_INT8_MAX, _INT8_MAX).to(torch.int8), scales


def dequantise_rows(q: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return q.float() * scales.float()


def save_drafter(file: Path, weights: DrafterWeights, info: DrafterInfo) -> None:
    """Write a drafter file of format 2; the file appears complete or not at all."""
    tensors: dict[str, torch.Tensor] = {}
    for name, value in weights.layers.items():
        if value.dim() == 1:
            tensors[f"layers.{name}"] = value.half()
        else:
            tensors[f"layers.{name}.q"], tensors[f"layers.{name}.s"] = quantise_rows(value)
    tensors["norm"], tensors["out_proj"] = weights.norm.half(), weights.projection.half()
    if weights.head_ids is not None:
        tensors["head_ids"] = weights.head_ids.int()
    write_drafter_file(file, tensors, info)


def write_drafter_file(file: Path, tensors: Mapping[str, torch.Tensor], info: DrafterInfo) -> None:
    # A single entry: safetensors writes several in random order, and equal drafters should give equal files.
    metadata = {_METADATA_KEY: json.dumps({"format": FORMAT_VERSION, **asdict(info)})}
    with whole_file(file) as partial:
        save_file({name: value.cpu().contiguous() for name, value in tensors.items()}, partial, metadata=metadata)
        partial.chmod(0o644)


def read_drafter_info(file: Path) -> DrafterInfo:
    """Read a drafter file's description, from its header only."""
    return _read(file, with_tensors=False)[0]


def read_drafter(file: Path) -> tuple[DrafterInfo, DrafterWeights]:
    info, tensors = _read(file, with_tensors=True)
    try:
        layers: dict[str, torch.Tensor] = {}
        for name in tensors:
            if not name.startswith("layers."):
                continue
            parameter = name.removeprefix("layers.")
            if name.endswith(".q"):
                layers[parameter.removesuffix(".q")] = dequantise_rows(tensors[name], tensors[f"{name[:-2]}.s"])
            elif not name.endswith(".s"):
                layers[parameter] = tensors[name].float()
        head_ids = tensors["head_ids"].long() if "head_ids" in tensors else None
        return info, DrafterWeights(layers, tensors["norm"].float(), tensors["out_proj"].float(), head_ids)
    except KeyError as error:
        raise ModelUnavailableError(f"needs tensor {error} in {file}, found none; distil the drafter again") from error


def _read(file: Path, *, with_tensors: bool) -> tuple[DrafterInfo, dict[str, torch.Tensor]]:
    try:
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()} if with_tensors else {}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelUnavailableError(
            f"needs a drafter file written by `outrider distill` at {file}, found: {error}; distil one for this target"
        ) from error
    described = json.loads(metadata.get(_METADATA_KEY, "{}"))
    found = described.pop("format", None)
    if found != FORMAT_VERSION:
        raise ModelUnavailableError(
            f"needs drafter format {FORMAT_VERSION} in {file}, found {found}; distil the drafter again"
        )
    return DrafterInfo(**{**described, "source_layers": tuple(described["source_layers"])}), tensors
