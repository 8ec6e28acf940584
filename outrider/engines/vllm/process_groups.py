"""Let engines of one process end one by one. vLLM's process groups are the process's, and any engine would end them."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

_CLEANUP = "cleanup_dist_env_and_memory"
_running = 0


def started() -> None:
    """Count an engine of this process that runs now."""
    global _running  # noqa: PLW0603 (so are vLLM's groups)
    _running += 1


@contextmanager
def stopping() -> Iterator[None]:
    """Stop one inside; the groups end with the last."""
    global _running  # noqa: PLW0603
    _running -= 1
    core = importlib.import_module("vllm.v1.engine.core")
    cleanup = getattr(core, _CLEANUP, None)
    if _running and cleanup is not None:
        setattr(core, _CLEANUP, lambda: None)
    try:
        yield
    finally:
        if cleanup is not None:
            setattr(core, _CLEANUP, cleanup)
