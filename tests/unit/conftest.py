"""Unit tests start no Ray: they test decisions, and run in seconds."""

import sys
from collections.abc import Iterator

import pytest


def _ray_is_running() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that starts Ray; a bare ``ray.init()`` fails on the address."""
    monkeypatch.setenv("RAY_ADDRESS", "unit-tests-start-no-ray")
    ran_before = _ray_is_running()  # a cluster test of the same session may have left its cluster to the next one
    yield
    if _ray_is_running() and not ran_before:
        sys.modules["ray"].shutdown()
        pytest.fail("a unit test started Ray; move it to tests/cluster")
