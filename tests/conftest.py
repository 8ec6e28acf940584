"""Settings of every test: quiet, offline, one thread per process. They hold before any library is imported."""

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadGroupScheduling

os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes with several threads each slow one another down
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_worker_niceness", "0")  # else Ray's actors wait behind the tests that run beside them
os.environ.setdefault("RAY_metrics_report_interval_ms", "1000")  # a test of metrics waits for that

# No deadline: how long an example takes says nothing about the code on a machine that does other things too.
# The same examples in every run: a change is judged by what it does, not by which examples it happened to meet.
# `--hypothesis-profile explore` looks for new ones; what it finds becomes an `@example`.
settings.register_profile("outrider", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("outrider")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Import all without looking for garbage, and never look through what was imported: both took a while each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


class ByModule(LoadGroupScheduling):  # type: ignore[misc]  # ships no types
    """A module's tests in one process, so that what they share is made once; groups across modules likewise."""

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if group == nodeid else group


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByModule | None:
    """Of ``--dist loadgroup``."""
    return ByModule(config, log) if config.getvalue("dist") == "loadgroup" else None
