"""Sections of the configuration on who reaches the API, and where."""

from dataclasses import replace
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from outrider.config.values import FORBID, HostName, Origin, Port, Text, check_networks
from outrider.contracts.errors import ConfigError

_NAMES_OF_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True, config=FORBID)
class AuthConfig:
    """Authentication; for the file's form see ``outrider.tenants.keys``."""

    keys_file: Text | None = None
    reads: Literal["open", "key"] = "open"

    def __post_init__(self) -> None:
        if "\0" in (self.keys_file or ""):
            raise ConfigError("keys_file", "a path without NUL", self.keys_file)
        if self.reads == "key" and self.keys_file is None:
            raise ConfigError("reads", "open, or a keys_file", self.reads)

    @property
    def has_keys(self) -> bool:
        return self.keys_file is not None

    def with_keys(self, file: str) -> "AuthConfig":
        return replace(self, keys_file=file)


@dataclass(frozen=True, slots=True, config=FORBID)
class HttpConfig:
    """Where and how the API listens."""

    host: Text = "127.0.0.1"
    port: Port = 8000
    keep_alive_s: Annotated[float, Field(strict=True, gt=0, le=86_400)] | None = 15.0
    cors_origins: tuple[Origin, ...] = ()
    allowed_hosts: tuple[HostName, ...] = ()
    trusted_proxies: tuple[Text, ...] = ()
    strict_fields: Annotated[bool, Field(strict=True)] = False

    def __post_init__(self) -> None:
        check_networks("trusted_proxies", self.trusted_proxies)

    @property
    def answers_to(self) -> tuple[str, ...] | None:
        """Accepted host names: on loopback this machine's names and ``allowed_hosts``; None elsewhere: any."""
        if not self.is_loopback:
            return None
        own = f"[{self.host}]" if ":" in self.host else self.host
        return tuple(dict.fromkeys((*_NAMES_OF_LOOPBACK, own, *self.allowed_hosts)))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
