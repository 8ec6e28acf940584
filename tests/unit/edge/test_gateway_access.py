import ssl
from pathlib import Path

import pytest

from edge.gateway_access import GatewayAccess, address_of
from outrider.contracts.errors import ConfigError
from tests.unit.edge.certificates import Authority


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("wss://gateway.example:8443", "gateway.example:8443"),
        ("wss://gateway.example/", "gateway.example:443"),
        ("wss://[2001:db8::1]:8443", "[2001:db8::1]:8443"),
    ],
)
def test_an_address_is_of_a_gateway(url: str, address: str) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "ws://a:1",
        "https://a",
        "a:8443",
        "wss://",
        "wss://a:0",
        "wss://a:99999",
        "wss://u@a",
        "wss://a/v1",
        "wss://a?b",
        "wss://[",
        "wss://a b",
    ],
)
def test_what_is_no_gateway_is_told(url: str) -> None:
    with pytest.raises(ConfigError, match="--connect needs wss://host:port"):
        address_of(url)


def test_a_certificate_has_its_key() -> None:
    with pytest.raises(ConfigError, match="--cert, --key needs both or neither"):
        GatewayAccess("a:1", cert=Path("/a"))


@pytest.mark.parametrize("key", ["", "two words", "line\r\nHost: evil", "\x00", "ü", "a" * 1025])
def test_a_key_file_has_one_key(key: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(key, encoding="utf-8")
    with pytest.raises(ConfigError, match="--key-file needs"):
        GatewayAccess("a:1", key_file=file).headers()


def test_a_ca_of_ones_own_is_taken_alike_by_every_python(authority: Authority) -> None:
    """As of 3.13 a CA without all fields of RFC 5280 would be refused, which earlier ones take."""
    context = GatewayAccess("a:1", ca=authority.file).context()
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_files_that_are_no_certificates_are_told(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    for access in (GatewayAccess("a:1", ca=file), GatewayAccess("a:1", cert=file, key=file)):
        with pytest.raises(ConfigError, match="--ca, --cert, --key needs"):
            access.context()
        file.write_text("no certificate", encoding="ascii")
