"""The fleet's calls of devices over gateways that hang, or are gone."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from actors.fleet import gateway_actors
from actors.fleet.dialled_device import DialledDevice, GatewayState
from actors.fleet.gateway_actors import RayGatewayCalls
from actors.gateway_beats import DeviceDial
from actors.gateway_link import RelayOutcome
from actors.messages import DrafterId
from actors.proved_streams import StreamPlace
from actors.waiting import within
from outrider.wire.dialling import Refused
from outrider.wire.replies import plain
from tests.unit.actors.coordinator.transport_suite import CARD

DIAL = DeviceDial("a", "a", b"process1", 1)


@dataclass
class Hung:
    """A gateway that answers nothing, or this."""

    reply: bytes | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, *_: object) -> tuple[RelayOutcome, bytes]:
        self.asked.set()
        if self.reply is None:
            await asyncio.Event().wait()
        return RelayOutcome.REPLIED, self.reply or b""

    def end(self, incarnation: int, last: Refused | None) -> None: ...


def state(name: str, calls: Hung) -> GatewayState:
    return GatewayState(name, calls, StreamPlace("127.0.0.1", 1, b""), f"{name}:1", 1, 0.0)


def test_a_call_that_a_hung_gateway_has_follows_its_device_elsewhere() -> None:
    async def test() -> None:
        hung = Hung()
        device = DialledDevice(DrafterId("far", 0, 1), DIAL, state("g0", hung))
        asked = asyncio.create_task(device.card.remote())
        await hung.asked.wait()
        device.move(DIAL, state("g1", Hung(plain(CARD))))
        assert await asked == CARD

    asyncio.run(within(30.0, test()))


def test_a_gateway_that_never_answers_has_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_actors, "_ASK_DEADLINE_S", 0.01)

    async def test() -> None:
        calls = RayGatewayCalls("gateway-x", "tests")
        never = SimpleNamespace(remote=lambda *_: asyncio.get_running_loop().create_future())
        calls._actor.known = SimpleNamespace(ask=never)  # noqa: SLF001 (no cluster runs here)
        assert await calls.ask(1, b"", 1) == (RelayOutcome.ELSEWHERE, b"")
        assert calls._actor.known is None  # noqa: SLF001

    asyncio.run(within(30.0, test()))
