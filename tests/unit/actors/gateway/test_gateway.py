"""What a gateway lets in, and what strangers, broken and hostile devices and coordinators cost it."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from actors.gateway import accept_bounds, actor, device_connection, device_server, identities, listener
from actors.gateway.device_connection import BINARY, framed
from actors.gateway.gateway import Gateway
from actors.gateway_beats import DeviceStage
from actors.gateway_link import RelayOutcome
from actors.proved_streams import prove_to_listener
from actors.waiting import within
from edge import dialled_link
from outrider.versions import DIAL_VERSIONS, VersionRange
from outrider.wire.calls import write_call
from outrider.wire.dialling import (
    FILES_PATH,
    Bye,
    DeviceReady,
    NumberedReply,
    RefusalCode,
    Refused,
    Welcome,
    read_from_gateway,
    write_dialled,
)
from outrider.wire.replies import plain
from tests.unit.actors.coordinator.transport_suite import CARD
from tests.unit.actors.gateway.dialling import DRAFTER_FILE, GROUP, Dialler, DirectFleet, Place, gateway_of, until

SOON_S = 60.0
READY = write_dialled(DeviceReady(plain(CARD)))


def run(test: Callable[[Place, DirectFleet, Gateway], Awaitable[None]], folder: Path) -> None:
    async def all_of_it() -> None:
        place, fleet = Place.made(folder), DirectFleet()
        async with gateway_of(place, fleet) as gateway:
            await test(place, fleet, gateway)

    asyncio.run(within(SOON_S, all_of_it()))


async def joined(place: Place, gateway: Gateway, name: str = "") -> Dialler:
    """A device that is ready, and answers nothing."""
    device = Dialler(place, name=name)
    assert isinstance(await device.dial(gateway), Welcome)
    await device.send(READY)
    return device


async def refused(device: Dialler, gateway: Gateway) -> RefusalCode:
    first = await device.dial(gateway)
    assert isinstance(first, Refused), first
    await device.close()
    return first.code


def test_a_device_is_welcomed_and_handed_its_file(tmp_path: Path) -> None:
    async def test(place: Place, fleet: DirectFleet, gateway: Gateway) -> None:
        device = await joined(place, gateway)
        assert device.welcome is not None
        assert (device.welcome.device, device.welcome.file_bytes) == ("far/0", len(DRAFTER_FILE))
        assert device.welcome.file == sha256(DRAFTER_FILE).digest()
        await until(lambda: all(one.is_ready.is_set() for one in fleet.devices.all) and bool(fleet.devices.all))
        url = f"https://127.0.0.1:{gateway.port}{FILES_PATH}"
        key = {"Authorization": f"Bearer {place.key}"}
        async with aiohttp.ClientSession() as client:

            async def got(digest: str, **headers: str) -> tuple[int, bytes]:
                async with client.get(url + digest, ssl=place.tls(), headers=headers) as answer:
                    return answer.status, await answer.read()

            digest = device.welcome.file.hex()
            assert await got(digest, **key) == (200, DRAFTER_FILE)
            assert await got(digest, **key, Range="bytes=100-") == (206, DRAFTER_FILE[100:])
            assert (await got("0" * 64, **key))[0] == 404
            file = gateway.files["far"]
            gateway.files["far"] = replace(file, is_for=replace(GROUP, devices=("other",)).may_join)
            assert (await got(digest, **key))[0] == 404, "it may not join the file's group"
            gateway.files["far"] = replace(file, is_for=replace(GROUP, devices=("device",)).may_join)
            assert (await got(digest, **key))[0] == 200
            assert (await got("../../etc/passwd", **key))[0] == 404
            assert (await got(digest))[0] == 401
            assert (await got(digest, Authorization="Bearer another-key-of-16"))[0] == 401
        await device.close()

    run(test, tmp_path)


def test_strangers_and_strange_versions_are_refused_with_the_reason(tmp_path: Path) -> None:
    async def test(place: Place, fleet: DirectFleet, gateway: Gateway) -> None:
        for key in ("", "another-key-of-16", "x" * 9000):
            if len(key) < 8000:
                assert await refused(Dialler(place, key=key), gateway) is RefusalCode.UNKNOWN_IDENTITY
        newer = Dialler(place)
        hello = replace(newer.hello(), dial_versions=VersionRange(98, 99))
        newer.hello = lambda: hello  # type: ignore[method-assign]
        assert await refused(newer, gateway) is RefusalCode.VERSION
        assert gateway.devices.refused == {RefusalCode.UNKNOWN_IDENTITY: 2, RefusalCode.VERSION: 1}
        assert not fleet.devices.all

    run(test, tmp_path)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\xff" * 40,
        READY,
        write_dialled(Bye()),
        write_dialled(NumberedReply(1, b"")),
        b"\0" + json.dumps({"process": []}).encode(),
        b"\0" + b"[" * 8000,
        b"\0" * 9000,
    ],
    ids=lambda said: said[:12].hex(),
)
def test_what_is_no_hello_is_refused(said: bytes, tmp_path: Path) -> None:
    async def test(place: Place, _: DirectFleet, gateway: Gateway) -> None:
        async with aiohttp.ClientSession() as client:
            url = f"wss://127.0.0.1:{gateway.port}/v1/device"
            key = {"Authorization": f"Bearer {place.key}"}
            async with client.ws_connect(url, ssl=place.tls(), headers=key, protocols=("outrider.device.1",)) as stream:
                await stream.send_bytes(said)
                assert (await stream.receive()).data[0] == 2
                assert (await stream.receive()).type is aiohttp.WSMsgType.CLOSE
        await (await joined(place, gateway)).close()

    run(test, tmp_path)


async def _of_no_call(device: Dialler) -> None:
    await device.send(write_dialled(NumberedReply(77, b"\0")))


async def _twice_ready(device: Dialler) -> None:
    await device.send(READY)


async def _text(device: Dialler) -> None:
    await device.stream.send_str("hello")


async def _too_large(device: Dialler) -> None:
    await device.send(b"\5" + bytes(2**26))


async def _half_too_large(device: Dialler) -> None:
    """The head of a frame of 64 MiB, and nothing of it."""
    device.write_raw(bytes((0x82, 0xFF)) + (2**26).to_bytes(8, "big") + bytes(4))


async def _bits(device: Dialler) -> None:
    await device.send(os.urandom(64))


async def _flood(device: Dialler) -> None:
    for _ in range(5000):
        await device.stream.ping()


async def _strange_frames(device: Dialler) -> None:
    device.write_raw(b"\xf7\xff" * 20)


@pytest.mark.parametrize(
    "breach", [_of_no_call, _twice_ready, _text, _too_large, _half_too_large, _bits, _flood, _strange_frames]
)
def test_a_device_that_breaks_the_contract_is_cut_off_and_told_to_the_fleet(
    breach: Callable[[Dialler], Awaitable[None]], tmp_path: Path
) -> None:
    async def test(place: Place, fleet: DirectFleet, gateway: Gateway) -> None:
        device, other = await joined(place, gateway, "one"), await joined(place, gateway, "two")
        await until(lambda: len(fleet.devices.all) == 2)
        with suppress(OSError, aiohttp.ClientError):  # cut off meanwhile
            await breach(device)
        await until(lambda: "broke" in [what for what, _ in fleet.happened])
        assert {drafter.index for what, drafter in fleet.happened if what == "broke"} == {0}
        assert not other.stream.closed
        await device.close()
        await other.close()

    run(test, tmp_path)


@pytest.mark.parametrize("card", [b"", b"\2{", b"\2\xff", b"\5failed", b"\0"], ids=repr)
def test_a_card_that_cannot_be_read_breaks_the_contract(card: bytes, tmp_path: Path) -> None:
    async def test(place: Place, fleet: DirectFleet, gateway: Gateway) -> None:
        device = Dialler(place, name="one")
        assert isinstance(await device.dial(gateway), Welcome)
        await device.send(write_dialled(DeviceReady(card)))
        await until(lambda: "broke" in [what for what, _ in fleet.happened])
        await device.close()

    run(test, tmp_path)


def test_a_revoked_key_ends_what_is_open_and_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.gateway.gateway.RELOAD_S", 0.05)
    monkeypatch.setattr(identities, "_SETTLE_S", 0.01)

    async def test(place: Place, fleet: DirectFleet, gateway: Gateway) -> None:
        device = await joined(place, gateway)
        await until(lambda: bool(fleet.devices.all))
        place.write_devices("keys: [")
        await asyncio.sleep(0.3)
        assert fleet.devices.all, "a file that cannot be read changes nothing"
        place.write_devices("revoked: [device]")
        await until(lambda: [one for one in device.heard if isinstance(one, Refused)] != [])
        await until(lambda: not fleet.devices.all)
        (last,) = (one for one in device.heard if isinstance(one, Refused))
        assert last.code is RefusalCode.REVOKED
        assert await refused(Dialler(place), gateway) is RefusalCode.UNKNOWN_IDENTITY
        await device.close()

    run(test, tmp_path)


def test_while_the_fleet_is_away_only_processes_that_were_let_in_come_back(tmp_path: Path) -> None:
    async def test(place: Place, fleet: DirectFleet, gateway: Gateway) -> None:
        device = await joined(place, gateway)
        await until(lambda: len(fleet.devices.all) == 1)
        fleet.is_away = True
        device.cut()
        assert isinstance(await device.dial(gateway), Welcome)
        assert await refused(Dialler(place, name="other"), gateway) is RefusalCode.BUSY
        await device.close()

    run(test, tmp_path)


def test_a_device_that_says_goodbye_is_gone_at_once(tmp_path: Path) -> None:
    async def test(place: Place, fleet: DirectFleet, gateway: Gateway) -> None:
        device = await joined(place, gateway)
        await until(lambda: len(fleet.devices.all) == 1)
        await device.send(write_dialled(Bye()))
        await until(lambda: not fleet.devices.all)
        assert [what for what, _ in fleet.happened] == ["joined", "left"]
        await device.close()

    run(test, tmp_path)


def test_a_draining_gateway_moves_its_devices_before_it_leaves_them(tmp_path: Path) -> None:
    async def test(place: Place, fleet: DirectFleet, gateway: Gateway) -> None:
        async with gateway_of(place, fleet, "gateway-1") as other:
            device = await joined(place, gateway)
            await until(lambda: len(fleet.devices.all) == 1)
            draining = asyncio.create_task(gateway.drain((f"127.0.0.1:{other.port}",)))
            await until(lambda: bool(device.heard))
            assert not device.stream.closed
            assert isinstance(await device.dial(other), Welcome)
            await draining
            assert (len(gateway.devices), len(other.devices)) == (0, 1)
            assert [what for what, _ in fleet.happened if what != "away"] == ["joined"]
            await device.close()

    run(test, tmp_path)


def test_a_call_of_the_fleet_ends_though_the_device_never_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.gateway.gateway._FLEET_CALL_S", 0.1)

    async def test(place: Place, fleet: DirectFleet, gateway: Gateway) -> None:
        device = await joined(place, gateway)
        incarnation = await fleet.ready()
        assert await gateway.ask(incarnation, write_call("card"), 4096) == (RelayOutcome.BUSY, b"")
        assert await gateway.ask(incarnation + 1, write_call("card"), 4096) == (RelayOutcome.ELSEWHERE, b"")
        await device.close()

    run(test, tmp_path)


def test_a_device_is_asked_to_move_until_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.gateway.gateway._MOVE_AGAIN_S", 0.0)

    async def test(place: Place, fleet: DirectFleet, gateway: Gateway) -> None:
        device = await joined(place, gateway)
        await until(lambda: len(fleet.devices.all) == 1)
        draining = asyncio.create_task(gateway.drain(("another:1",)))
        await until(lambda: len(device.heard) >= 4)
        assert {str(getattr(one, "address", one)) for one in device.heard} == {"another:1"}
        await device.send(write_dialled(Bye()))
        await draining
        await device.close()

    run(test, tmp_path)


def test_a_device_that_reads_nothing_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_connection, "_MOST_UNREAD_BYTES", 2**18)

    async def test(place: Place, fleet: DirectFleet, gateway: Gateway) -> None:
        device = await joined(place, gateway)
        incarnation = await fleet.ready()
        device.stop_reading()
        outcomes = list[RelayOutcome]()
        call = write_call("probe", bytes(2**20), 0)
        for _ in range(20):
            gateway.devices.ask(incarnation, call, 4096, lambda outcome, _: outcomes.append(outcome))
        assert outcomes.count(RelayOutcome.BUSY) >= 15, "what waits for a device is bounded"
        await until(lambda: "away" in [what for what, _ in fleet.happened])
        await device.close()

    run(test, tmp_path)


def test_connections_that_say_nothing_are_bounded_by_address_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accept_bounds, "_MOST_OF_ADDRESS", 3)
    monkeypatch.setattr(listener, "_HANDSHAKE_S", 0.5)

    async def test(place: Place, _fleet: DirectFleet, gateway: Gateway) -> None:
        half_open = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(12)]
        ended = [asyncio.create_task(reader.read()) for reader, _ in half_open]
        await asyncio.wait(ended, timeout=SOON_S)
        assert all(task.done() for task in ended)
        for _, writer in half_open:
            writer.close()
        await (await joined(place, gateway)).close()

    run(test, tmp_path)


def test_who_does_not_know_the_secret_relays_nothing(tmp_path: Path) -> None:
    async def test(_: Place, _fleet: DirectFleet, gateway: Gateway) -> None:
        assert gateway.place is not None
        for said in (b"", b"\xff" * 65, os.urandom(4096)):
            reader, writer = await asyncio.open_connection(gateway.place.host, gateway.place.port)
            writer.write(said)
            writer.write_eof()
            assert len(await reader.read()) == 32, "its nonce, and no more"
            writer.close()
        reader, writer = await asyncio.open_connection(gateway.place.host, gateway.place.port)
        with pytest.raises(asyncio.IncompleteReadError):
            await prove_to_listener(reader, writer, b"another")
        writer.close()
        reader, writer = await asyncio.open_connection(gateway.place.host, gateway.place.port)
        await prove_to_listener(reader, writer, gateway.place.secret)
        writer.write(b"\xff" * 16)
        assert await reader.read() == b"", "a frame that is too long ends the stream"
        writer.close()

    run(test, tmp_path)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 2**16 - 1, 2**16])
def test_frames_are_those_of_websockets(size: int) -> None:
    data = os.urandom(size)
    head = {True: 2, False: 4}[size < 126] if size < 2**16 else 10
    frame = framed(BINARY, data)
    assert (frame[0], len(frame), frame[head:]) == (0x82, head + size, data)


def test_what_is_left_of_a_connection_that_was_replaced_is_no_breach(tmp_path: Path) -> None:
    class Left:
        """A stream with a reply that was queued before a later dial was let in."""

        async def receive(self) -> aiohttp.WSMessage:
            return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, write_dialled(NumberedReply(1, b"")), None)

    async def test(place: Place, _: DirectFleet, gateway: Gateway) -> None:
        device = await joined(place, gateway)
        (here,) = gateway.devices._joined.values()  # noqa: SLF001 (no message is queued at will)
        before = here.connection
        assert isinstance(await device.dial(gateway), Welcome)
        assert here.connection is not before
        await gateway._server._read(Left(), before, here)  # type: ignore[arg-type]  # noqa: SLF001
        await device.close()

    run(test, tmp_path)


def test_who_is_slow_to_say_hello_may_dial_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_server, "_HELLO_S", 0.1)

    async def test(place: Place, _: DirectFleet, gateway: Gateway) -> None:
        url, key = f"wss://127.0.0.1:{gateway.port}/v1/device", {"Authorization": f"Bearer {place.key}"}
        async with (
            aiohttp.ClientSession(headers=key) as client,
            client.ws_connect(url, ssl=place.tls(), protocols=("outrider.device.1",)) as stream,
        ):
            last = read_from_gateway((await stream.receive()).data)
        assert isinstance(last, Refused)
        assert (last.code, last.retry_after_s) == (RefusalCode.BUSY, 1)

    run(test, tmp_path)


def test_a_device_waits_longer_than_a_gateway_that_has_to_say_that_it_is_busy() -> None:
    assert dialled_link._WELCOME_S > 1.5 * actor._FLEET_DEADLINE_S  # noqa: SLF001


def test_stages_and_versions_are_what_the_contract_has() -> None:
    assert DIAL_VERSIONS.has(1)
    assert {str(stage) for stage in DeviceStage} == {"loading", "ready", "away", "gone"}
