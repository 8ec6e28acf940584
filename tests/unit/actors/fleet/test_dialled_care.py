"""The fleet looks after devices that have dialled in: checked, leased, kept while away, refused with a pause."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from actors.fleet.fleet import Fleet
from actors.gateway_beats import DeviceAdmission, DeviceDial, DeviceRow, DeviceStage, GatewayBeat, GatewaySettings
from actors.gateway_link import RelayOutcome
from actors.messages import DrafterId, DrafterState, FleetSettings, FleetStatus
from actors.proved_streams import StreamPlace
from actors.waiting import within
from edge.host import DrafterHost
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.gateway import GatewayConfig
from outrider.contracts.errors import FleetUnavailableError
from outrider.wire.dialling import RefusalCode, Refused
from outrider.wire.replies import Answer, plain
from tests.unit.actors.coordinator.transport_suite import CARD, SuiteHost
from tests.unit.actors.fleet.test_fleet import PACE, MemoryActors, beat

SLOW = replace(PACE, probe_deadline_s=5.0, retry_s=5.0, owner_ttl_s=30.0)
GROUP = DrafterGroupConfig(name="far", from_="gateway", engine="onnx", max_generations=4)
SETTINGS = FleetSettings((GROUP,), "target", CARD.token_map_hash, models={"far": CARD.model_hash})
DIAL = DeviceDial("laptop", "laptop", b"process1", 1)
FIRST = DrafterId("far", 0)
PLACE = StreamPlace("127.0.0.1", 1, b"secret")


@dataclass
class MemoryGateway:
    """A gateway with one device, whose host answers as long as it is connected."""

    host: DrafterHost
    ended: list[Refused | None] = field(default_factory=list)
    reply: bytes | None = None  # in place of the host's

    async def ask(self, incarnation: int, call: bytes, most_bytes: int) -> tuple[RelayOutcome, bytes]:
        del incarnation, most_bytes
        return RelayOutcome.REPLIED, self.reply if self.reply is not None else await self.host.answer(call)

    def end(self, incarnation: int, last: Refused | None) -> None:
        del incarnation
        self.ended.append(last)


@dataclass
class MemoryGateways:
    gateway: MemoryGateway
    wanted: GatewaySettings | None = None
    faults: Mapping[str, str] = field(default_factory=dict)

    def calls(self, _: str) -> MemoryGateway:
        return self.gateway

    def want(self, settings: GatewaySettings) -> frozenset[str]:
        self.wanted = settings
        return frozenset("g")

    def look(self) -> None: ...


class Site:
    def __init__(self) -> None:
        self.gateway = MemoryGateway(SuiteHost())
        self.gateways = MemoryGateways(self.gateway)
        self.fleet = Fleet(MemoryActors(), SLOW, gateways=self.gateways)
        self.admission: DeviceAdmission | None = None

    async def tell(self, stage: DeviceStage | None = None, *, everything: bool = False, **more: Any) -> None:
        rows: tuple[DeviceRow, ...] = ()
        if stage is not None and self.admission is not None:
            rows = (DeviceRow(DIAL, self.admission.drafter, self.admission.incarnation, stage, **more),)
        await self.fleet.gateway_beat(GatewayBeat("g", 1, PLACE, "g:8443", rows, everything or not rows))

    async def joined(self, stage: DeviceStage = DeviceStage.READY) -> None:
        await self.fleet.beat(replace(beat(), settings=replace(SETTINGS, gateway=GatewayConfig(port=8443))))
        await self.tell()
        found = await self.fleet.admit("g", DIAL)
        assert isinstance(found, DeviceAdmission)
        self.admission = found
        await self.tell(stage)

    @property
    def first(self) -> DrafterId:
        """The drafter that is leased."""
        return FIRST if self.admission is None else self.admission.drafter

    async def status(self) -> FleetStatus:
        return await self.fleet.status()

    async def state(self, wanted: DrafterState) -> None:
        while [one.state for one in (await self.status()).drafters] != [wanted]:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.001)


def bounded(run: Coroutine[Any, Any, None]) -> None:
    asyncio.run(within(30.0, run))


def on_site(test: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        site = Site()
        await site.joined()
        await test(site)

    bounded(run())


def test_a_device_is_leased_once_it_has_drafted_a_token() -> None:
    async def test(site: Site) -> None:
        await site.state(DrafterState.READY)
        leased = await site.fleet.lease("g", owner="c")
        assert leased is not None
        assert leased[0].place == FIRST
        assert (await site.fleet.locate(site.first)).incarnation == leased[1].incarnation
        status = await site.status()
        (drafter,), (gateway,) = status.drafters, status.gateways
        assert drafter.dialled is not None
        assert (drafter.dialled.device, drafter.dialled.gateway) == ("laptop", "g")
        assert (gateway.name, gateway.address, gateway.devices) == ("g", "g:8443", 1)
        assert site.gateways.wanted is not None
        assert site.gateways.wanted.groups == (GROUP,)

    on_site(test)


def test_a_gateway_of_earlier_settings_does_not_count_as_a_wanted_one() -> None:
    async def test(site: Site) -> None:
        assert site.fleet.sums().gateways == {"wanted": 1, "running": 1}
        await site.fleet.gateway_beat(GatewayBeat("earlier", 1, PLACE, "earlier:8443", (), everything=True))
        assert {one.name for one in (await site.status()).gateways} == {"g", "earlier"}
        assert site.fleet.sums().gateways == {"wanted": 1, "running": 1}

    on_site(test)


def test_a_device_that_is_away_keeps_its_leases_and_gets_no_more() -> None:
    async def test(site: Site) -> None:
        await site.state(DrafterState.READY)
        assert await site.fleet.lease("g", owner="c") is not None
        await site.tell(DeviceStage.AWAY)
        assert [(one.state, one.generations) for one in (await site.status()).drafters] == [(DrafterState.SUSPECT, 1)]
        assert await site.fleet.lease("h", owner="c") is None
        await site.tell(DeviceStage.READY)
        await site.state(DrafterState.READY)
        assert (await site.status()).drafters[0].generations == 1

    on_site(test)


def test_a_device_that_says_goodbye_loses_its_leases() -> None:
    async def test(site: Site) -> None:
        await site.state(DrafterState.READY)
        assert await site.fleet.lease("g", owner="c") is not None
        await site.tell(DeviceStage.GONE)
        assert (await site.status()).drafters == ()
        assert await site.fleet.locate(site.first) is None

    on_site(test)


def test_what_is_said_of_an_earlier_process_does_not_hurt_the_newer_one() -> None:
    async def test(site: Site) -> None:
        await site.state(DrafterState.READY)
        assert await site.fleet.lease("g", owner="c") is not None
        before, newer = site.first, replace(DIAL, process=b"process2")
        admission = await site.fleet.admit("g", newer)
        assert isinstance(admission, DeviceAdmission)
        assert admission.drafter.place == before.place
        ready = DeviceRow(newer, admission.drafter, admission.incarnation, DeviceStage.READY)
        await site.fleet.gateway_beat(GatewayBeat("g", 1, PLACE, "g:8443", (ready,)))
        await site.state(DrafterState.READY)
        for generation in "gh":
            await site.fleet.report_broken(before, "lies", generation)
        await site.fleet.report_lost(before)
        await site.fleet.beat(replace(beat("c"), settings=SETTINGS, held={"g": before}))
        (drafter,) = (await site.status()).drafters
        assert (drafter.state, drafter.generations) == (DrafterState.READY, 0), "whose lease of it is no lease of this"
        assert await site.fleet.locate(before) is None
        leased = await site.fleet.lease("h", exclude=(before,), owner="c")
        assert leased is not None, "and it is not the one that was tried in vain"
        assert leased[0] == admission.drafter

    on_site(test)


def test_a_restarted_fleet_says_where_a_device_is_as_soon_as_it_is_told() -> None:
    async def run() -> None:
        before, site = Site(), Site()
        await before.joined()
        site.admission = before.admission
        with pytest.raises(FleetUnavailableError, match="far-0 is not known yet"):
            await site.fleet.locate(site.first)
        await site.fleet.beat(replace(beat(), settings=SETTINGS))
        await site.tell(DeviceStage.LOADING, everything=True)
        assert before.admission is not None
        assert (await site.fleet.locate(site.first)).incarnation == before.admission.incarnation

    bounded(run())


def test_a_device_of_another_model_is_told_and_shown_why_it_is_refused() -> None:
    async def test(site: Site) -> None:
        await site.state(DrafterState.REFUSED)
        (last,) = site.gateway.ended
        assert last is not None
        assert last.code is RefusalCode.UNFIT
        assert "needs model" in last.reason
        assert "needs model" in str((await site.status()).drafters[0].reason)
        assert isinstance(await site.fleet.admit("g", replace(DIAL, dial=2)), Refused)

    async def run() -> None:
        site = Site()
        site.gateway.reply = plain(replace(CARD, model_hash="another"))
        await site.joined()
        await test(site)

    bounded(run())


def test_a_device_that_breaks_the_contract_is_refused() -> None:
    async def test(site: Site) -> None:
        await site.state(DrafterState.READY)
        await site.tell(DeviceStage.AWAY, breach="sent text")
        await site.state(DrafterState.REFUSED)
        assert (await site.status()).drafters[0].reason == "sent text"

    on_site(test)


def test_a_device_that_breaks_the_contract_while_it_loads_is_refused() -> None:
    async def run() -> None:
        site = Site()
        await site.joined(DeviceStage.LOADING)
        await asyncio.sleep(0)  # so that it is waited for
        await site.tell(DeviceStage.AWAY, breach="sent text")
        await site.state(DrafterState.REFUSED)
        assert [last is not None and last.reason for last in site.gateway.ended] == ["sent text"]
        another = await site.fleet.admit("g", replace(DIAL, device="laptop/other", process=b"process2"))
        assert isinstance(another, Refused), "another name does not help"

    bounded(run())


def test_devices_are_swept_once_a_second_however_many_coordinators_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(site: Site) -> None:
        swept = list[float]()
        monkeypatch.setattr(site.fleet._care.dialled, "sweep", swept.append)  # noqa: SLF001
        for number in range(50):
            await site.fleet.beat(replace(beat(f"c{number}"), settings=SETTINGS))
        assert len(swept) <= 5, "one a second"

    on_site(test)


def test_strikes_follow_a_key_and_not_the_place_that_it_leaves() -> None:
    async def run() -> None:
        site = Site()
        await site.joined()
        await site.state(DrafterState.READY)
        for _ in range(2):
            await site.tell(DeviceStage.READY, breach="sent text")
            await asyncio.sleep(0.01)
        await site.tell(DeviceStage.GONE)
        other = replace(DIAL, device="desk", identity="desk")
        pauses = list[int]()
        for dial in (other, replace(DIAL, device="laptop/2", process=b"process2")):
            found = site.fleet._care.dialled._bans  # noqa: SLF001 (its pause is over)
            found._bans.clear()  # noqa: SLF001
            admission = await site.fleet.admit("g", dial)
            assert isinstance(admission, DeviceAdmission)
            row = DeviceRow(dial, admission.drafter, admission.incarnation, DeviceStage.LOADING, "sent text")
            await site.fleet.gateway_beat(GatewayBeat("g", 1, PLACE, "g:8443", (row,)))
            await asyncio.sleep(0.01)
            last = site.gateway.ended[-1]
            assert last is not None
            pauses.append(last.retry_after_s)
        assert pauses[0] <= 7, "5 s, spread by a quarter"
        assert pauses[1] >= 15, "its third strike: 20 s"

    bounded(run())


def test_a_device_that_answers_its_card_with_something_else_is_refused() -> None:
    async def run() -> None:
        site = Site()
        site.gateway.reply = plain(Answer(b"", 0.0))
        await site.joined()
        await site.state(DrafterState.REFUSED)

    bounded(run())


def test_a_device_is_asked_what_it_holds_and_drops_what_nobody_leased() -> None:
    async def test(site: Site) -> None:
        await site.state(DrafterState.READY)
        device = await site.fleet.locate(site.first)
        reply = await device.held.at_most(4096).remote()
        assert reply.generations == ()

    on_site(test)
