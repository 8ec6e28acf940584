"""Tells who dials: by a client certificate, a device key, or a certificate that a configured proxy has verified.

The files are read again every 10 s. A file that cannot be read leaves what was read before in use.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from actors.gateway.addresses import is_within
from outrider.config.gateway import GatewayConfig
from outrider.contracts.errors import ConfigError
from outrider.events import event
from outrider.tenants.devices import Devices, decode_devices, read_devices_file
from outrider.tenants.keys import MAX_KEY_CHARS, digest_of

RELOAD_S = 10.0
_SETTLE_S = 1.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_PART = r"""\s*([A-Za-z0-9.]+)\s*=((?:\\.|[^\\,+"])*)(?:[,+]|$)"""  # of a subject, as RFC 4514 writes it
_PARTS, _SUBJECT = re.compile(_PART), re.compile(f"(?:{_PART})+")
_COMMON_NAME = ("cn", "2.5.4.3")
_VERIFIED = "ssl-client-verify"  # of nginx, which names subjects that it has not verified, too, if it is told to
_BEARER = "bearer "
_MOST_HEADER_CHARS = 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Who a device has proved to be, and by what, so that it is known when that is revoked."""

    name: str
    key: bytes | None = None  # SHA-256 of its device key
    certificate: str | None = None  # SHA-256 of its own certificate, in hex
    valid_until: datetime | None = None  # its certificate


class Identities:
    def __init__(self, config: GatewayConfig) -> None:
        """Read the devices' file; a ``ConfigError`` if there is one that cannot be read."""
        self._config = config
        self._content: bytes | None = None
        self.devices = Devices()
        if config.devices_file is not None:
            self._content = read_devices_file(config.devices_file)
            self.devices = decode_devices(self._content, config.devices_file)

    def of(self, peer: str, headers: Mapping[str, str], certificate: bytes | None) -> DeviceIdentity | None:
        """Return who dials; None: nobody that is known. One that is revoked is told all the same (``is_revoked``).

        Args:
            peer: address that the connection comes from.
            headers: of its request; names in any case.
            certificate: that TLS has verified against ``client_ca``, as DER.
        """
        if certificate is not None:
            return _of_certificate(certificate)
        given = headers.get("authorization", "")
        if given[: len(_BEARER)].lower() == _BEARER and len(given) <= len(_BEARER) + MAX_KEY_CHARS:
            key = given[len(_BEARER) :].strip()
            name = self.devices.named(key)
            return None if name is None else DeviceIdentity(name, key=digest_of(key))
        header = self._config.identity_header
        subjects = [] if header is None else _all_of(headers, header)
        if len(subjects) == 1 and len(subjects[0]) <= _MOST_HEADER_CHARS and is_within(peer, self._config.proxies):
            return _named(_common_name(subjects[0])) if _all_of(headers, _VERIFIED) in ([], ["SUCCESS"]) else None
        return None

    def is_revoked(self, identity: DeviceIdentity) -> bool:
        """Return whether its name or certificate is revoked, or its key is gone from the file."""
        if self.devices.is_revoked(identity.name, identity.certificate):
            return True
        return identity.key is not None and not self.devices.knows(identity.key)

    async def reload(self) -> bool:
        """Read the file again, and return whether it holds something else."""
        if (path := self._config.devices_file) is None:
            return False
        try:
            content = await asyncio.to_thread(read_devices_file, path)
            if content == self._content:
                return False
            await asyncio.sleep(_SETTLE_S)
            if content != await asyncio.to_thread(read_devices_file, path):
                return False  # it is being written
            self.devices = await asyncio.to_thread(decode_devices, content, path)
        except ConfigError as error:
            event(log, "devices_not_read", logging.ERROR, reason=str(error))
            return False
        self._content = content
        event(log, "devices_read")
        return True


def _of_certificate(certificate: bytes) -> DeviceIdentity | None:
    from cryptography.x509 import NameOID, load_der_x509_certificate  # noqa: PLC0415 (only where there are some)

    try:
        read = load_der_x509_certificate(certificate)
        found: Any = read.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        named = _named(str(found[0].value)) if found else None
    except ValueError:
        return None
    digest = sha256(certificate).hexdigest()
    return None if named is None else DeviceIdentity(named.name, None, digest, read.not_valid_after_utc)


def _all_of(headers: Mapping[str, str], name: str) -> list[str]:
    """Return what a header says; more than once where a proxy has added its own to the sender's."""
    return [value for found, value in headers.items() if found.lower() == name.lower()]


def _common_name(subject: str) -> str:
    """Return a subject's common name, or what is no subject itself; nothing where there are more, or none."""
    if "=" not in subject:
        return subject.strip()
    parts = _PARTS.findall(subject) if _SUBJECT.fullmatch(subject) else []
    found = [value.strip() for kind, value in parts if kind.lower() in _COMMON_NAME]
    return found[0] if len(found) == 1 else ""


def _named(name: str) -> DeviceIdentity | None:
    return DeviceIdentity(name) if _NAME.fullmatch(name) else None
