"""Cases that dial in, at a gateway in this process, beside a device whose drafts are what they have to be."""

import asyncio
import gc
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from actors.coordinator.gateway_transport import GatewayDrafterTransport, GatewayLinks
from actors.gateway_link import DialledHandle
from actors.waiting import within
from outrider.config.gateway import GatewayConfig
from tests.chaos.processes import rss_bytes
from tests.cluster.served import free_port
from tests.hostile import dials
from tests.hostile.cases import Case
from tests.hostile.gateway import HONEST, DialIn
from tests.hostile.promises import Figure
from tests.unit.actors.coordinator.transport_suite import Client, SuiteHost
from tests.unit.actors.gateway.dialling import GROUP, Dialler, DirectFleet, Place, gateway_of, until
from tests.unit.actors.gateway.test_transport_suite import _dial_for_ever

_WITHIN_S = 120.0
_MOST_TOKENS = 90  # of a text, then another one is begun
CASES = list(dials.cases())


@dataclass
class Layout:
    dial_in: DialIn


@dataclass
class Status:
    """As the service answers ``/status``."""

    fleet: DirectFleet
    is_success: bool = True

    def json(self) -> dict[str, Any]:
        devices = [
            {"name": one.drafter.actor_name, "state": "ready", "dialled": {"device": one.dial.device}}
            for one in self.fleet.devices.all
            if one.is_ready.is_set()
        ]
        return {"drafters": devices}


@dataclass
class Gateway:
    """What a case asks of the service."""

    layout: Layout
    fleet: DirectFleet

    def get(self, path: str) -> Status:
        assert path == "/status"
        return Status(self.fleet)


@dataclass
class Target:
    service: Gateway
    wrong: list[str] = field(default_factory=list)
    figures: dict[Figure, float] = field(default_factory=dict)


async def driven(case: Case, folder: Path) -> tuple[Target, str, int]:
    """Drive it; return what was found, what the hostile was told, and how many rounds the other device had."""
    dial_in, fleet = DialIn(folder, free_port()), DirectFleet()
    dial_in.prepare()
    fleet.devices.want([replace(GROUP, max_devices=64)])
    place = Place(folder, GatewayConfig(**dial_in.settings()), folder / "ca.pem", dial_in.keys[HONEST])
    async with gateway_of(place, fleet) as gateway:
        device, links, target = Dialler(place, SuiteHost()), GatewayLinks(), Target(Gateway(Layout(dial_in), fleet))
        dialling = asyncio.create_task(_dial_for_ever(device, gateway))
        try:
            await until(lambda: any(one.dial.device == HONEST and one.is_ready.is_set() for one in fleet.devices.all))
            rounds = asyncio.create_task(_rounds(fleet, links))
            answer: Any = await case.drive(target)  # type: ignore[arg-type]  # which asks no more than this has
            await asyncio.sleep(0.1)
            assert not rounds.done(), rounds.exception()
            rounds.cancel()
            return target, answer.code, device.dial_number
        finally:
            dialling.cancel()
            await links.disconnect()
            await device.close()


async def _rounds(fleet: DirectFleet, links: GatewayLinks) -> None:
    """Rounds of texts, each of whose drafts is compared with what it has to be."""
    (drafter,) = [one.drafter.place for one in fleet.devices.all if one.dial.device == HONEST]
    handle = fleet.handle(drafter)
    assert handle is not None

    async def locate(_: DialledHandle) -> DialledHandle | None:
        return fleet.handle(drafter)

    number = 0
    while True:
        number += 1
        client = Client(GatewayDrafterTransport("honest", handle, links, locate), f"text {number}")
        await client.open()
        while len(client.tokens) < _MOST_TOKENS:
            await client.round()
            await asyncio.sleep(0.005)
        client.transport.close(client.name)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.short else pytest.mark.long, id=case.name) for case in CASES],
)
def test_who_dials_in_harms_no_other_device(case: Case, tmp_path: Path) -> None:
    gc.collect()
    before = rss_bytes(os.getpid())
    target, told, dials_of_the_other = asyncio.run(within(_WITHIN_S, driven(case, tmp_path)))
    assert target.wrong == [], told
    assert dials_of_the_other == 1, "its connection was never lost"
    assert rss_bytes(os.getpid()) - before < 300 * 2**20, "the hostile's own memory among it"
