"""A gateway of the service under test: who may dial in to it, and an honest device."""

import contextlib
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cluster.own_gateway import with_gateway
from outrider.config.gateway import GatewayConfig
from outrider.config.schema import Config

GROUP, HONEST = "dialled", "honest"
_KEYS = (HONEST, "leaver", *(f"m{number}" for number in range(64)))
_PEM, _DER = serialization.Encoding.PEM, serialization.Encoding.DER


@dataclass(frozen=True, slots=True)
class DialIn:
    """Where devices dial in, and the files of those who do.

    Attributes:
        keys: device keys by name; other names are of certificates.
        hostile: whose key is used now: a breach keeps its owner out for a while, and so ends a case.
    """

    folder: Path
    port: int
    keys: Mapping[str, str] = field(default_factory=lambda: {name: f"dk-{name}-0123456789abcdef" for name in _KEYS})
    hostile: str = "m0"

    def prepare(self) -> None:
        """Make CAs and certificates: one that is revoked, and three that are worth nothing."""
        with_gateway(Config(gateway=GatewayConfig(port=self.port, host="127.0.0.1", address="127.0.0.1")), self.folder)
        now, day = datetime.now(UTC), timedelta(days=1)
        own, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        ca = self._certify("device-ca", own, now - day, now + day, name="devices")
        self._certify("revoked", own, now - day, now + day)
        self._certify("expired", own, now - 2 * day, now - day)
        self._certify("early", own, now + day, now + 2 * day)
        self._certify("stranger", other, now - day, now + day)
        assert ca.is_file()
        self.write_devices()

    def settings(self) -> dict[str, Any]:
        file, key = (str(self.folder / f"gateway-{self.port}.{end}") for end in ("pem", "key"))
        own = {"certificate": file, "private_key": key, "client_ca": str(self.folder / "device-ca.pem")}
        where = {"port": self.port, "host": "127.0.0.1", "address": "127.0.0.1"}
        return {**where, **own, "devices_file": str(self.folder / "devices.yaml")}

    def write_devices(self, *left_out: str) -> None:
        """Write who may dial in, as a whole file."""
        keys = [{"name": name, "key": key} for name, key in self.keys.items() if name not in left_out]
        certificate = x509.load_pem_x509_certificate((self.folder / "revoked.pem").read_bytes())
        revoked = sha256(certificate.public_bytes(_DER)).hexdigest()
        partial = self.folder / "devices.new"
        partial.write_text(yaml.safe_dump({"keys": keys, "revoked": [revoked]}))
        partial.replace(self.folder / "devices.yaml")

    def context(self, name: str) -> ssl.SSLContext:
        """Return a device's side of TLS, with the certificate of this name where there is one."""
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        if (file := self.folder / f"{name}.pem").is_file() and name not in self.keys:
            context.load_cert_chain(file, self.folder / f"{name}.key")
        return context

    @contextlib.contextmanager
    def honest(self, root: Path) -> Iterator[None]:
        """Run a device that does what it should."""
        key = self.folder / "honest-device.key"
        key.write_text(self.keys[HONEST])
        options = ["--ca", str(self.folder / "ca.pem"), "--key-file", str(key)]
        process = subprocess.Popen(
            [sys.executable, "-m", "edge.main", "--connect", f"wss://127.0.0.1:{self.port}", *options],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root), "CACHE_DIRECTORY": str(self.folder / "cache")},
            stdout=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def _certify(
        self, name_of_file: str, signing: ec.EllipticCurvePrivateKey, begins: datetime, ends: datetime, name: str = ""
    ) -> Path:
        """Write a certificate and its key; of a name it is the CA's own."""
        key = signing if name else ec.generate_private_key(ec.SECP256R1())
        subject, issuer = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name or name_of_file, "devices")
        )
        made = (
            x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=bool(name), path_length=None), critical=True)
            .sign(signing, hashes.SHA256())
        )
        file = self.folder / f"{name_of_file}.pem"
        file.write_bytes(made.public_bytes(_PEM))
        plain = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (self.folder / f"{name_of_file}.key").write_bytes(plain)
        return file
