"""A device at a gateway: what it drafts, and what happens to its connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from actors.waiting import within
from edge import dial_failures, dialled_link, dialler, silence
from edge.device_host import DeviceHost
from edge.dialled_link import GatewayRefusedError
from edge.dialler import Dialler
from edge.drafter_cache import DrafterCache
from edge.gateway_access import GatewayAccess
from outrider.contracts.drafting import Draft
from outrider.contracts.requests import SamplingParams
from outrider.session.session import CoordinatorSession
from outrider.versions import DIAL_VERSIONS
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES, write_call
from outrider.wire.dialling import MoveTo, NumberedCall, RefusalCode, Refused, Welcome, write_dialled
from outrider.wire.replies import Answer, DrafterHoldings, plain
from tests.unit.edge.certificates import Authority, Identity
from tests.unit.edge.conftest import access_to
from tests.unit.edge.gateway import HOST, Dialled, Gateway, Relay, refusing
from tests.unit.engines.drafter_device import GREEDY, SAMPLED, TERMS, Device

SOON_S = 60.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dial again at once, but where a test says otherwise."""
    monkeypatch.setattr(dial_failures, "_MOST_S", 0.1)
    monkeypatch.setattr(dial_failures, "_LEAST_S", 0.01)
    monkeypatch.setattr(silence, "_LEAST_ANSWER_S", 5.0)  # this machine may be busy


def dialling(access: GatewayAccess, folder: Path, **options: Any) -> Dialler:
    return Dialler(access, DrafterCache(folder), **options)


@asynccontextmanager
async def running(device: Dialler) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(device.run())
    try:
        yield task
    finally:
        await stopped(device, task)


async def stopped(device: Dialler, task: "asyncio.Task[None]") -> None:
    await device.stop()
    task.cancel()
    await asyncio.wait({task})
    if device.drafting is not None:
        device.drafting.end()


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.002)


def soon_done(test: Awaitable[None]) -> None:
    asyncio.run(within(SOON_S, test))


async def drafted(dialled: Dialled, device: Device, session: CoordinatorSession, accepted: int) -> None:
    """Have a block drafted, which has to be the model's, and commit some of it."""
    request, truth = device.request(4), device.truth(4)
    answer = await dialled.call("exchange", device.name, session.encode_order(request))
    assert isinstance(answer, Answer)
    draft = session.decode_answer(answer.data, request)
    assert isinstance(draft, Draft)
    assert draft.token_ids == truth
    device.tokens += [*truth[:accepted], 7]


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("version", DIAL_VERSIONS)
def test_it_drafts_on_over_connections_that_are_cut_and_lost(
    params: SamplingParams, version: int, gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    """Without opening the generation again: sessions and KV are the process's."""

    async def test() -> None:
        gateway.ping_s, gateway.version = 0.3, version
        async with (
            gateway.listening(authority.server(server)),
            Relay(gateway).listening() as relay,
            running(dialling(access_to(relay.address, authority), tmp_path)),
        ):
            generation, session = Device("a", params), CoordinatorSession(TERMS.wire, "a")
            pings = asyncio.create_task(_pinged(gateway))
            dialled = await gateway.served()
            await dialled.call("open", generation.opening(), TERMS)
            await drafted(dialled, generation, session, 4)
            for number, break_ in enumerate((relay.cut, relay.lose, relay.lose), 2):
                break_()
                dialled = await gateway.served(number)
                await drafted(dialled, generation, session, 2)
            pings.cancel()
            assert {each.hello.process for each in gateway.dials} == {dialled.hello.process}
            assert [each.hello.dial for each in gateway.dials] == [1, 2, 3, 4]
            assert gateway.ranges == [None], "the file was fetched once"
            assert (await dialled.call("held")).generations == ("a",)
            assert dialled.hello.cached == gateway.digest
        assert dialled.said_bye

    soon_done(test())


def test_a_device_that_drafts_notices_soon_that_it_has_another_address(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that pings once in a minute would be missed after three minutes only."""
    monkeypatch.setattr(silence, "_LEAST_ANSWER_S", 0.2)

    async def test() -> None:
        async with (
            gateway.listening(authority.server(server)),
            Relay(gateway).listening() as relay,
            running(dialling(access_to(relay.address, authority), tmp_path)),
        ):
            generation, session = Device("a", GREEDY), CoordinatorSession(TERMS.wire, "a")
            dialled = await gateway.served()
            await dialled.call("open", generation.opening(), TERMS)
            for number in (2, 3, 4):
                await drafted(dialled, generation, session, 2)
                relay.lose()
                dialled = await gateway.served(number)
            await drafted(dialled, generation, session, 2)
            assert [each.hello.dial for each in gateway.dials] == [1, 2, 3, 4]

    soon_done(test())


def test_a_link_that_was_only_slow_stays_and_is_dialled_beside_no_more(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "_LEAST_ANSWER_S", 0.2)

    async def test() -> None:
        async with gateway.listening(authority.server(server)), Relay(gateway).listening() as relay:
            device = dialling(access_to(relay.address, authority), tmp_path)
            async with running(device):
                generation, session = Device("a", GREEDY), CoordinatorSession(TERMS.wire, "a")
                dialled = await gateway.served()
                await dialled.call("open", generation.opening(), TERMS)
                await drafted(dialled, generation, session, 2)
                relay.flows.clear()
                await until(lambda: device._beside is not None)  # noqa: SLF001 (nobody else sees it)
                relay.flows.set()
                await until(lambda: device._beside not in device._links)  # noqa: SLF001
                await drafted(dialled, generation, session, 2)
                assert len(gateway.dials) == 1

    soon_done(test())


def test_dials_beside_a_link_that_is_only_slow_are_no_failures_of_the_device(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    """A loss that follows is met as soon as any, and the device stays where it was."""

    async def test() -> None:
        async with gateway.listening(authority.server(server)), Relay(gateway).listening() as relay:
            device = dialling(access_to(relay.address, authority), tmp_path)
            async with running(device):
                generation, session = Device("a", GREEDY), CoordinatorSession(TERMS.wire, "a")
                dialled = await gateway.served()
                await dialled.call("open", generation.opening(), TERMS)
                await drafted(dialled, generation, session, 2)
                device._addresses.append(f"{HOST}:1")  # noqa: SLF001 (where nobody is)
                relay.flows.clear()
                await until(lambda: device._addresses[0] == f"{HOST}:1")  # noqa: SLF001
                assert device._failures == 0  # noqa: SLF001
                relay.flows.set()
                await until(lambda: device._addresses[0] == relay.address)  # noqa: SLF001
                await drafted(dialled, generation, session, 2)
                assert dialled in gateway.dials

    soon_done(test())


def test_devices_of_a_gateway_that_stands_still_do_not_dial_all_at_once(
    gateway: Gateway, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled_at_s = list[float]()

    async def serve(_: dialled_link.DialledLink) -> None:
        dialled_at_s.append(asyncio.get_running_loop().time())

    async def test() -> None:
        monkeypatch.setattr(dialled_link.DialledLink, "serve", serve)
        for _ in range(20):
            device = dialling(access_to(gateway, authority), tmp_path)
            device._served = link = dialled_link.DialledLink("x", device._access, device, device._bounds)  # noqa: SLF001
            device.doubt(link)
        began_s = asyncio.get_running_loop().time()
        await until(lambda: len(dialled_at_s) == 20)
        assert max(dialled_at_s) - min(dialled_at_s) > dialler._SPREAD_S / 4  # noqa: SLF001
        assert max(dialled_at_s) - began_s < SOON_S

    soon_done(test())


async def _pinged(gateway: Gateway) -> None:
    while True:
        for dialled in gateway.dials:
            if not dialled.socket.closed:
                await dialled.socket.ping()
        await asyncio.sleep(0.1)


def test_it_moves_before_it_leaves(
    gateway: Gateway, authority: Authority, server: Identity, drafter_file: bytes, tmp_path: Path
) -> None:
    other = Gateway(drafter_file)

    async def test() -> None:
        context = authority.server(server)
        async with gateway.listening(context), other.listening(context):
            device = dialling(access_to(gateway, authority), tmp_path)
            task = asyncio.create_task(device.run())
            generation, session = Device("a", GREEDY), CoordinatorSession(TERMS.wire, "a")
            first = await gateway.served()
            await first.call("open", generation.opening(), TERMS)
            held = asyncio.Event()

            async def later(dialled: Dialled) -> None:
                await held.wait()
                await other.welcome(dialled)

            other.answer = later
            await first.send(MoveTo(other.address, "draining"))
            await other.dial()
            await drafted(first, generation, session, 4)
            await first.send(MoveTo(f"{HOST}:1", "one move at a time"))
            held.set()
            second = await other.served()
            await first.ended.wait()
            assert not first.said_bye, "it does not stop"
            await drafted(second, generation, session, 4)
            assert second.hello == replace(first.hello, dial=2, cached=gateway.digest)
            await second.send(MoveTo(f"{HOST}:1", "where nobody is"))
            await drafted(second, generation, session, 4)
            await until(lambda: device.link == f"edge/0 at {other.address}")
            await second.send(MoveTo(gateway.address, "back"))
            await gateway.served(2)
            await stopped(device, task)

    soon_done(test())


def test_another_gateway_is_dialled_when_one_is_gone(
    gateway: Gateway, authority: Authority, server: Identity, drafter_file: bytes, tmp_path: Path
) -> None:
    other = Gateway(drafter_file)

    async def test() -> None:
        context = authority.server(server)
        async with other.listening(context):
            gateway.others = (other.address,)
            async with gateway.listening(context):
                device = dialling(access_to(gateway, authority), tmp_path)
                task = asyncio.create_task(device.run())
                await gateway.served()
            await other.served()
            await stopped(device, task)

    soon_done(test())


def test_another_drafter_is_loaded_when_the_gateway_has_another(
    gateway: Gateway, authority: Authority, server: Identity, drafter_file: bytes, tmp_path: Path
) -> None:
    async def test() -> None:
        async with gateway.listening(authority.server(server)):
            device = dialling(access_to(gateway, authority), tmp_path)
            async with running(device):
                first = await gateway.served()
                before = device.drafting
                other = Gateway(drafter_file + b"\x32\x01x")  # with a description
                gateway.file, gateway.digest, gateway.told_bytes = other.file, other.digest, other.told_bytes
                await first.socket.close()
                await gateway.served(2)
                assert device.drafting is not before
                assert DrafterCache(tmp_path).newest() == gateway.digest

    soon_done(test())


@pytest.mark.parametrize("code", list(RefusalCode))
def test_a_refusal_for_good_ends_it_and_says_what_to_do(
    code: RefusalCode, gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    async def test() -> None:
        gateway.answer = refusing(Refused(code, "because"))
        async with gateway.listening(authority.server(server)):
            device = dialling(access_to(gateway, authority), tmp_path)
            async with running(device) as task:
                if code == RefusalCode.REPLACED:
                    await until(lambda: device.link.startswith("not connected"))
                    assert int(device.link.split()[-2]) >= 60, device.link
                    return
                with pytest.raises(GatewayRefusedError, match="because") as refused:
                    await task
                told = dial_failures.failure_text(refused.value)
                assert told.startswith("the gateway refused this device: because; ")

    soon_done(test())


def test_a_refusal_for_now_is_dialled_again_within_its_time(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    waits = [dial_failures.wait_range_s(GatewayRefusedError(Refused(RefusalCode.BUSY, "", 30)), 5.0)]
    assert waits == [(0.01, 30.0)]
    said = list[str]()

    async def test() -> None:
        gateway.answer = refusing(Refused(RefusalCode.BUSY, "\x1b[31mred", 1))
        async with gateway.listening(authority.server(server)):
            device: Dialler = dialling(
                access_to(gateway, authority), tmp_path, changed=lambda: said.append(device.link)
            )
            async with running(device):
                await gateway.dial(2)
                gateway.answer = gateway.welcome
                await gateway.served(3)
        assert "refused this device:  [31mred; nothing is to be done; dials" in said[0]

    soon_done(test())


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"\xff",
        b"\x80\x00",
        bytes(2**12),
        write_dialled(Welcome(99, "edge/0", 1, bytes(32), 1, 1.0, 1.0)),
        write_dialled(MoveTo("a:1", "")),
        write_dialled(NumberedCall(1, write_call("card"))),
        b"\x04" + bytes(MOST_DEVICE_CALL_BYTES + 99),
        "text",
    ],
    ids=["nothing", "kind", "place", "zeros", "version", "move", "call", "large", "text"],
)
@pytest.mark.parametrize("welcomed", [False, True])
def test_what_no_gateway_may_say_ends_the_connection(
    says: bytes | str, welcomed: bool, gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    async def lies(dialled: Dialled) -> None:
        if welcomed:
            await gateway.welcome(dialled, bytes(32))
        if isinstance(says, str):
            await dialled.socket.send_str(says)
        else:
            await dialled.socket.send_bytes(says)

    async def test() -> None:
        gateway.answer = lies
        async with (
            gateway.listening(authority.server(server)),
            running(dialling(access_to(gateway, authority), tmp_path)) as task,
        ):
            await gateway.dial(3)
            assert not task.done()

    if welcomed and isinstance(says, bytes) and says[:1] == b"\x06":
        return  # a device that is not served yet goes nowhere
    soon_done(test())


def test_a_flood_of_calls_is_read_as_far_as_there_is_room(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        waiting, may_answer = list[str](), asyncio.Event()

        async def carry_out(_: DeviceHost, method: str, __: tuple[Any, ...]) -> bytes:
            waiting.append(method)
            await may_answer.wait()
            return plain(None)

        async with (
            gateway.listening(authority.server(server)),
            running(dialling(access_to(gateway, authority), tmp_path)),
        ):
            dialled = await gateway.served()
            monkeypatch.setattr(DeviceHost, "carry_out", carry_out)
            call = write_dialled(NumberedCall(1, write_call("exchange", "g", bytes(2**20))))
            flood = asyncio.create_task(_sent(dialled, [call] * 12))
            await until(lambda: len(waiting) == 3)
            await asyncio.sleep(0.2)
            assert len(waiting) == 3, "of 1 MiB and a head, within 4 MiB"
            may_answer.set()
            await until(lambda: len(waiting) == 12)
            await flood
            monkeypatch.undo()

    soon_done(test())


async def _sent(dialled: Dialled, messages: list[bytes]) -> None:
    for message in messages:
        await dialled.socket.send_bytes(message)


def test_a_gateway_that_asks_and_does_not_read_is_left(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pongs, too, are memory."""
    monkeypatch.setattr(dialled_link, "_MOST_UNREAD_BYTES", 2**16)

    async def deaf(dialled: Dialled) -> None:
        await gateway.welcome(dialled)
        dialled.transport.pause_reading()
        while not dialled.transport.is_closing() and len(gateway.dials) < 2:
            for _ in range(256):
                await dialled.socket.ping(bytes(125))
            await asyncio.sleep(0)  # a ping into a connection that was cut off waits for nothing
        dialled.transport.abort()

    async def test() -> None:
        gateway.answer = deaf
        async with (
            gateway.listening(authority.server(server)),
            running(dialling(access_to(gateway, authority), tmp_path)),
        ):
            await gateway.dial(2)

    soon_done(test())


def test_a_redirection_is_not_followed(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    """It would tell another host who this device is."""
    key = tmp_path / "key"
    key.write_text("secret\n", encoding="ascii")

    async def test() -> None:
        async def elsewhere(_: web.Request) -> web.Response:
            return web.Response(status=302, headers={"Location": f"https://{gateway.address}/v1/device"})

        context = authority.server(server)
        application = web.Application()
        application.router.add_get("/{any:.*}", elsewhere)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, HOST, 0, ssl_context=context).start()
        address = f"{HOST}:{runner.addresses[0][1]}"
        async with gateway.listening(context):
            device = dialling(replace(access_to(address, authority), key_file=key), tmp_path / "cache")
            async with running(device):
                await until(lambda: "HTTP 302" in device.link)
                assert gateway.headers == []
        await runner.cleanup()

    soon_done(test())


def test_who_it_is_is_said_with_each_request(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    key, device = tmp_path / "key", authority.issue("device")
    key.write_text("secret\n", encoding="ascii")

    async def test() -> None:
        async with gateway.listening(authority.server(server, asks_for_certificates=True)):
            access = replace(access_to(gateway, authority), cert=device.cert, key=device.key, key_file=key)
            async with running(dialling(access, tmp_path / "cache", name="porch", threads=2)):
                dialled = await gateway.served()
                assert [found["Authorization"] for found in gateway.headers] == ["Bearer secret"] * 2
                assert (dialled.hello.name, dialled.hello.threads) == ("porch", 2)

    soon_done(test())


@pytest.mark.parametrize(
    ("begins_in", "ends_in", "said"), [(1000, 2000, "certificate is not yet valid"), (-2000, -1000, "has expired")]
)
def test_a_device_without_a_clock_is_told_to_set_it(
    begins_in: int, ends_in: int, said: str, gateway: Gateway, authority: Authority, tmp_path: Path
) -> None:
    """It stands decades off, as one without a battery does; it dials on, as it may be told the time soon."""

    async def test() -> None:
        elsewhen = authority.issue("elsewhen", timedelta(days=ends_in), timedelta(days=begins_in))
        async with gateway.listening(authority.server(elsewhen)):
            device = dialling(access_to(gateway, authority), tmp_path)
            async with running(device):
                await until(lambda: said in device.link)
                assert "by this device's clock, which says" in device.link
                assert "set the clock" in device.link
                assert "; dials " in device.link

    soon_done(test())


def test_what_is_wrong_with_certificates_is_told(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    async def test() -> None:
        asking = authority.server(server, asks_for_certificates=True)
        async with gateway.listening(asking):
            other = Authority(tmp_path, "other")
            device = dialling(access_to(gateway, other), tmp_path)
            async with running(device):
                await until(lambda: "certificate cannot be trusted" in device.link)
            device = dialling(access_to(gateway, authority), tmp_path)
            async with running(device):
                await until(lambda: "may ask for a certificate" in device.link)
            stranger = other.issue("stranger")
            access = replace(access_to(gateway, authority), cert=stranger.cert, key=stranger.key)
            device = dialling(access, tmp_path)
            async with running(device):
                await until(lambda: "may ask for a certificate" in device.link)
        assert gateway.dials == []

    soon_done(test())


def test_proxies_are_the_environments(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the connection as for the file."""
    asked, ended = list[bytes](), list[None]()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        there, back = await asyncio.open_connection(HOST, gateway.port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_copied(reader, back), _copied(there, writer))
        ended.append(None)

    async def test() -> None:
        proxy = await asyncio.start_server(tunnel, HOST, 0)
        for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTPS_PROXY", f"http://{HOST}:{proxy.sockets[0].getsockname()[1]}")
        async with (
            gateway.listening(authority.server(server)),
            running(dialling(access_to(gateway, authority), tmp_path)),
        ):
            await gateway.served()
        proxy.close()
        await until(lambda: len(ended) == 2)
        assert [line.split()[:2] for line in asked] == [[b"CONNECT", gateway.address.encode()]] * 2

    soon_done(test())


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
    with suppress(ConnectionError):
        await writer.wait_closed()


def test_a_call_that_is_none_is_answered_so(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    async def test() -> None:
        async with (
            gateway.listening(authority.server(server)),
            running(dialling(access_to(gateway, authority), tmp_path)),
        ):
            dialled = await gateway.served()
            await dialled.send(NumberedCall(77, b"\x00\xff"))
            assert await dialled.call("held") == DrafterHoldings(())

    soon_done(test())
