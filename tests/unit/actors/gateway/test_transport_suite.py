"""The suite of transports over a gateway: a device that dials in by TLS, a coordinator's stream, and frames between."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from actors.coordinator.gateway_transport import GatewayDrafterTransport, GatewayLinks
from actors.gateway.gateway import Gateway
from actors.gateway_link import DialledHandle
from actors.waiting import within
from outrider.contracts.errors import DrafterLostError
from outrider.contracts.requests import GenerationId
from outrider.versions import DIAL_VERSIONS, VersionRange
from tests.unit.actors.coordinator.transport_suite import (
    SOON_S,
    STUCK,
    Client,
    Rig,
    SuiteHost,
    every_check,
)
from tests.unit.actors.gateway.dialling import Dialler, DirectFleet, Place, gateway_of


@dataclass
class ThroughGateway:
    host: SuiteHost
    device: Dialler
    fleet: DirectFleet
    gateway: Gateway
    transport: GatewayDrafterTransport
    links: GatewayLinks
    dialling: "asyncio.Task[None] | None" = None

    async def go_on(self) -> None:
        self.host.drafter.may_go_on.set()

    async def lose(self, generation: GenerationId) -> None:
        await self.host.close(generation)

    async def end(self) -> None:
        """The device says that it goes, and its gateway ends."""
        if self.dialling is not None:
            self.dialling.cancel()
        await self.gateway.stop()
        await self.device.close()


async def _dial_for_ever(device: Dialler, gateway: Gateway) -> None:
    """As a device does: dial again when the connection has ended."""
    while True:
        if device.stream is None or device.stream.closed:
            await device.dial(gateway)
        await asyncio.sleep(0.01)


@asynccontextmanager
async def through_gateway(folder: Path, dial_versions: VersionRange = DIAL_VERSIONS) -> AsyncIterator[ThroughGateway]:
    place, fleet, host = Place.made(folder), DirectFleet(), SuiteHost()
    async with gateway_of(place, fleet) as gateway:
        device = Dialler(place, host, dial_versions=dial_versions)
        dialling, links = asyncio.create_task(_dial_for_ever(device, gateway)), GatewayLinks()

        async def locate(_: DialledHandle) -> DialledHandle | None:
            return fleet.handle()

        try:
            await fleet.ready()
            handle = fleet.handle()
            assert handle is not None
            transport = GatewayDrafterTransport("d", handle, links, locate)
            yield ThroughGateway(host, device, fleet, gateway, transport, links, dialling)
        finally:
            host.drafter.may_go_on.set()
            dialling.cancel()
            await links.disconnect()
            await device.close()


@every_check
@pytest.mark.parametrize("dial_versions", [DIAL_VERSIONS, VersionRange(1, 1)], ids=str)
def test_a_transport_does_its_work(
    check: Callable[[Rig], Awaitable[None]], dial_versions: VersionRange, tmp_path: Path
) -> None:
    async def run() -> None:
        async with through_gateway(tmp_path, dial_versions) as found:
            await check(found)

    asyncio.run(within(SOON_S, run()))


def test_calls_that_wait_are_sent_again_when_the_device_dials_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with through_gateway(tmp_path) as rig:
            client, beside = Client(rig.transport, STUCK), Client(rig.transport)
            await client.open()
            await beside.open()
            rounds = [asyncio.create_task(client.round()), asyncio.create_task(beside.round())]
            await rig.transport.probe(b"?", 1, SOON_S)
            rig.device.cut()
            await rig.transport.probe(b"?", 1, SOON_S)
            await rig.go_on()
            await asyncio.gather(*rounds)
            assert rig.device.dial_number == 2
            await client.round()
            assert [what for what, _ in rig.fleet.happened] == ["joined"], "it was never away"

    asyncio.run(within(SOON_S, run()))


def test_calls_that_wait_follow_a_device_to_another_gateway(tmp_path: Path) -> None:
    async def run() -> None:
        async with through_gateway(tmp_path) as rig, gateway_of(rig.device.place, rig.fleet, "gateway-1") as other:
            client = Client(rig.transport, STUCK)
            await client.open()
            waiting = asyncio.create_task(client.round())
            await rig.transport.probe(b"?", 1, SOON_S)
            assert rig.dialling is not None
            rig.dialling.cancel()
            await rig.device.dial(other)
            await rig.go_on()
            await waiting
            await client.round()
            assert (len(rig.gateway.devices), len(other.devices)) == (0, 1)

    asyncio.run(within(SOON_S, run()))


def test_a_gateway_that_ends_is_left_for_another(tmp_path: Path) -> None:
    async def run() -> None:
        async with through_gateway(tmp_path) as rig, gateway_of(rig.device.place, rig.fleet, "gateway-1") as other:
            client = Client(rig.transport)
            await client.open()
            await client.round()
            assert rig.dialling is not None
            rig.dialling.cancel()
            await rig.gateway.stop()
            round_ = asyncio.create_task(client.round())
            await rig.device.dial(other)
            await round_

    asyncio.run(within(SOON_S, run()))


def test_a_process_that_was_started_anew_has_lost_what_it_held(tmp_path: Path) -> None:
    async def run() -> None:
        async with through_gateway(tmp_path) as rig:
            client = Client(rig.transport, STUCK)
            await client.open()
            waiting = asyncio.create_task(client.round())
            await rig.transport.probe(b"?", 1, SOON_S)
            assert rig.dialling is not None
            rig.dialling.cancel()
            anew = Dialler(rig.device.place, SuiteHost())
            await anew.dial(rig.gateway)
            with pytest.raises(DrafterLostError, match="was started anew"):
                await waiting
            await anew.close()

    asyncio.run(within(SOON_S, run()))
