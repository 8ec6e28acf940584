"""What goes from the host to a device of its own for a pass: one copy, and nothing that waits for that device.

Tensors of torch's ``meta`` device have no numbers: whatever needs one on the host raises.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from outrider.engines.segments import Move, Segment
from outrider.engines.torch.model import DraftModel, PagedModel
from tests.unit.engines.conftest import tiny_llama

META = torch.device("meta")
PROMPT = Segment([5, 17, 42, 8, 61, 30, 2], 0, [3, 1], 0)
BLOCK = Segment([9, 4, 7], 6, [0, 2, 4], 3)
TREE = Segment([9, 4, 7, 11, 3], 5, [5, 6, 7], 4, (-1, -1, 0, 0))
ONE = Segment([1], 30, list(range(8, 16)), 1)
PASSES = {"prompt": [PROMPT], "one row": [ONE], "tree": [TREE], "all": [PROMPT, BLOCK, TREE, ONE]}
MOVES = [Move([0, 2, 4], [6, 8], [5, 6]), Move([5, 6, 7], [7], [6])]


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what is copied from the host to the device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every operation comes by here."""
        made = func(*args, **kwargs or {})
        sources = [one for one in args if isinstance(one, torch.Tensor) and one.device.type == "cpu" and one.numel()]
        if isinstance(made, torch.Tensor) and made.device == META and sources:
            self.bytes += [one.nbytes for one in sources]
        return made


class Made(TorchFunctionMode):
    """Notes what is made on the device of a list: operations do not show it."""

    def __init__(self, copies: Copies) -> None:
        super().__init__()
        self._copies = copies

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every function comes by here."""
        made = func(*args, **kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and made.device == META:
            self._copies.bytes.append(made.nbytes)
        return made


@contextmanager
def copies_up() -> Iterator[Copies]:
    copies = Copies()
    with copies, Made(copies):
        yield copies


def model_on(device: torch.device, make: type[PagedModel] = PagedModel) -> PagedModel:
    return make(tiny_llama().to(device), 24, 4)  # type: ignore[arg-type]  # transformers' wrapper has no types


@pytest.mark.parametrize("make", [PagedModel, DraftModel])
@pytest.mark.parametrize("segments", PASSES.values(), ids=PASSES)
@pytest.mark.parametrize("want_hidden", [False, True])
def test_a_pass_takes_one_copy_to_its_device(
    segments: Sequence[Segment], make: type[PagedModel], *, want_hidden: bool
) -> None:
    model = model_on(META, make)
    with copies_up() as copies:
        model.forward(segments, want_hidden=want_hidden)
    assert len(copies.bytes) == 1


@pytest.mark.parametrize("asked", [lambda model: model.move(MOVES), lambda model: model.move(MOVES[:1])])
def test_so_does_moving_kv(asked: Callable[[PagedModel], None]) -> None:
    model = model_on(META)
    with copies_up() as copies:
        asked(model)
    assert len(copies.bytes) == 1


def test_the_watch_sees_copies_and_waits_are_errors() -> None:
    with copies_up() as copies:
        row = torch.tensor([3, 1], device=META) + torch.arange(2).to(META)
    assert copies.bytes == [16, 16]
    with pytest.raises(RuntimeError, match="meta"):
        row[0].item()
