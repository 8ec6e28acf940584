"""What connections have carried: real sockets, and what the kernel's own form says."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from actors.tcp_counts import Carried, TcpConnection, answered, carried, connections, grown, read_connection

TCP_AND_IPV4, TIMESTAMPS = 40, 12


@contextmanager
def connected(host: str, called: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends: who called, and who was."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        caller = socket.socket(socket.AF_INET6 if ":" in called else socket.AF_INET)
        with caller:
            caller.connect((called, server.getsockname()[1]))
            accepted, _ = server.accept()
            with accepted:
                yield caller, accepted


def say(sender: socket.socket, receiver: socket.socket, size: int) -> None:
    sender.sendall(bytes(size))
    while size:
        size -= len(receiver.recv(size))


def address(end: socket.socket) -> tuple[str, int]:
    """Its own, IPv4 as such."""
    host, port = end.getsockname()[:2]
    return host.removeprefix("::ffff:"), port


def of(end: socket.socket, host: str) -> Carried:
    return connections()[TcpConnection((host, end.getsockname()[1]), (host, end.getpeername()[1]))]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_one_end_has_received_what_the_other_has_sent(host: str) -> None:
    with connected(host, host) as (caller, called):
        before = of(caller, host)
        say(caller, called, 300_000)
        say(called, caller, 10)
        told, other = of(caller, host), of(called, host)
        assert told.sent_bytes == other.received_bytes
        grown = told.since(before)
        assert grown.sent_bytes >= 300_000 + grown.sent_segments * TCP_AND_IPV4, "each segment has its headers"
        assert 10 + TCP_AND_IPV4 <= grown.received_bytes < 5_000
        assert grown.resent_segments == 0
        assert other.sent_segments == 1


def test_ipv4_is_called_so_whatever_socket_carries_it() -> None:
    with connected("127.0.0.1", "::ffff:127.0.0.1") as (caller, called):
        say(caller, called, 1)
        assert of(caller, "127.0.0.1").sent_bytes == of(called, "127.0.0.1").received_bytes


@pytest.mark.parametrize(("host", "called_as"), [("127.0.0.1",) * 2, ("::1",) * 2, ("127.0.0.1", "::ffff:127.0.0.1")])
def test_one_connection_is_read_as_all_are(host: str, called_as: str) -> None:
    with connected(host, called_as) as (caller, called):
        say(caller, called, 300)
        for end in (caller, called):
            told = read_connection(end.fileno())
            assert told is not None
            assert told == of(end, host)
            assert told + told.since(told) == told
    assert read_connection(end.fileno()) is None, "it is closed"
    near, far = socket.socketpair()
    with near, far:
        assert read_connection(near.fileno()) is None


def test_what_is_closed_or_listens_or_is_no_connection_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = server.getsockname()
        with connected("127.0.0.1", "127.0.0.1") as (caller, _):
            connection = TcpConnection(caller.getsockname(), caller.getpeername())
            assert connection in connections()
        assert connection not in connections()
        assert own not in {each.own for each in connections()}


@pytest.mark.parametrize(
    ("host", "called_as"), [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "::ffff:127.0.0.1"), ("::1", "::1")]
)
def test_who_was_called_is_told_from_who_calls(host: str, called_as: str) -> None:
    with (
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server,
        socket.socket(socket.AF_INET6 if ":" in called_as else socket.AF_INET) as caller,
    ):
        caller.connect((called_as, server.getsockname()[1]))
        accepted, _ = server.accept()
        with accepted:
            say(accepted, caller, 7)
            calls, was_called = (
                TcpConnection(address(one), address(other)) for one, other in ((caller, accepted), (accepted, caller))
            )
            assert {calls, was_called} <= connections().keys()
            assert was_called in answered()
            assert calls not in answered()
            assert answered()[was_called].sent_segments == 1
        assert was_called not in answered()


def test_one_that_counts_less_than_before_is_another() -> None:
    one, other, third = (TcpConnection(("10.0.0.1", 1), ("10.0.0.2", port)) for port in (2, 3, 4))
    before = {one: Carried(10, 10, 10, 1), other: Carried(10, 10, 10, 1), third: Carried(1, 1, 1, 1)}
    now = {one: Carried(12, 10, 11, 1), other: Carried(12, 9, 11, 1)}
    assert grown(now, before) == {one: Carried(2, 0, 1, 0), other: Carried(12, 9, 11, 1)}


def test_nobodys_socket_is_closed_by_being_looked_at() -> None:
    one, other = socket.socketpair()
    with one, other, connected("127.0.0.1", "127.0.0.1") as (caller, called):
        for _ in range(3):
            connections()
            answered()
        say(one, other, 3)
        say(caller, called, 5)


def test_the_kernels_form_is_read_at_its_places() -> None:
    info = bytearray(range(208))
    info[5] = 1  # timestamps
    for place, form, value in (
        (100, "=I", 7),  # tcpi_total_retrans
        (128, "=Q", 1_000),  # tcpi_bytes_received
        (136, "=I", 20),  # tcpi_segs_out
        (140, "=I", 9),  # tcpi_segs_in
        (156, "=I", 15),  # tcpi_data_segs_out
        (200, "=Q", 2**33),  # tcpi_bytes_sent
    ):
        struct.pack_into(form, info, place, value)
    header = TCP_AND_IPV4 + TIMESTAMPS
    assert carried(bytes(info), 4) == Carried(2**33 + 20 * header, 1_000 + 9 * header, 15, 7)
    assert carried(bytes(info) + b"of a later kernel", 6) == Carried(
        2**33 + 20 * (header + 20), 1_000 + 9 * (header + 20), 15, 7
    )
    info[5] = 0
    assert carried(bytes(info), 4) == Carried(2**33 + 20 * 40, 1_000 + 9 * 40, 15, 7)
    assert carried(bytes(info[:-1]), 4) is None, "an older kernel does not count this"
