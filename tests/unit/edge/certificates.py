"""A certificate authority of a test's own, and certificates for gateways and devices."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from ssl import CERT_REQUIRED, PROTOCOL_TLS_SERVER, SSLContext, TLSVersion

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    cert: Path
    key: Path


class Authority:
    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder, self.file = folder, folder / f"{name}.pem"
        self._key, self._subject = ec.generate_private_key(ec.SECP256R1()), _named(name)
        certificate = _builder(self._subject, self._subject, self._key.public_key())
        certificate = certificate.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, valid_for: timedelta = _DAY, begins_in: timedelta = -2 * _DAY) -> Identity:
        """Certify a key for a name, and for 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = _builder(_named(name), self._subject, key.public_key(), valid_for, begins_in)
        certificate = certificate.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        made.cert.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))
        pem, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        made.key.write_bytes(key.private_bytes(pem, plain, serialization.NoEncryption()))
        return made

    def server(self, identity: Identity, *, asks_for_certificates: bool = False) -> SSLContext:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.minimum_version = TLSVersion.TLSv1_3
        context.load_cert_chain(identity.cert, identity.key)
        if asks_for_certificates:
            context.verify_mode = CERT_REQUIRED
            context.load_verify_locations(self.file)
        return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    valid_for: timedelta = _DAY,
    begins_in: timedelta = -2 * _DAY,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now + begins_in).not_valid_after(now + valid_for)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
