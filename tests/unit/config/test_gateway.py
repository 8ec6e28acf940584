"""The section on gateways, groups of devices that dial in, and the file of these devices."""

from dataclasses import replace
from hashlib import sha256
from time import process_time

import pytest

from outrider.config.drafters import DrafterGroupConfig, LinkConfig, StoppingConfig
from outrider.config.gateway import GatewayConfig
from outrider.config.reading import dumped, parse_config, to_yaml
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.tenants.devices import DeviceKey, Devices, decode_devices, read_devices_file

DIALLED = """
drafters:
  - {name: far, from: gateway, engine: onnx, max_devices: 3, devices: [jetson-*, lab]}
gateway: {port: 8443, count: 2, resources: {gateway: 1.0}}
"""
KEY = "a-key-of-a-device-1"


def test_a_group_says_where_its_devices_are_and_who_may_join() -> None:
    config = parse_config(DIALLED, "test")
    (far,) = config.drafters
    assert (far.dials_in, far.drafts, far.actors, far.max_devices) == (True, True, 0, 3)
    assert [far.may_join(name) for name in ("jetson-7", "lab", "lab-2", "")] == [True, True, False, False]
    assert replace(far, devices=None).may_join("anybody")
    assert not DrafterGroupConfig(name="near").may_join("jetson-7")
    assert dumped(config)["drafters"][0]["from"] == "gateway"
    assert parse_config(to_yaml(config), "again") == config


def test_devices_that_dial_in_claim_nothing_of_ray_and_are_not_on_this_machine() -> None:
    config = parse_config(DIALLED, "test").on_own_host()
    assert {name: amount for name, amount in config.custom_resources.items() if amount} == {"gateway": 2.0}
    assert (config.drafter_count, config.drafters[0].trusted) == (0, False)
    assert Config().gateway.actors == 0
    assert Config().on_own_host().drafters[0].trusted


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"engine": "torch"}, "engine needs onnx where from is gateway, found 'torch'"),
        ({"link": LinkConfig(profile="wifi_20m")}, "link needs null where from is gateway"),
        ({"stopping": StoppingConfig("while_it_pays")}, "stopping.rule needs never where from is gateway"),
        ({"from_": "ray", "devices": ("jetson-*",)}, "devices needs null where from is ray"),
        ({"from_": "ray", "max_devices": 8}, "max_devices needs 64 where from is ray, found 8"),
    ],
    ids=str,
)
def test_what_a_device_cannot_be_told_is_refused(more: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DrafterGroupConfig(**{"name": "far", "from_": "gateway", "engine": "onnx", **more})  # type: ignore[arg-type]  # of each case


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gateway: {port: 0}", "gateway.port needs"),
        ("gateway: {certificate: a.pem}", "gateway.private_key needs a file where there is a certificate"),
        ("gateway: {address: 'wss://host'}", "gateway.address needs HOST or HOST:PORT"),
        ("gateway: {address: 'host:0'}", "gateway.address needs HOST or HOST:PORT"),
        ("gateway: {proxies: [everywhere]}", "gateway.proxies needs IP addresses or networks"),
        ("gateway: {identity_header: 'a: b'}", "gateway.identity_header needs"),
        ("drafters: [{name: a, from: afar}]", r"drafters\[0\].from needs"),
    ],
    ids=str,
)
def test_values_that_mean_nothing_are_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_config(text, "test")


def test_a_gateway_knows_devices_by_what_is_configured() -> None:
    assert not GatewayConfig(port=8443).knows_devices
    assert not GatewayConfig(port=8443, proxies=("10.0.0.7",)).knows_devices
    assert all(
        GatewayConfig(**one).knows_devices
        for one in (
            {"client_ca": "ca"},
            {"devices_file": "f"},
            {"proxies": ("10.0.0.7",), "identity_header": "ssl-client-subject-dn"},
        )
    )


def test_a_devices_file_names_keys_and_what_is_revoked() -> None:
    digest, print_of = sha256(KEY.encode()).hexdigest(), "AB:" * 31 + "AB"
    text = f"keys: [{{name: a, key: {KEY}}}, {{name: b, sha256: '{digest[::-1]}'}}]\nrevoked: [gone, '{print_of}']"
    devices = decode_devices(text.encode(), "f")
    assert (devices.named(KEY), devices.named("another-key-of-16")) == ("a", None)
    assert devices.knows(sha256(KEY.encode()).digest())
    assert [devices.is_revoked(*names) for names in (("a", None), ("a", "ab" * 32), ("Gone",))] == [False, True, True]
    assert decode_devices(b"", "f").named(KEY) is None


@pytest.mark.parametrize(
    "text",
    [
        f"keys: [{{name: a, key: {KEY}, sha256: {KEY}}}]",
        f"keys: [{{name: a, {KEY}: 1}}]",
        f"keys: {KEY}",
        f"{KEY}: [",
        "keys: [{name: a, key: short-one}]",
        f"revoked: [{{a: {KEY}}}]",
    ],
    ids=str,
)
def test_no_message_has_a_key(text: str) -> None:
    with pytest.raises(ConfigError) as told:
        decode_devices(text.encode(), "f")
    assert KEY not in str(told.value)
    assert "short-one" not in str(told.value)
    assert told.value.__cause__ is None


def test_a_devices_file_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match=r"gateway\.devices_file"):
        read_devices_file("/nowhere/devices.yaml")


def test_each_of_many_devices_is_looked_up_at_once() -> None:
    digests = [sha256(str(i).encode()).digest() for i in range(5000)]
    devices = Devices([DeviceKey(f"d{i}", sha256=digest.hex()) for i, digest in enumerate(digests)])
    began_s = process_time()
    assert all(map(devices.knows, digests))
    assert process_time() - began_s < 0.5
