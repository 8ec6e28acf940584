"""Calls to a device whose gateway was killed, or hangs: they do not flood the fleet, and do not wait for ever."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from actors.coordinator import gateway_transport
from actors.coordinator.gateway_transport import GatewayDrafterTransport, GatewayLink, GatewayLinks
from actors.gateway_link import DialledHandle, LinkWriter, RelayOutcome, read_relayed
from actors.proved_streams import StreamPlace, StreamProofs
from actors.waiting import within
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
            place, links = StreamPlace("127.0.0.1", nobody.getsockname()[1], b"secret"), GatewayLinks()
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


def with_gateway(
    serve: Callable[[asyncio.StreamReader, LinkWriter], Awaitable[None]], test: Callable[[GatewayLink], Awaitable[None]]
) -> None:
    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await StreamProofs(b"secret", 1).accept(reader, writer)
        try:
            await serve(reader, LinkWriter(writer))
        except asyncio.IncompleteReadError:
            writer.close()

    async def run() -> None:
        async with await asyncio.start_server(served, "127.0.0.1", 0) as server:
            link = GatewayLink(StreamPlace("127.0.0.1", server.sockets[0].getsockname()[1], b"secret"))
            await test(link)
            await link.disconnect()

    asyncio.run(within(30.0, run()))


def test_calls_do_not_wait_for_a_gateway_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_transport, "_QUIET_S", 0.02)

    async def hangs(reader: asyncio.StreamReader, _: LinkWriter) -> None:
        while True:
            await read_relayed(reader)

    async def test(link: GatewayLink) -> None:
        with pytest.raises(ConnectionError):
            await link.asked(7, b"call", 100)

    with_gateway(hangs, test)


def test_calls_wait_for_a_device_however_long_while_its_gateway_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_transport, "_QUIET_S", 0.05)

    async def lives(reader: asyncio.StreamReader, writer: LinkWriter) -> None:
        first, signs = await read_relayed(reader), 0
        while signs < 5:
            sign = await read_relayed(reader)
            assert sign.incarnation == 0
            signs += 1
            writer.put_reply(sign.incarnation, sign.number, RelayOutcome.ELSEWHERE)
        writer.put_reply(first.incarnation, first.number, RelayOutcome.REPLIED, b"late")
        await read_relayed(reader)

    async def test(link: GatewayLink) -> None:
        assert await link.asked(7, b"call", 100) == (RelayOutcome.REPLIED, b"late")

    with_gateway(lives, test)
