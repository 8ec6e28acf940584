"""Watches an engine that decides as on a device of its own: what it reads of that, and what would wait for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from outrider.sampling.device_tensors import Readback

WAITS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique_dim", "_unique2")
HOST_READS = (
    "numpy",
    "tolist",
    "item",
    "cpu",
    "__array__",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what makes a host wait for its device: operations whose outcome it has to know, and masks as indices."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []
        self.reads = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every operation comes by here."""
        indices = args[1] if str(func).startswith(("aten.index.", "aten.index_put")) else []
        masked = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)
        if str(func).split(".")[1] in WAITS or masked:
            self.waits.append(str(func))
        return func(*args, **kwargs or {})


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Every way to numbers of a tensor but one reading of several; each of these with anything to read counts one."""
    watch, read = Watch(), Readback.read

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(torch.Tensor, name)

        def method(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            watch.waits.append(name)
            return real(tensor, *args, **kwargs)

        return method

    def counted(readback: Readback) -> None:
        watch.reads += any(tensor.numel() for tensor in readback.wanted)
        with pytest.MonkeyPatch.context() as inside:
            for name, method in real_methods.items():
                inside.setattr(torch.Tensor, name, method)
            read(readback)

    real_methods = {name: getattr(torch.Tensor, name) for name in HOST_READS}
    with monkeypatch.context() as patch, watch:
        for name in HOST_READS:
            patch.setattr(torch.Tensor, name, noted(name))
        patch.setattr(Readback, "read", counted)
        yield watch
