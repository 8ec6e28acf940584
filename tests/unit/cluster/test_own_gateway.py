"""What `outrider serve` makes for a gateway: a CA that stays, a certificate, a device key, a group, and one line."""

import base64
import ssl
import stat
import subprocess
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from actors.gateway.addresses import dialled_address
from actors.gateway.listener import tls_context
from cluster.own_gateway import GROUP, with_gateway
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.gateway import GatewayConfig
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.tenants.devices import decode_devices
from outrider.wire.dialling import is_name

CONFIG = Config(gateway=GatewayConfig(port=8443, address="gateway.example"))


def test_without_a_port_nothing_changes(tmp_path: Path) -> None:
    assert with_gateway(Config(), tmp_path) == (Config(), None)
    assert list(tmp_path.iterdir()) == []


def test_what_is_made_stays_private_and_works(tmp_path: Path) -> None:
    config, line = with_gateway(CONFIG, tmp_path / "gateway")
    assert line is not None
    gateway = config.gateway
    assert tls_context(gateway).minimum_version is ssl.TLSVersion.TLSv1_3
    dials, _, name = line.rpartition(" --name ")
    assert dials.endswith(
        "outrider-edge --connect wss://gateway.example:8443 --ca outrider-ca.pem --key-file outrider-device.key"
    )
    host = subprocess.run(["sh", "-c", f"printf %s {name}"], capture_output=True, check=True, text=True).stdout  # noqa: S607
    assert is_name(host)
    assert host
    ca = base64.b64decode(line.split()[1])
    ssl.create_default_context(cadata=ca.decode())
    key = (tmp_path / "gateway" / "device.key").read_text()
    assert f"echo {key} >" in line
    assert gateway.devices_file is not None
    devices = Path(gateway.devices_file).read_bytes()
    assert decode_devices(devices, "f").named(key) == "device"
    assert key.encode() not in devices
    assert sha256(key.encode()).hexdigest().encode() in devices
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "gateway").iterdir()}
    assert modes == {0o600}
    assert with_gateway(CONFIG, tmp_path / "gateway")[1] == line, "so that devices know it again"


def test_what_is_revoked_stays_so_when_it_starts_again(tmp_path: Path) -> None:
    with_gateway(CONFIG, tmp_path)
    devices, key = tmp_path / "devices.yaml", tmp_path / "device.key"
    first = key.read_text()
    devices.write_text("revoked: [device]", encoding="utf-8")
    with_gateway(CONFIG, tmp_path)
    assert decode_devices(devices.read_bytes(), "f").named(first) is None
    key.unlink()
    with_gateway(CONFIG, tmp_path)
    known = decode_devices(devices.read_bytes(), "f")
    assert (known.named(first), known.named(key.read_text())) == (None, "device")


def test_what_is_configured_stays(tmp_path: Path) -> None:
    own = with_gateway(CONFIG, tmp_path)[0].gateway
    config, line = with_gateway(replace(CONFIG, gateway=replace(own, client_ca="ca.pem", devices_file=None)), tmp_path)
    assert line == "outrider-edge --connect wss://gateway.example:8443"
    assert (config.gateway.certificate, config.gateway.devices_file) == (own.certificate, None)


def test_devices_that_dial_in_draft_with_the_model_of_the_first_group(tmp_path: Path) -> None:
    config, _ = with_gateway(CONFIG.on_own_host(), tmp_path)
    first, added = config.drafters
    assert (added.name, added.model, added.dials_in, added.trusted) == (GROUP, first.model, True, False)
    far = DrafterGroupConfig(name="far", from_="gateway", engine="onnx")
    assert with_gateway(replace(CONFIG, drafters=(far,)), tmp_path)[0].drafters == (far,)
    with pytest.raises(ConfigError, match="drafters needs a group from: gateway"):
        with_gateway(replace(CONFIG, drafters=()), tmp_path)


@pytest.mark.parametrize(
    ("address", "dialled"),
    [
        ("host", "host:8443"),
        ("host:443", "host:443"),
        ("10.0.0.7", "10.0.0.7:8443"),
        ("::1", "[::1]:8443"),
        ("[::1]", "[::1]:8443"),
        ("[::1]:443", "[::1]:443"),
    ],
)
def test_an_address_has_the_gateways_port_unless_it_has_its_own(address: str, dialled: str) -> None:
    assert dialled_address(GatewayConfig(address=address), 8443) == dialled


def test_services_of_one_user_have_their_own_certificates_and_one_ca(tmp_path: Path) -> None:
    first, _ = with_gateway(CONFIG, tmp_path)
    assert first.gateway.certificate is not None
    before = Path(first.gateway.certificate).read_bytes()
    other = replace(CONFIG, gateway=GatewayConfig(port=8444, address="127.0.0.1"))
    second, line = with_gateway(other, tmp_path)
    assert Path(first.gateway.certificate).read_bytes() == before
    assert second.gateway.certificate != first.gateway.certificate
    assert line is not None
    ca = (tmp_path / "ca.pem").read_bytes()
    assert base64.b64encode(ca).decode() in line
