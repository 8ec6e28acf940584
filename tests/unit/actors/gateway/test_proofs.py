"""What somebody who is known can open, and how long a proof of who it is counts."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from actors.gateway import device_server, identities, listener, sent_file
from actors.gateway.actor import drafter_file
from actors.gateway.gateway import Gateway
from actors.gateway.joined_devices import JoinedDevices
from actors.waiting import within
from outrider.wire.dialling import (
    FILES_PATH,
    NumberedCall,
    RefusalCode,
    Refused,
    Welcome,
    read_from_gateway,
    write_dialled,
)
from tests.unit.actors.gateway.dialling import Dialler, DirectFleet, Place, gateway_of, until
from tests.unit.actors.gateway.test_identities import Authority

SOON_S = 60.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.gateway.gateway.RELOAD_S", 0.05)
    monkeypatch.setattr(identities, "_SETTLE_S", 0.01)
    monkeypatch.setattr(listener, "_SETTLE_S", 0.01)


def run(test: Callable[[Place, Gateway], Awaitable[None]], folder: Path, client_ca: Path | None = None) -> None:
    async def all_of_it() -> None:
        place = Place.made(folder / "gateway", **({} if client_ca is None else {"client_ca": str(client_ca)}))
        async with gateway_of(place, DirectFleet()) as gateway:
            await test(place, gateway)

    asyncio.run(within(SOON_S, all_of_it()))


def test_an_identity_has_some_requests_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_server, "_MOST_OPEN", 2)

    async def test(place: Place, gateway: Gateway) -> None:
        devices = [Dialler(place, name=f"d{i}") for i in range(3)]
        assert [type(await each.dial(gateway)) for each in devices] == [Welcome, Welcome, Refused]
        await devices[0].close()
        await until(lambda: gateway._server.connections == 1)  # noqa: SLF001
        assert isinstance(await devices[2].dial(gateway), Welcome)
        for each in devices[1:]:
            await each.close()

    run(test, tmp_path)


@pytest.mark.parametrize("is_revoked", [False, True])
def test_a_file_is_sent_neither_for_ever_nor_to_whoever_is_revoked(
    is_revoked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_file, "_LEAST_BYTES_PER_S", 1e12)
    monkeypatch.setattr(sent_file, "_BESIDE_S", 600.0 if is_revoked else 0.3)
    large = tmp_path / "large"
    large.write_bytes(os.urandom(2**25))

    async def test(place: Place, gateway: Gateway) -> None:
        gateway.files["far"] = file = drafter_file(large)
        key = {"Authorization": f"Bearer {place.key}"}
        url = f"https://127.0.0.1:{gateway.port}{FILES_PATH}{file.digest.hex()}"
        async with (
            aiohttp.ClientSession(headers=key) as client,
            client.get(url, ssl=place.tls()) as answer,
        ):
            assert answer.headers["Connection"] == "close"
            assert answer.connection is not None
            if is_revoked:
                place.write_devices("revoked: [device]")
            await until(lambda: not gateway._server._open)  # noqa: SLF001
            with pytest.raises(aiohttp.ClientError):
                await answer.read()

    run(test, tmp_path)


def test_who_hardly_reads_files_keeps_them_from_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_file, "_MOST_OF_ONE", 3)
    monkeypatch.setattr(sent_file, "_MOST_SHARED", 5)
    monkeypatch.setattr(sent_file, "_MOST", 7)
    large = tmp_path / "large"
    large.write_bytes(os.urandom(2**25))
    names = [f"k{i}" for i in range(5)]
    keys = {name: f"dk-{name}-0123456789abcdef" for name in names}

    async def test(place: Place, gateway: Gateway) -> None:
        place.write_devices("keys:\n" + "".join(f"  - {{name: {name}, key: {key}}}\n" for name, key in keys.items()))
        gateway.files["far"] = file = drafter_file(large)
        url = f"https://127.0.0.1:{gateway.port}{FILES_PATH}{file.digest.hex()}"
        async with AsyncExitStack() as stack:

            async def asked(name: str) -> aiohttp.ClientResponse:
                client = await stack.enter_async_context(
                    aiohttp.ClientSession(headers={"Authorization": f"Bearer {keys[name]}"})
                )
                return await stack.enter_async_context(client.get(url, ssl=place.tls()))

            while (await asked("k0")).status == HTTPStatus.UNAUTHORIZED:  # noqa: ASYNC110 (the gateway reads who they are)
                await asyncio.sleep(0.05)
            assert [(await asked("k0")).status for _ in range(3)] == [HTTPStatus.OK] * 2 + [
                HTTPStatus.SERVICE_UNAVAILABLE
            ]
            first = await asked("k1")
            found = [first.status, *[(await asked(name)).status for name in ("k1", "k1", "k2", "k3", "k4")]]
            assert found == [HTTPStatus.OK] * 2 + [HTTPStatus.SERVICE_UNAVAILABLE] + [HTTPStatus.OK] * 2 + [
                HTTPStatus.SERVICE_UNAVAILABLE
            ]
            assert await first.read() == large.read_bytes()
            assert (await asked("k4")).status == HTTPStatus.OK

    run(test, tmp_path)


def test_a_gateway_without_files_takes_no_device_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(place: Place, gateway: Gateway) -> None:
        gateway.files.clear()
        device = Dialler(place)
        last = await device.dial(gateway)
        assert isinstance(last, Refused)
        assert (last.code, last.retry_after_s) == (RefusalCode.BUSY, 5)
        await device.close()

    monkeypatch.setattr(JoinedDevices, "admit", None)  # the fleet is not asked
    run(test, tmp_path)


def test_a_device_that_a_long_message_still_reaches_is_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.gateway.gateway.PING_S", 1000.0)

    async def test(place: Place, gateway: Gateway) -> None:
        device = Dialler(place)
        assert isinstance(await device.dial(gateway), Welcome)
        device.stop_reading()
        (connection,) = gateway._server._connections  # noqa: SLF001
        now_s = asyncio.get_running_loop().time()
        gateway._server.ping(now_s + 1.0)  # noqa: SLF001
        connection.send(NumberedCall(1, bytes(4096)))
        await asyncio.sleep(0.2)
        gateway._server.ping(now_s + 100.0)  # noqa: SLF001
        assert not connection._transport.is_closing()  # noqa: SLF001
        await asyncio.sleep(0.2)
        gateway._server.ping(now_s + 200.0)  # noqa: SLF001
        assert connection._transport.is_closing()  # noqa: SLF001
        await device.close()

    run(test, tmp_path)


def test_a_connection_that_another_ca_let_in_is_not_used(tmp_path: Path) -> None:
    own, next_ = Authority(tmp_path), Authority(tmp_path, "next")
    files = own.issued("jetson-7")

    async def test(place: Place, gateway: Gateway) -> None:
        url = f"wss://127.0.0.1:{gateway.port}/v1/device"
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(url, ssl=place.tls(*files), protocols=("outrider.device.1",)) as stream,
        ):
            before = gateway._listener._content  # noqa: SLF001
            own.file.write_bytes(next_.file.read_bytes())
            await until(lambda: gateway._listener._content != before)  # noqa: SLF001
            await stream.send_bytes(write_dialled(Dialler(place).hello()))
            last = read_from_gateway((await stream.receive()).data)
        assert isinstance(last, Refused)
        assert (last.code, last.retry_after_s) == (RefusalCode.BUSY, 1)
        assert not len(gateway.devices)

    run(test, tmp_path, own.file)


def test_a_certificate_that_expires_has_its_device_prove_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Later:
        @staticmethod
        def now(_: object) -> datetime:
            return datetime(2200, 1, 1, tzinfo=UTC)

    own = Authority(tmp_path)
    files = own.issued("jetson-7")

    async def test(place: Place, gateway: Gateway) -> None:
        device = Dialler(place, key="")
        assert isinstance(await device.dial(gateway, tls=place.tls(*files)), Welcome)
        monkeypatch.setattr("actors.gateway.gateway.datetime", Later)
        await until(lambda: bool(device.heard))
        (last,) = device.heard
        assert isinstance(last, Refused)
        assert last.code is RefusalCode.BUSY
        with suppress(aiohttp.ClientError):
            await device.close()

    run(test, tmp_path, own.file)
