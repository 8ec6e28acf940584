"""Calls to a device whose gateway was killed do not flood the fleet with the question where it is."""

import asyncio
import socket

from actors.coordinator.gateway_transport import GatewayDrafterTransport, GatewayLinks
from actors.gateway_link import DialledHandle, GatewayPlace
from outrider.contracts.errors import DrafterLostError
from outrider.versions import VERSIONS

_CALLS, _DEVICES, _DEADLINE_S = 20, 5, 0.6
_MOST_LOOKS = 20 * _DEVICES  # 6 each on average


def test_the_fleet_is_asked_once_for_all_calls_that_wait_for_a_device() -> None:
    looked = list[int]()
    under_way = most = 0

    async def locate(handle: DialledHandle) -> DialledHandle | None:
        nonlocal under_way, most
        looked.append(handle.incarnation)
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return handle

    async def run() -> None:
        with socket.socket() as nobody:  # bound, and does not listen
            nobody.bind(("127.0.0.1", 0))
            place, links = GatewayPlace("127.0.0.1", nobody.getsockname()[1], b"secret"), GatewayLinks()
            handles = [DialledHandle(place, number, VERSIONS) for number in range(_DEVICES)]
            calls = [
                GatewayDrafterTransport("d", handle, links, locate).probe(b"?", 1, _DEADLINE_S)
                for handle in handles
                for _ in range(_CALLS)
            ]
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(error, DrafterLostError) for error in found), found
            await links.disconnect()

    asyncio.run(run())
    assert set(looked) == set(range(_DEVICES))
    assert len(looked) <= _MOST_LOOKS
    assert most <= _DEVICES
