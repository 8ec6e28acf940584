"""What `outrider serve` makes for a gateway where it is not configured: CA, certificate, device key, drafter group."""

import base64
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from actors.gateway.addresses import dialled_address
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.documents.whole_file import whole_file
from outrider.models.embedded import outrider_home

GROUP = "dialled"  # added where no group has devices that dial in
_CA_DAYS, _DAYS = 3650, 365
_HOST = '"$(uname -n | tr A-Z a-z | tr -cd a-z0-9-)"'  # so that several devices can have one key
_SKEW = timedelta(days=1)  # clocks of devices may be slow


def with_gateway(config: Config, folder: Path | None = None) -> tuple[Config, str | None]:
    """Return the configuration with what its gateway lacks, and what to run on a device; unchanged without a gateway.

    Files are kept in ``folder`` (None: beside the models) for the next start, as devices know the CA.

    Raises:
        ConfigError: files cannot be written, or there is no drafter that devices could be given.
    """
    gateway = config.gateway
    if gateway.port is None:
        return config, None
    folder = outrider_home() / "gateway" if folder is None else folder
    address = dialled_address(gateway, gateway.port)
    more, options = list[str](), list[str]()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if gateway.certificate is None:
            ca, certificate, key = _certified(folder, address, gateway.port)
            gateway = replace(gateway, certificate=str(certificate), private_key=str(key))
            more.append(f"echo {base64.b64encode(ca).decode()} | base64 -d > outrider-ca.pem")
            options.append("--ca outrider-ca.pem")
        if not gateway.knows_devices:
            devices = folder / "devices.yaml"
            device_key = _device_key(folder / "device.key", devices)
            gateway = replace(gateway, devices_file=str(devices))
            more.append(f"(umask 077; echo {device_key} > outrider-device.key)")
            options.append(f"--key-file outrider-device.key --name {_HOST}")
    except OSError as error:
        raise ConfigError("gateway.certificate", f"a file that can be written in {folder}", str(error)) from error
    line = "; ".join([*more, " ".join(["outrider-edge", "--connect", f"wss://{address}", *options])])
    return replace(config, gateway=gateway, drafters=_with_group(config.drafters)), line


def _with_group(groups: Sequence[DrafterGroupConfig]) -> tuple[DrafterGroupConfig, ...]:
    """Add a group whose devices draft with the model of the first."""
    if any(group.dials_in for group in groups):
        return tuple(groups)
    if not groups:
        raise ConfigError("drafters", "a group from: gateway, as no drafter is known that devices could be given", None)
    of_first = {name: getattr(groups[0], name) for name in ("model", "model_hash", "decision_head", "max_generations")}
    return (*groups, DrafterGroupConfig(name=GROUP, from_="gateway", engine="onnx", **of_first))


def _device_key(file: Path, devices: Path) -> str:
    """Return the key, made if it is missing. The devices' file stays as long as the key: somebody may change it."""
    if not file.is_file():
        devices.unlink(missing_ok=True)
        _write(file, secrets.token_urlsafe(24).encode())
    key = file.read_text(encoding="ascii").strip()
    if not devices.is_file():
        _write(devices, f"keys:\n  - {{name: device, sha256: {sha256(key.encode()).hexdigest()}}}\n".encode())
    return key


def _certified(folder: Path, address: str, port: int) -> tuple[bytes, Path, Path]:
    """Return the CA as PEM, made if it is missing, and files of a new certificate for this machine, and of its key.

    They are the port's own: another service of this user has another address, and a gateway reads its files again.
    """
    ca_file, ca_key_file = folder / "ca.pem", folder / "ca.key"
    if not (ca_file.is_file() and ca_key_file.is_file()):
        ca_key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"outrider gateway {secrets.token_hex(4)}")])
        ca = _certificate(name, name, ca_key, ca_key, [], _CA_DAYS)
        _write(ca_key_file, _pem(ca_key))
        _write(ca_file, ca.public_bytes(serialization.Encoding.PEM))
    ca_pem = ca_file.read_bytes()
    found = serialization.load_pem_private_key(ca_key_file.read_bytes(), None)
    assert isinstance(found, ec.EllipticCurvePrivateKey), "it was made here"
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "outrider gateway")])
    issuer = x509.load_pem_x509_certificate(ca_pem).subject
    certificate = _certificate(subject, issuer, key, found, _names(address), _DAYS)
    file, key_file = folder / f"gateway-{port}.pem", folder / f"gateway-{port}.key"
    _write(file, certificate.public_bytes(serialization.Encoding.PEM))
    _write(key_file, _pem(key))
    return ca_pem, file, key_file


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signing: ec.EllipticCurvePrivateKey,
    names: Sequence[x509.GeneralName],
    days: int,
) -> x509.Certificate:
    now = datetime.now(UTC)
    is_ca = subject == issuer
    built = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .add_extension(_usage(is_ca=is_ca), critical=True)
    )
    if names:
        built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return built.sign(signing, hashes.SHA256())


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
    unset = dict.fromkeys((*others, "decipher_only"), False)
    return x509.KeyUsage(digital_signature=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca, **unset)


def _names(address: str) -> list[x509.GeneralName]:
    dialled = urlsplit(f"//{address}").hostname or address
    names = dict.fromkeys([dialled, socket.gethostname().lower(), "localhost", "127.0.0.1", "::1"])
    return [_name(name) for name in names]


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)


def _write(file: Path, content: bytes) -> None:
    """Write a file that only its user can read; whole or not at all."""
    with whole_file(file) as partial:
        partial.touch(0o600)
        os.chmod(partial, 0o600)  # noqa: PTH101 (an earlier one may be there)
        partial.write_bytes(content)
