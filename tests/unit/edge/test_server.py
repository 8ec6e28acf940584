"""A device's server: what connections may cost, whatever is at their other ends."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from actors.waiting import within
from edge import server as serving
from edge.byte_budget import ByteBudget
from edge.frames import frame, read_frame, read_head
from edge.server import MOST_CONNECTIONS, HostServer
from outrider.contracts.errors import DrafterBrokenError
from outrider.link.state import MAX_PROBE_BITS
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES, MOST_DEVICE_PROBE_BYTES, write_call
from outrider.wire.replies import Answer, DrafterCard, read_reply
from tests.unit.actors.coordinator.transport_suite import CARD, SOON_S, SuiteHost

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
CARD_CALL = frame(1, write_call("card"))


class WaitingHost(SuiteHost):
    """Answers exchanges when it may, and counts those that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting, self.may_answer = 0, asyncio.Event()

    async def exchange(self, _generation: str, _order: bytes) -> Answer:
        """Wait."""
        self.waiting += 1
        await self.may_answer.wait()
        return Answer(b"", 0.0)


def served(folder: Path, use: Callable[[WaitingHost, Connect], Awaitable[None]]) -> None:
    async def run() -> None:
        opened_tasks = len(asyncio.all_tasks()) - 1
        host, path = WaitingHost(), str(folder / "edge.sock")
        server = await asyncio.start_unix_server(HostServer(host).serve, path)
        opened = list[asyncio.StreamWriter]()

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            stream = await asyncio.open_unix_connection(path)
            opened.append(stream[1])
            return stream

        try:
            await use(host, connect)
        finally:
            server.close()
            for writer in opened:
                writer.transport.abort()
            while len(asyncio.all_tasks()) > 1 + opened_tasks:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    asyncio.run(within(SOON_S, run()))


async def card(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    writer.write(CARD_CALL)
    return read_reply((await read_frame(reader, lambda _: 4096))[1])


def test_probes_are_bounded_by_what_measures_a_link(tmp_path: Path) -> None:
    assert MAX_PROBE_BITS // 8 <= MOST_DEVICE_PROBE_BYTES < 2**22

    async def probed(_: WaitingHost, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(frame(1, write_call("probe", b"", MOST_DEVICE_PROBE_BYTES + 1)))
        with pytest.raises(DrafterBrokenError, match=f"a probe of at most {MOST_DEVICE_PROBE_BYTES} bytes"):
            read_reply((await read_frame(reader, lambda _: 4096))[1])
        assert isinstance(await card(reader, writer), DrafterCard)
        writer.write(frame(2, bytes(MOST_DEVICE_CALL_BYTES + 1)))
        with suppress(ConnectionError):
            assert await reader.read() == b"", "the connection has ended"

    served(tmp_path, probed)


def test_calls_that_are_not_answered_have_a_bounded_size(tmp_path: Path) -> None:
    async def flooded(host: WaitingHost, connect: Connect) -> None:
        (_, flooding), other = await connect(), await connect()
        call = write_call("exchange", "g", bytes(2**20))
        sending = asyncio.ensure_future(_sent(flooding, [frame(number, call) for number in range(8)]))
        while host.waiting < 3:  # noqa: ASYNC110 (an event would tell of one of them)
            await asyncio.sleep(0.001)
        for _ in range(50):
            assert await card(*other) == CARD, "another connection is served meanwhile"
        assert host.waiting == 3, "of 1 MiB and a head, within 4 MiB"
        host.may_answer.set()
        while host.waiting < 8:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await sending

    served(tmp_path, flooded)


async def _sent(writer: asyncio.StreamWriter, frames: list[bytes]) -> None:
    for one in frames:
        writer.write(one)
        await writer.drain()


def test_no_more_connections_are_served_than_there_may_be(tmp_path: Path) -> None:
    async def connected(_: WaitingHost, connect: Connect) -> None:
        streams = [await connect() for _ in range(MOST_CONNECTIONS)]
        for stream in streams:
            assert await card(*stream) == CARD
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await card(*await connect())
        streams[0][1].close()
        await streams[0][1].wait_closed()
        while True:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                assert await card(*await connect()) == CARD
                break

    served(tmp_path, connected)


@pytest.mark.parametrize("stands", ["sending", "reading"])
def test_a_connection_that_stands_still_ends(stands: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what it holds would be held for good."""
    monkeypatch.setattr(serving, "PATIENCE_S", 0.1)

    async def still(_: WaitingHost, connect: Connect) -> None:
        reader, writer = await connect()
        if stands == "sending":
            writer.write(frame(1, write_call("probe", bytes(2**20), 0))[:1000])
        else:
            writer.write(frame(1, write_call("probe", b"", MOST_DEVICE_PROBE_BYTES)) * 4)
            await read_head(reader)
            await asyncio.sleep(0.3)
        with suppress(ConnectionError):
            assert len(await reader.read()) < 4 * MOST_DEVICE_PROBE_BYTES

    served(tmp_path, still)


def test_a_budget_gives_back_what_a_cancelled_call_took() -> None:
    async def taken() -> None:
        budget = ByteBudget(3 * 4096)
        held = await budget.take(4096)
        assert held == 2 * 4096
        waiting = asyncio.ensure_future(budget.take(4096))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert await budget.take(0) == 4096
        budget.give_back(held)
        assert await budget.take(4096) == held

    asyncio.run(within(SOON_S, taken()))
