"""Small tensors from host lists, without waiting for the device they go to."""

from collections.abc import Sequence

import torch
from torch import Tensor


def index_tensor(values: Sequence[int], device: torch.device) -> Tensor:
    """``[n]`` int64 on ``device``. A plain copy of pageable memory would wait for all the device was given before."""
    host = torch.tensor(values, dtype=torch.int64)
    return host if device.type != "cuda" else host.pin_memory().to(device, non_blocking=True)
