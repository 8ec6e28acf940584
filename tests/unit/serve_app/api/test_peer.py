"""The address that a request is counted to: believed of trusted proxies only."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.api.peer import peer_address

PROXIES = ("10.0.0.0/8", "2001:db8:1::1")


def scope(client: str | None, *forwarded: str) -> dict[str, Any]:
    headers = [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded]
    return {"type": "http", "client": None if client is None else (client, 1), "headers": headers}


@pytest.mark.parametrize(
    ("client", "forwarded", "expected"),
    [
        ("192.0.2.1", (), "192.0.2.1"),
        ("192.0.2.1", ("198.51.100.7",), "192.0.2.1"),  # no proxy of ours
        ("10.0.0.1", ("198.51.100.7",), "198.51.100.7"),
        ("10.0.0.1", ("203.0.113.9, 198.51.100.7",), "198.51.100.7"),  # the first one is the client's own word
        ("10.0.0.1", ("203.0.113.9, 198.51.100.7, 10.2.3.4",), "198.51.100.7"),  # two proxies of ours
        ("10.0.0.1", ("203.0.113.9", "198.51.100.7"), "198.51.100.7"),  # two lines are one list
        ("10.0.0.1", ("10.0.0.2, 10.0.0.3",), "10.0.0.2"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("",), "10.0.0.1"),
        ("10.0.0.1", ("unknown",), "10.0.0.1"),
        ("10.0.0.1", ("198.51.100.7:5000",), "198.51.100.7"),
        ("10.0.0.1", ("[2001:db8:2::7]:5000",), "2001:db8:2::/64"),
        ("2001:db8:1::1", ("198.51.100.7",), "198.51.100.7"),
        ("2001:db8:1::2", ("198.51.100.7",), "2001:db8:1::/64"),  # a trusted address is no trusted network
        ("::ffff:192.0.2.1", (), "192.0.2.1"),
        ("::ffff:10.0.0.1", ("198.51.100.7",), "198.51.100.7"),
        ("::1", ("198.51.100.7",), "::1"),
        (None, ("198.51.100.7",), ""),
        ("testclient", (), "testclient"),
    ],
)
def test_the_address(client: str | None, forwarded: tuple[str, ...], expected: str) -> None:
    assert peer_address(scope(client, *forwarded), PROXIES) == expected


def test_addresses_of_one_ipv6_site_are_one() -> None:
    found = {peer_address(scope(f"2001:db8:3::{number:x}")) for number in range(1, 100)}
    assert found == {"2001:db8:3::/64"}


@given(st.text(st.characters(max_codepoint=255), max_size=200))
def test_whatever_a_stranger_forwards_changes_nothing(forwarded: str) -> None:
    assert peer_address(scope("192.0.2.1", forwarded), PROXIES) == "192.0.2.1"


@given(st.text(st.characters(max_codepoint=255), max_size=200))
def test_what_a_client_writes_is_not_believed_behind_a_proxy(forwarded: str) -> None:
    assert peer_address(scope("10.0.0.1", f"{forwarded},198.51.100.7"), PROXIES) == "198.51.100.7"
