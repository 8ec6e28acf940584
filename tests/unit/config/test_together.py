"""Settings of several sections that only make sense together, in a file, beside it, and where nothing is made."""

import argparse
import re
from pathlib import Path

import pytest

from cluster.options import read_config
from outrider.config.reading import parse_config
from outrider.contracts.errors import ConfigError
from serve_app.app import config_of

DIALLED = "drafters: [{name: far, from: gateway, engine: onnx}]"
EXPORTED = "[{name: a, engine: onnx, model: a.onnx}]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            DIALLED,
            "gateway.port needs a port such as 8443, for far (from: gateway), found None",
        ),
        (f"{DIALLED}\ngateway: {{certificate: a, private_key: b, devices_file: c}}", "gateway.port needs a port"),
        (
            "gateway: {port: 8443, identity_header: ssl-client-subject-dn}",
            "gateway.proxies needs who identity_header is believed of, found ()",
        ),
        (
            f"speculation: {{protocols: [dsd]}}\ndrafters: {EXPORTED}",
            "speculation.protocols needs token_ids, ",
        ),
        (
            f"speculation: {{policy: fixed, window: 4, protocols: [dsd, token_ids]}}\ndrafters: {EXPORTED}",
            "speculation.protocols needs token_ids, as first where policy is fixed",
        ),
        (
            "http: {host: 0.0.0.0, allowed_hosts: [a.b]}",
            "http.allowed_hosts needs none where http.host is not loopback",
        ),
        ("http: {host: '::', allowed_hosts: ['*']}", "http.allowed_hosts needs none"),
    ],
)
def test_what_lacks_its_other_half_is_told_with_what_to_do(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        parse_config(text, "f").check_together()


@pytest.mark.parametrize(
    "text",
    [
        f"{DIALLED}\ngateway: {{port: 8443}}",
        "gateway: {certificate: a, private_key: b}",  # turned off
        "gateway: {port: 8443}",  # `outrider serve` adds the group
        "speculation: {protocols: [dsd]}\ndrafters: [{name: a, engine: onnx, model: a.onnx}, {name: b}]",
        "speculation: {protocols: [dsd]}\ndrafters: [{name: a, engine: onnx, model: a.onnx, count: 0}]",
        "http: {host: localhost, allowed_hosts: [a.b]}",
    ],
)
def test_what_is_whole_or_off_is_read(text: str) -> None:
    parse_config(text, "f").check_together()


def test_the_other_half_may_be_in_an_argument(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(DIALLED, encoding="utf-8")
    given = argparse.Namespace(config=str(file), assignments=["gateway.port=8443"])
    assert read_config(given).gateway.port == 8443
    assert read_config(argparse.Namespace(config=str(file), assignments=[]), checks=False).drafters, "to remove it"
    for assignments in ([], ["gateway.count=2"]):
        with pytest.raises(ConfigError, match=r"gateway\.port needs a port such as 8443"):
            read_config(argparse.Namespace(config=str(file), assignments=assignments))


@pytest.mark.parametrize(
    ("gateway", "told"),
    [
        ({}, "gateway.certificate needs a PEM file"),
        ({"certificate": "a", "private_key": "b"}, "gateway.devices_file needs a file, or client_ca: who may dial"),
        (
            {"certificate": "a", "private_key": "b", "devices_file": "c"},
            "gateway.count needs a group from: gateway, or no gateway.port, found 1",
        ),
    ],
    ids=str,
)
def test_a_cluster_makes_nothing_that_its_gateway_lacks(gateway: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        config_of({"config": {"gateway": {"port": 8443, **gateway}}})
