from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import GetTimeoutError

from actors.fleet.actor import is_earlier
from actors.heartbeats import FLEET_VERSION


def fleet_of(told: Any) -> SimpleNamespace:
    """A handle whose call for the version comes to this."""
    return SimpleNamespace(version=SimpleNamespace(remote=lambda: told))


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call comes to is had at once."""

    def get(told: Any, timeout: float) -> Any:
        assert timeout > 0.0
        if isinstance(told, Exception):
            raise told
        return told

    monkeypatch.setattr(ray, "get", get)


def test_a_fleet_of_an_earlier_version_is_told_by_its_number_or_by_having_none() -> None:
    assert is_earlier(SimpleNamespace())
    assert is_earlier(fleet_of(FLEET_VERSION - 1))
    assert not is_earlier(fleet_of(FLEET_VERSION))


def test_a_later_one_and_one_that_is_silent_are_left_alone() -> None:
    assert not is_earlier(fleet_of(FLEET_VERSION + 1))
    assert not is_earlier(fleet_of(GetTimeoutError()))
