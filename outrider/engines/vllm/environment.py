"""Environment of a process with vLLM: variables that it reads, and process state that it changes.

vLLM reads its variables when it is imported or started. Those that the engine relies on are always set; for the others
the operator's values take precedence.
"""

import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_NEEDED = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives in the thread that drives it
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # ``worker`` reads state that the first runner leaves
}
_DEFAULTS = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # several processes share a machine's cores; we set their threads
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # forking a process with threads (Ray's, torch's) can deadlock
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",  # its 20 warnings at each start are about the unused scheduler and sampler
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
_CHANGED = ("OMP_NUM_THREADS", "VLLM_DIST_IDENT")


def prepare() -> None:
    """Set the variables. Call it before vLLM is imported; may be called repeatedly."""
    os.environ.update(_NEEDED)
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)


@contextmanager
def starting(threads: int) -> Iterator[None]:
    """Start vLLM within this context: it gets ``threads`` torch threads, and the process state is restored after.

    vLLM seeds every generator of the process, its CPU worker replaces ``torch.set_num_threads`` by a function without
    effect, and torch's process groups replace ``sys.excepthook``. OpenMP counts threads per calling thread, so start
    and use the engine in the same one.
    """
    _hide_llvmlites_dict()
    set_num_threads, excepthook, dtype = torch.set_num_threads, sys.excepthook, torch.get_default_dtype()
    variables = {name: os.environ.get(name) for name in _CHANGED}
    generators = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 (vLLM seeds that one)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for worker processes; here it keeps vLLM from choosing a number
    set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        sys.excepthook = excepthook
        random.setstate(generators[0])
        np.random.set_state(generators[1])  # noqa: NPY002
        torch.set_rng_state(generators[2])
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _hide_llvmlites_dict() -> None:
    """Hide the ``__dict__`` of llvmlite's library, which has any attribute: vLLM searches all modules for kernels."""
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    if library is None or not hasattr(library, "__dict__"):
        return
    kind = type(library)
    found = kind.__getattr__

    def public(self: Any, name: str) -> Any:
        if name == "__dict__":
            raise AttributeError(name)
        return found(self, name)

    kind.__getattr__ = public
