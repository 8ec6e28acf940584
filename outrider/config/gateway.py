"""Section of the configuration on gateways, to which devices dial in."""

from dataclasses import field
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from outrider.config.values import FORBID, Port, PositiveNumber, Resources, Text, check_networks
from outrider.contracts.errors import ConfigError
from outrider.wire.dialling import is_address

_Header = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9-]{1,64}$", description="the name of a header")]


@dataclass(frozen=True, slots=True, config=FORBID)
class GatewayConfig:
    """Where devices dial in, and who they may be; for the devices' file see ``outrider.tenants.devices``."""

    port: Port | None = None
    host: Text = "0.0.0.0"  # noqa: S104 (off unless there is a port; TLS and an identity are demanded)
    address: Text | None = None
    certificate: Text | None = None
    private_key: Text | None = None
    client_ca: Text | None = None
    devices_file: Text | None = None
    proxies: tuple[Text, ...] = ()
    identity_header: _Header | None = None
    count: PositiveNumber = 1
    resources: Resources = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.private_key is None):
            raise ConfigError("private_key", "a file where there is a certificate, and none else", self.private_key)
        named = self.address or "this-machine"
        if not any(map(is_address, (named, f"{named}:1", f"[{named}]:1"))):
            raise ConfigError("address", "HOST or HOST:PORT, such as gateway.example:443", self.address)
        check_networks("proxies", self.proxies)

    @property
    def actors(self) -> int:
        """How many gateways the fleet keeps running: none without a port."""
        return 0 if self.port is None else self.count

    @property
    def knows_devices(self) -> bool:
        """Whether any device can prove who it is."""
        return bool(self.client_ca or self.devices_file or (self.proxies and self.identity_header))
