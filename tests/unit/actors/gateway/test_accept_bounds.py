"""How many connections may be open and be accepted before it is known whose they are."""

import pytest

from actors.gateway.accept_bounds import AcceptBounds


def taken(bounds: AcceptBounds, peer: str, now_s: float = 0.0, tries: int = 1000) -> int:
    return sum(bounds.take(peer, now_s) for _ in range(tries))


def test_an_address_has_some_of_the_places_and_all_together_have_them_all() -> None:
    bounds = AcceptBounds(("10.0.0.7",))
    assert taken(bounds, "192.0.2.1") == 64
    assert taken(bounds, "10.0.0.7") == 512 - 64, "a proxy is many devices"
    assert taken(bounds, "192.0.2.2") == 0
    bounds.give_back("10.0.0.7")
    assert not bounds.take("192.0.2.1", 0.0)
    assert taken(bounds, "192.0.2.2") == 1


def test_an_address_has_half_of_the_rate() -> None:
    bounds = AcceptBounds(())

    def opened_and_closed(peer: str, now_s: float) -> bool:
        if is_taken := bounds.take(peer, now_s):
            bounds.give_back(peer)
        return is_taken

    assert sum(opened_and_closed("192.0.2.1", 5.0) for _ in range(500)) == 100
    assert opened_and_closed("192.0.2.2", 5.5)
    assert not opened_and_closed("192.0.2.1", 5.9)
    assert opened_and_closed("192.0.2.1", 6.0)


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1%eth0", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("", "no address", True),
    ],
)
def test_a_network_of_ipv6_is_one_address(one: str, other: str, are_one: bool) -> None:
    bounds = AcceptBounds(())
    assert taken(bounds, one) == 64
    assert bounds.take(other, 0.0) is not are_one
