"""What strangers cost a gateway whose devices go on."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from actors.gateway import relay
from actors.gateway.gateway import Gateway
from actors.proved_streams import prove_to_listener
from actors.waiting import within
from edge.dialled_link import GatewayRefusedError
from edge.dialler import Dialler
from edge.drafter_cache import DrafterCache
from edge.gateway_access import GatewayAccess
from outrider.contracts.errors import ConfigError
from outrider.wire.dialling import RefusalCode, Refused, read_from_gateway
from tests.unit.actors.gateway.dialling import DirectFleet, Place, gateway_of

SOON_S = 60.0


def run(test: Callable[[Place, Gateway], Awaitable[None]], folder: Path) -> None:
    async def all_of_it() -> None:
        place = Place.made(folder)
        async with gateway_of(place, DirectFleet()) as gateway:
            await test(place, gateway)

    asyncio.run(within(SOON_S, all_of_it()))


def test_who_proves_nothing_keeps_no_coordinator_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_MOST_UNPROVED", 4)

    async def test(_place: Place, gateway: Gateway) -> None:
        assert gateway.place is not None
        where = gateway.place.host, gateway.place.port
        silent = [await asyncio.open_connection(*where) for _ in range(12)]
        reader, writer = await asyncio.open_connection(*where)
        await prove_to_listener(reader, writer, gateway.place.secret)
        cut_off = [asyncio.create_task(one.read()) for one, _ in silent[:8]]
        with suppress(OSError):
            await asyncio.gather(*cut_off)
        for _, one in (*silent, (reader, writer)):
            one.close()

    run(test, tmp_path)


def test_strangers_are_sent_away_before_they_say_anything(tmp_path: Path) -> None:
    async def test(place: Place, gateway: Gateway) -> None:
        url = f"wss://127.0.0.1:{gateway.port}/v1/device"
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(url, ssl=place.tls(), protocols=("outrider.device.1",)) as stream,
        ):
            last = read_from_gateway((await stream.receive()).data)
        assert isinstance(last, Refused)
        assert last.code is RefusalCode.UNKNOWN_IDENTITY

    run(test, tmp_path)


def test_a_device_that_nobody_knows_ends_with_the_reason(tmp_path: Path) -> None:
    async def test(place: Place, gateway: Gateway) -> None:
        access = GatewayAccess(f"127.0.0.1:{gateway.port}", place.ca)
        with pytest.raises(GatewayRefusedError) as refused:
            await Dialler(access, DrafterCache(tmp_path)).run()
        assert refused.value.refused.code is RefusalCode.UNKNOWN_IDENTITY

    run(test, tmp_path)


def test_where_ray_encrypts_no_gateway_carries_prompts_in_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place.made(tmp_path)
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with pytest.raises(ConfigError, match=r"gateway\.port needs no port where RAY_USE_TLS is set"):
        Gateway("gateway-0", place.config, DirectFleet().of("gateway-0"), "127.0.0.1")
