"""Transfers between host and accelerator: uploads without a wait, results read together with one wait.

A CPU draws row by row, and only as far as a draft can be accepted. An accelerator gets all rows at once: each read of a
result would make the host wait for all work queued before it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Fetched = Callable[[], npt.NDArray[Any]]

_EVERYWHERE: ContextVar[bool] = ContextVar("at_once_everywhere", default=False)


def at_once(device: torch.device) -> bool:
    """Whether rows on this device are computed together and read once: on an accelerator."""
    return device.type != "cpu" or _EVERYWHERE.get()


@contextmanager
def everywhere_at_once() -> Iterator[None]:
    """Compute on a CPU as on an accelerator, which is slower there: for tests that compare both ways."""
    token = _EVERYWHERE.set(True)
    try:
        yield
    finally:
        _EVERYWHERE.reset(token)


def index_tensor(values: Sequence[int], device: torch.device) -> Tensor:
    """Copy ``[n]`` int64 to ``device`` without a wait; a copy of pageable memory would wait for all queued work."""
    return on_device(torch.tensor(values, dtype=torch.int64), device)


def on_device(host: Tensor | npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy host numbers to ``device`` without waiting for it."""
    return _staged(host, device).to(device, non_blocking=True)


def _staged(host: Tensor | npt.NDArray[Any], device: torch.device) -> Tensor:
    """Pin host memory that CUDA copies from; torch reuses it once the copy is done, without a wait of ours."""
    tensor = torch.from_numpy(host) if isinstance(host, np.ndarray) else host
    return tensor.pin_memory() if device.type == "cuda" else tensor


class Upload:
    """Integers of the host that go to a device in one copy."""

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[np.int64]] = []
        self._sent: list[Tensor] | None = None

    def add(self, values: Sequence[int] | Sequence[Sequence[int]] | npt.NDArray[Any]) -> Callable[[], Tensor]:
        """Add integers; the returned function gives them on the device after ``send``, int64 in their shape."""
        assert self._sent is None, "what is added after the sending is never sent"
        index = len(self._parts)
        self._parts.append(np.asarray(values, dtype=np.int64))

        def sent() -> Tensor:
            assert self._sent is not None, "send comes first"
            return self._sent[index]

        return sent

    def send(self, device: torch.device, buffer: Tensor | None = None) -> None:
        """Start the copy, without waiting for the device: to the start of ``buffer`` if it is large enough."""
        host = np.concatenate([part.ravel() for part in self._parts])
        if buffer is None or len(host) > len(buffer):
            flat = on_device(host, device)
        else:
            flat = buffer[: len(host)].copy_(_staged(host, device), non_blocking=True)
        parts = torch.split(flat, [part.size for part in self._parts])
        self._sent = [one.view(part.shape) for one, part in zip(parts, self._parts, strict=True)]


class Readback:
    """Tensors of one device that are read with one copy and one wait.

    Attributes:
        wanted: tensors added, in order.
    """

    def __init__(self) -> None:
        self.wanted: list[Tensor] = []
        self._fetched: list[npt.NDArray[Any]] | None = None

    def add(self, tensor: Tensor) -> Fetched:
        """Add a tensor; the returned function gives its numbers after ``read``."""
        assert self._fetched is None, "what is added after the reading is never read"
        index = len(self.wanted)
        self.wanted.append(tensor.detach())

        def fetched() -> npt.NDArray[Any]:
            assert self._fetched is not None, "read comes first"
            return self._fetched[index]

        return fetched

    def read(self) -> None:
        """Wait for the device once, and copy all tensors; without tensors, or on a CPU, there is no wait."""
        if not self.wanted or self.wanted[0].device.type == "cpu":
            self._fetched = [tensor.numpy() for tensor in self.wanted]
            return
        parts = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in self.wanted]
        data, at = torch.cat(parts).cpu().numpy(), 0
        self._fetched = []
        for tensor, part in zip(self.wanted, parts, strict=True):
            dtype = torch.empty(0, dtype=tensor.dtype).numpy().dtype
            self._fetched.append(data[at : at + part.numel()].view(dtype).reshape(tensor.shape))
            at += part.numel()
