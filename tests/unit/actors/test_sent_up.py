"""What devices say to have sent up: real sockets at their end, and at the fleet's nothing that a lie could break."""

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import DrafterId
from actors.sent_up import FleetSegments, SentMeter
from actors.tcp_counts import Carried, TcpConnection, answered
from outrider.wire.replies import SentSegments

EDGE, BESIDE, LAB = DrafterId("edge", 0), DrafterId("edge", 1), DrafterId("lab", 0)
OWN, ONE, OTHER = (("10.0.0.1", 40_000 + i) for i in range(3))


def told(*words: tuple[DrafterId, Any, Any]) -> dict[str, SentSegments]:
    """What is counted of these words, each a second behind the last."""
    heard = FleetSegments()
    for at_s, (drafter, segments, resent) in enumerate(words):
        heard.hear(drafter, SentSegments(segments, resent), float(at_s))
    return dict(heard.groups)


def test_a_process_counts_what_it_sends_to_who_has_called_it() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as caller,
        server.accept()[0] as called,
    ):
        meter = SentMeter(lambda: {end: counted for end, counted in answered().items() if end.own == ends})
        ends = called.getsockname()
        assert meter.look() == SentSegments(0, 0)
        for size in (1, 2, 3):
            caller.sendall(b"asked" * 9)
            called.recv(45)
            called.sendall(bytes(size))
            caller.recv(size)
        assert meter.look() == SentSegments(3, 0)
        assert meter.look() == SentSegments(3, 0), "since it began"


def test_connections_come_and_go_and_the_sums_only_grow() -> None:
    table: dict[TcpConnection, Carried] = {TcpConnection(OWN, ONE): Carried(sent_segments=5, resent_segments=1)}
    meter = SentMeter(lambda: dict(table))
    assert meter.look() == (5, 1)
    table[TcpConnection(OWN, OTHER)] = Carried(sent_segments=2)
    assert meter.look() == (7, 1)
    del table[TcpConnection(OWN, ONE)]
    assert meter.look() == (7, 1)
    table[TcpConnection(OWN, OTHER)] = Carried(sent_segments=1, resent_segments=1)  # opened anew
    assert meter.look() == (8, 2)


def test_what_a_group_says_adds_up_from_the_first_word_on() -> None:
    assert told((EDGE, 900, 90), (BESIDE, 10, 1), (LAB, 5, 5)) == {}, "the fleet may be younger than they are"
    assert told((EDGE, 900, 90), (BESIDE, 10, 1), (EDGE, 907, 92), (BESIDE, 11, 1), (LAB, 5, 5), (LAB, 5, 5)) == {
        "edge": (8, 2),
        "lab": (0, 0),
    }


def test_a_process_that_begins_anew_is_counted_from_there() -> None:
    assert told((EDGE, 900, 90), (EDGE, 3, 0), (EDGE, 5, 1)) == {"edge": (2, 1)}


@pytest.mark.parametrize("word", [(-1, 0), (9, -1), (10**400, 0)])
def test_what_no_link_carries_is_not_counted(word: tuple[int, int]) -> None:
    assert told((EDGE, 0, 0), (EDGE, *word)).get("edge", (0, 0)) == (0, 0)


def test_no_more_is_sent_again_than_sent() -> None:
    assert told((EDGE, 0, 0), (EDGE, 5, 99)) == {"edge": (5, 5)}


def test_one_that_is_forgotten_begins_anew() -> None:
    heard = FleetSegments()
    heard.hear(EDGE, SentSegments(1, 0), 0.0)
    heard.forget(EDGE)
    heard.forget(EDGE)
    heard.hear(EDGE, SentSegments(50, 0), 1.0)
    assert heard.groups == {}


@given(st.lists(st.tuples(st.sampled_from([EDGE, LAB]), st.integers(-5, 2**70), st.integers(-5, 2**70)), max_size=12))
def test_whatever_is_said_sums_grow_and_never_by_more_than_a_link_carries(
    words: list[tuple[DrafterId, int, int]],
) -> None:
    heard, before, last_at_s = FleetSegments(), dict[str, SentSegments](), dict[DrafterId, float]()
    for at_s, (drafter, segments, resent) in enumerate(words):
        heard.hear(drafter, SentSegments(segments, resent), float(at_s))
        now, then = heard.groups.get(drafter.group, SentSegments()), before.get(drafter.group, SentSegments())
        most = 100_000 * (at_s - last_at_s.get(drafter, at_s))
        assert 0 <= now.resent - then.resent <= now.segments - then.segments <= most
        before[drafter.group] = now
        if segments >= 0 <= resent:
            last_at_s[drafter] = at_s
