"""Sampling of many rows, with the noise generated on the device."""

from statistics import median

import torch

from lab.bench.gpu.setting import Found, Setting, repeated_s
from outrider.contracts.requests import SamplingParams
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.row_groups import RowGroup

_ROWS, _VOCAB = 256, 128_256
_FEW_ROWS, _SMALL_VOCAB = 8, 1000
_KINDS = {
    "greedy": SamplingParams(temperature=0.0),
    "sampled": SamplingParams(temperature=0.8),
    "top-k 40, top-p 0.95": SamplingParams(temperature=0.8, top_k=40, top_p=0.95),
    "top-p 0.95": SamplingParams(temperature=0.8, top_p=0.95),
}


def run(setting: Setting) -> Found:
    """Time each kind of sampling over all rows."""
    rows, vocab = (_FEW_ROWS, _SMALL_VOCAB) if setting.small else (_ROWS, _VOCAB)
    generator = torch.Generator().manual_seed(setting.seed)
    logits = (3.0 * torch.randn(rows, vocab, generator=generator)).to(setting.device, setting.dtype)
    times_ms = dict[str, float]()
    for name, params in _KINDS.items():
        groups = [RowGroup(params, 100 + row, None, (), 1) for row in range(rows)]

        def choose(groups: list[RowGroup] = groups) -> None:
            choose_tokens(logits, groups).tolist()

        times_ms[name] = 1e3 * median(repeated_s(choose, 2 if setting.small else 20))
    table = [(name, f"{ms:.3g}") for name, ms in times_ms.items()]
    return Found((f"{rows} rows of {vocab}", "ms"), table, {"rows": rows, "vocab": vocab, "ms": times_ms})
