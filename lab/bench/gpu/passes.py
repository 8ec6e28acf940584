"""A pass of the torch engine against reading its bytes once, and against plain transformers with the same weights."""

from collections.abc import Iterator
from statistics import median

import torch

from lab.bench.gpu.random_models import random_model
from lab.bench.gpu.setting import Found, Setting, repeated_s
from lab.bench.harness.timing import plain_step
from lab.bench.passes.shapes import ModelBytes, PassShape, Pool, served, weight_bytes
from outrider.engines.torch.attention import ATTENTION_NAME
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.models.model_classes import PreTrainedModel

_BLOCK_TOKENS = 16
_SHAPES = [PassShape(*one) for one in ((1, 1), (4, 1), (9, 1), (1, 8), (1, 32), (1, 64), (9, 7), (8, 32))]
_FEW_SHAPES = [PassShape(*one) for one in ((1, 1), (3, 1), (1, 4))]
_BEHIND, _LITTLE_BEHIND = (100, 2000, 8000), (20, 60)
_REPEATS, _FEW_REPEATS = 20, 2
_BUFFER_BYTES, _SMALL_BUFFER_BYTES = 2**31, 2**26
_FREE = 0.6  # share of the device's free memory for KV: transformers' copy takes more than that
_COLUMNS = {
    "model": "model",
    "rows x generations": "shape",
    "behind": "behind",
    "ms": "ms",
    "bound ms": "bound_ms",
    "over bound": "over_bound",
    "plain ms": "plain_ms",
    "over plain": "over_plain",
    "over one row": "over_one_row",
}


def run(setting: Setting) -> Found:
    """Measure all points, model by model; skip those whose KV does not fit the device."""
    bytes_per_s = _read_speed(setting)
    figures: list[dict[str, object]] = []
    for name in ("tiny",) if setting.small else ("1B", "8B"):
        model = random_model(name, setting.device, setting.dtype, setting.seed)
        figures += _points(name, model, bytes_per_s, setting)
        del model
    rows = [[_shown(one[column]) for column in _COLUMNS.values()] for one in figures]
    return Found(list(_COLUMNS), rows, {"bytes_per_s": bytes_per_s, "points": figures})


def _points(name: str, model: PreTrainedModel, bytes_per_s: float, setting: Setting) -> Iterator[dict[str, object]]:
    sizes = ModelBytes(weight_bytes(model), kv_bytes_per_token(model))
    repeats = _FEW_REPEATS if setting.small else _REPEATS
    for behind in _LITTLE_BEHIND if setting.small else _BEHIND:
        one_row_s = 0.0
        for shape in _FEW_SHAPES if setting.small else _SHAPES:
            if not _fits(shape, behind, sizes, setting.device):
                continue
            ours_s = _ours_s(model, shape, behind, repeats)
            plain_s = _plain_s(model, shape, behind, repeats)
            bound_s = sizes.of_pass(shape, behind) / bytes_per_s
            one_row_s = ours_s if shape.total_rows == 1 else one_row_s
            yield {
                "model": name,
                "shape": str(shape),
                "behind": behind,
                "ms": 1e3 * ours_s,
                "bound_ms": 1e3 * bound_s,
                "over_bound": ours_s / bound_s,
                "plain_ms": 1e3 * plain_s,
                "over_plain": ours_s / plain_s,
                "over_one_row": ours_s / one_row_s if shape.generations == 1 else None,
            }


def _fits(shape: PassShape, behind: int, sizes: ModelBytes, device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    return sizes.of_kv(behind + shape.rows) * shape.generations < _FREE * free


def _ours_s(model: PreTrainedModel, shape: PassShape, behind: int, repeats: int) -> float:
    pool = Pool(_BLOCK_TOKENS, behind + shape.rows, shape.generations)
    paged, segments = served(model, pool.blocks, _BLOCK_TOKENS), pool.segments(shape, behind)
    return median(repeated_s(lambda: paged.forward(segments), repeats))


def _plain_s(model: PreTrainedModel, shape: PassShape, behind: int, repeats: int) -> float:
    model.set_attn_implementation("sdpa")
    try:
        return median(repeated_s(plain_step(model, shape.generations, behind, shape.rows), repeats))
    finally:
        model.set_attn_implementation(ATTENTION_NAME)


def _read_speed(setting: Setting) -> float:
    """Bytes per second of the fastest of a few sums over a buffer far larger than any cache."""
    size = _SMALL_BUFFER_BYTES if setting.small else _BUFFER_BYTES
    buffer = torch.ones(size // 4, device=setting.device)
    return float(buffer.nbytes / min(repeated_s(buffer.sum, 5)))


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
