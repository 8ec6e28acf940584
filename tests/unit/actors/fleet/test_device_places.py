"""Places of devices: the first free one, and in a time that leaves the fleet's loop to others."""

import time

from actors.fleet.device_places import MOST_OF_ONE, DevicePlaces
from actors.messages import DrafterId
from outrider.config.drafters import DrafterGroupConfig
from outrider.wire.dialling import RefusalCode, Refused

_MANY = 10_000
_FIND_S = 0.003


def group(max_devices: int) -> DrafterGroupConfig:
    return DrafterGroupConfig(name="far", from_="gateway", engine="onnx", max_devices=max_devices)


def test_a_place_that_is_free_again_is_found_first() -> None:
    places = DevicePlaces()
    for index in range(3):
        assert places.find([group(3)], f"d{index}") == DrafterId("far", index)
        places.take(DrafterId("far", index), f"d{index}")
    full = places.find([group(3)], "d3")
    assert isinstance(full, Refused)
    assert full.code is RefusalCode.GROUP_FULL
    places.free(DrafterId("far", 1), "d1")
    assert places.find([group(3)], "d3") == DrafterId("far", 1)


def test_devices_of_one_identity_are_counted_until_they_leave() -> None:
    places = DevicePlaces()
    for index in range(MOST_OF_ONE):
        places.take(DrafterId("far", index), "a")
    assert isinstance(places.find([group(_MANY)], "a"), Refused)
    places.free(DrafterId("far", 0), "a")
    assert places.find([group(_MANY)], "a") == DrafterId("far", 0)


def test_a_place_among_many_is_found_at_once() -> None:
    places = DevicePlaces()
    for index in range(_MANY - 1):
        places.take(DrafterId("far", index), f"d{index}")
    took_s = []
    for _ in range(20):
        began_s = time.perf_counter()
        assert places.find([group(_MANY)], "new") == DrafterId("far", _MANY - 1)
        took_s.append(time.perf_counter() - began_s)
    assert min(took_s) < _FIND_S
