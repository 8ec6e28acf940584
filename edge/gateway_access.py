"""How a device reaches its gateway: the address, whom it trusts, and what says who it is."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from outrider.contracts.errors import ConfigError
from outrider.wire.dialling import is_address

_MOST_KEY_CHARS = 1024


@dataclass(frozen=True, slots=True)
class GatewayAccess:
    address: str  # host:port
    ca: Path | None = None  # whom a gateway's certificate has to be of; None: whom the system trusts
    cert: Path | None = None  # the device's, and its key
    key: Path | None = None
    key_file: Path | None = None  # has the device's key as text

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ConfigError("--cert, --key", "both or neither", self.cert or self.key)

    def context(self) -> ssl.SSLContext:
        """Return what a dial is made with. The files are read anew, as somebody may have replaced them."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # on since Python 3.13; CAs of one's own often lack a field
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key, password=lambda: "")  # else it would be asked for
        except OSError as error:
            raise ConfigError("--ca, --cert, --key", "certificates and an unlocked key in PEM files", error) from error
        return context

    def headers(self) -> dict[str, str]:
        """Return what says who this device is besides its certificate."""
        if self.key_file is None:
            return {}
        try:
            with self.key_file.open(encoding="ascii") as file:
                key = file.read(_MOST_KEY_CHARS + 1).strip()
        except (OSError, ValueError) as error:
            raise ConfigError("--key-file", "a file with a device key", error) from error
        if not (key.isprintable() and key and " " not in key and len(key) <= _MOST_KEY_CHARS):
            raise ConfigError("--key-file", "one key in printable ASCII", f"{len(key)} characters")
        return {"Authorization": f"Bearer {key}"}


def address_of(url: str) -> str:
    """Return host:port of a gateway's URL; anything but ``wss://host[:port]`` is a ``ConfigError``."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", 443 if parts.port is None else parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", 0
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    bare = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username)
    if parts.scheme != "wss" or not bare or not is_address(address):
        raise ConfigError("--connect", "wss://host:port", url)
    return address
