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
