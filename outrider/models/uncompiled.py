"""Load models without torch's compiler, which nothing here uses, and which takes about a second to import.

transformers marks functions as not to be compiled, and torch some of its own; both import the compiler.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_COMPILER = "torch._dynamo"


@contextmanager
def uncompiled() -> Iterator[None]:
    """Ignore such marks within this context; nothing can be compiled in it. Afterwards the compiler is importable."""
    stand_in: Any = ModuleType(_COMPILER)
    stand_in.__path__ = [str(Path(torch.__file__).with_name("_dynamo"))]  # transformers imports a small part of it
    stand_in.disable = stand_in.allow_in_graph = stand_in.assume_constant_result = _unmarked
    if sys.modules.setdefault(_COMPILER, stand_in) is not stand_in:
        yield  # already imported
        return
    try:
        yield
    finally:
        del sys.modules[_COMPILER]


def _unmarked(function: Any = None, *_: object, **__: object) -> Any:
    return _unmarked if function is None else function
