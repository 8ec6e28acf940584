"""Who a device is: by its certificate, its key, or what a configured proxy says; and what is revoked."""

import asyncio
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from actors.gateway import listener
from actors.gateway.identities import DeviceIdentity, Identities
from actors.gateway.listener import tls_context
from actors.waiting import within
from outrider.config.gateway import GatewayConfig
from outrider.contracts.errors import ConfigError
from outrider.wire.dialling import RefusalCode, Refused, Welcome
from tests.unit.actors.gateway.dialling import Dialler, DirectFleet, Place, gateway_of, until

SOON_S = 60.0
PEM = serialization.Encoding.PEM
NGINX = "ssl-client-subject-dn"


class Authority:
    """A CA of devices, with a folder for what it issues."""

    def __init__(self, folder: Path, name: str = "devices") -> None:
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.name = _named(name)
        self.file = folder / f"{name}-ca.pem"
        self.file.write_bytes(self._signed(self.name, self.key.public_key(), days=10, ca=True).public_bytes(PEM))

    def issued(self, name: str, days: int = 10) -> tuple[Path, Path]:
        """Files of a device's certificate, which ends in so many days, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(_named(name), key.public_key(), days=days, ca=False)
        file, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        file.write_bytes(certificate.public_bytes(PEM))
        plain = serialization.NoEncryption()
        key_file.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, plain))
        return file, key_file

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int, ca: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder(self.name, subject, key, x509.random_serial_number())
            .not_valid_before(now - timedelta(days=20))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def der(file: Path) -> bytes:
    return x509.load_pem_x509_certificate(file.read_bytes()).public_bytes(serialization.Encoding.DER)


def test_a_certificate_of_the_devices_ca_names_its_device(tmp_path: Path) -> None:
    own = Authority(tmp_path)
    sound, other = own.issued("jetson-7"), Authority(tmp_path, "strangers").issued("jetson-8")
    expired, revoked = own.issued("jetson-9", days=-1), own.issued("jetson-10")

    async def run() -> None:
        place, fleet = Place.made(tmp_path / "gateway", client_ca=str(own.file)), DirectFleet()
        place.write_devices(f"revoked: ['{sha256(der(revoked[0])).hexdigest()}']")
        async with gateway_of(place, fleet) as gateway:
            device = Dialler(place, key="")
            assert isinstance(await device.dial(gateway, tls=place.tls(*sound)), Welcome)
            await until(lambda: [one.dial.device for one in fleet.devices.all] == ["jetson-7"])
            named = Dialler(place, key="", name="jetson-8")
            assert isinstance(await named.dial(gateway, tls=place.tls(*sound)), Welcome)
            assert {one.dial.device for one in fleet.devices.all} == {"jetson-7", "jetson-7/jetson-8"}
            for files in (other, expired):
                refused = Dialler(place, key="")
                with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
                    await refused.dial(gateway, tls=place.tls(*files))
                await refused.close()
            gone = Dialler(place, key="")
            last = await gone.dial(gateway, tls=place.tls(*revoked))
            assert isinstance(last, Refused)
            assert last.code is RefusalCode.REVOKED
            for each in (device, named, gone):
                await each.close()

    asyncio.run(within(SOON_S, run()))


def test_another_ca_fences_what_the_former_one_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.gateway.gateway.RELOAD_S", 0.05)
    monkeypatch.setattr(listener, "_SETTLE_S", 0.01)
    own, next_ = Authority(tmp_path), Authority(tmp_path, "next")
    before, after = own.issued("jetson-7"), next_.issued("jetson-8")

    async def run() -> None:
        place, fleet = Place.made(tmp_path / "gateway", client_ca=str(own.file)), DirectFleet()
        async with gateway_of(place, fleet) as gateway:
            device, newer = Dialler(place, key=""), Dialler(place, key="")
            assert isinstance(await device.dial(gateway, tls=place.tls(*before)), Welcome)
            await until(lambda: len(fleet.devices.all) == 1)
            own.file.write_bytes(next_.file.read_bytes())
            await until(lambda: [getattr(one, "code", None) for one in device.heard] == [RefusalCode.BUSY])
            assert isinstance(await newer.dial(gateway, tls=place.tls(*after)), Welcome)
            with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
                await device.dial(gateway, tls=place.tls(*before))
            await device.close()
            await newer.close()

    asyncio.run(within(SOON_S, run()))


def test_a_ca_that_is_added_has_devices_prove_anew_and_ends_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.gateway.gateway.RELOAD_S", 0.05)
    monkeypatch.setattr(listener, "_SETTLE_S", 0.3)
    own, next_ = Authority(tmp_path), Authority(tmp_path, "next")
    files, both = own.issued("jetson-7"), own.file.read_bytes() + next_.file.read_bytes()

    async def run() -> None:
        place, fleet = Place.made(tmp_path / "gateway", client_ca=str(own.file)), DirectFleet()
        async with gateway_of(place, fleet) as gateway:
            device = Dialler(place, key="")
            assert isinstance(await device.dial(gateway, tls=place.tls(*files)), Welcome)
            for written in (both[:-200], both[:-100]):  # slowly
                own.file.write_bytes(written)
                await asyncio.sleep(0.2)
            assert device.heard == []
            own.file.write_bytes(both)
            await until(lambda: bool(device.heard))
            (last,) = device.heard
            assert isinstance(last, Refused)
            assert (last.code, last.retry_after_s) == (RefusalCode.BUSY, 1)
            assert isinstance(await device.dial(gateway, tls=place.tls(*files)), Welcome)
            assert [what for what, _ in fleet.happened] in (["joined"], ["joined", "away"])
            await device.close()

    asyncio.run(within(SOON_S, run()))


@pytest.mark.parametrize(
    ("peer", "header", "name"),
    [
        ("10.0.0.7", "CN=jetson-7,O=lab", "jetson-7"),
        ("10.0.0.7", r"OU=a/CN=evil, O=a\,CN=evil+CN=jetson-7", "jetson-7"),
        ("10.0.0.7", "emailAddress=a@lab.example,2.5.4.3=jetson-7", "jetson-7"),
        ("10.0.0.7", "/O=lab/CN=jetson-7", None),  # what is written so may have /CN= in any value
        ("10.0.0.7", r"O=a\,CN=jetson-7", None),
        ("10.0.0.7", r"O=a\\,CN=jetson-7,CN=evil", None),
        ("10.0.0.7", 'O="a,CN=jetson-7,b"', None),
        ("10.0.0.7", "CN=jetson-7,O", None),
        ("10.0.0.7", r"CN=\6aetson-7", None),
        ("::ffff:10.0.0.7", "jetson-7", "jetson-7"),
        ("10.0.1.7", "CN=jetson-7", None),
        ("", "CN=jetson-7", None),
        ("no address", "CN=jetson-7", None),
        ("10.0.0.7", "CN=../../etc", None),
        ("10.0.0.7", "CN=" + "x" * 5000, None),
        ("10.0.0.7", "", None),
    ],
    ids=str,
)
def test_a_header_is_believed_of_configured_proxies_alone(peer: str, header: str, name: str | None) -> None:
    identities = Identities(GatewayConfig(proxies=("10.0.0.0/24",), identity_header="x-device"))
    expected = None if name is None else DeviceIdentity(name)
    assert identities.of(peer, {"x-device": header}, None) == expected


def test_a_header_is_believed_only_if_it_is_the_proxys_and_was_verified() -> None:
    header, verify = (NGINX, "CN=jetson-7"), "SSL-Client-Verify"
    identities = Identities(GatewayConfig(proxies=("10.0.0.7",), identity_header=header[0]))

    def found(*headers: tuple[str, str]) -> DeviceIdentity | None:
        return identities.of("10.0.0.7", dict(headers), None)

    assert found(header) == found(header, (verify, "SUCCESS")) == DeviceIdentity("jetson-7")
    for more in ((header[0].upper(), "CN=evil"), (verify, "NONE"), (verify, "FAILED:self-signed")):
        assert found(header, more) is None
    assert found(header, (verify, "SUCCESS"), (verify.lower(), "FAILED")) is None


@pytest.mark.parametrize(
    "config",
    [GatewayConfig(), GatewayConfig(identity_header=NGINX), GatewayConfig(proxies=("10.0.0.7",))],
    ids=["neither", "no proxy", "no header"],
)
def test_without_both_a_proxy_and_its_header_nobody_is_named_by_one(config: GatewayConfig) -> None:
    assert Identities(config).of("10.0.0.7", {NGINX: "CN=jetson-7"}, None) is None


def test_a_certificate_without_a_name_is_nobodys(tmp_path: Path) -> None:
    file, _ = Authority(tmp_path).issued("a name with spaces")
    identities = Identities(GatewayConfig())
    assert identities.of("10.0.0.7", {}, der(file)) is None
    assert identities.of("10.0.0.7", {}, b"no certificate") is None


@pytest.mark.parametrize("field", ["certificate", "private_key", "client_ca"])
def test_files_that_cannot_be_used_are_told(field: str, tmp_path: Path) -> None:
    place = Place.made(tmp_path)
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"gateway\.(certificate|client_ca) needs a PEM file"):
        tls_context(replace(place.config, **{field: str(broken)}))  # type: ignore[arg-type]  # of each case
