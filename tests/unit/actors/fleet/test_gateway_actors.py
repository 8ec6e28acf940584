"""Which gateways are kept running."""

import asyncio

import pytest

from actors.fleet import gateway_actors
from actors.fleet.gateway_actors import GatewayActors
from actors.gateway_beats import GatewaySettings
from outrider.config.gateway import GatewayConfig


class Named(GatewayActors):
    """Of which none is started."""

    async def _keep(self, name: str, settings: GatewaySettings) -> None:
        pass


class Running(Named):
    """Of which some run already; which of them are stopped is noted."""

    def __init__(self, addresses: tuple[str, ...], *running: str) -> None:
        super().__init__("fleet", "outrider", lambda: addresses)
        self.running, self.stopped = running, list[str]()

    async def _stop_strangers(self) -> None:
        self.stopped += [name for name in self.running if name not in self._keeping]


@pytest.mark.parametrize(
    ("count", "addresses", "patience_s", "is_stopped"),
    [(1, (), 1e9, False), (1, ("there:1",), 1e9, True), (1, (), -1.0, True), (0, (), 1e9, True)],
)
def test_a_gateway_is_stopped_once_its_devices_can_go_elsewhere(
    count: int, addresses: tuple[str, ...], patience_s: float, is_stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_actors, "_REPLACED_IN_S", patience_s)

    async def run() -> None:
        actors = Running(addresses, "gateway-of-before")
        config = GatewayConfig(port=8790, count=count) if count else GatewayConfig()
        actors.want(GatewaySettings(config, (), "target"))
        actors.look()
        await asyncio.sleep(0)
        assert bool(actors.stopped) is is_stopped

    asyncio.run(run())


def names(settings: GatewaySettings) -> frozenset[str]:
    """Under which gateways made from these settings run."""

    async def wanted() -> frozenset[str]:
        return Named("fleet", "outrider", tuple).want(settings)

    return asyncio.run(wanted())


def test_gateways_of_other_settings_or_of_other_messages_are_not_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = GatewaySettings(GatewayConfig(port=8790, count=2), (), "target")
    assert len(names(two)) == 2
    assert names(two) == names(two)
    assert not names(two) & names(GatewaySettings(GatewayConfig(port=8790, count=2), (), "other"))
    of_now = names(two)
    monkeypatch.setattr(gateway_actors, "FLEET_VERSION", 0)
    assert not names(two) & of_now
