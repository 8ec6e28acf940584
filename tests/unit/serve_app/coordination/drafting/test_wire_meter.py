"""What crosses the wire to drafters: each byte once, in its group, whenever it was found out whose it is."""

import socket
from typing import Any

import pytest

from actors.messages import DrafterId
from actors.tcp_counts import Address, Carried, TcpConnection, connections
from serve_app.coordination.drafting.wire_meter import WireMeter

EDGE, LAB = DrafterId("edge", 0), DrafterId("lab", 0)
OWN, FIRST, SECOND, ELSEWHERE = (("10.0.0.1", 40_000 + i) for i in range(4))


class Head:
    """Knows where actors listen; a handle is a drafter's name here."""

    def __init__(self, **places: Address) -> None:
        self.places, self.asked = places, list[str]()

    def __call__(self, handle: Any) -> Address | None:
        self.asked.append(handle)
        return self.places.get(handle)


def made(head: Head) -> tuple[WireMeter, dict[TcpConnection, Carried]]:
    table: dict[TcpConnection, Carried] = {}
    return WireMeter(head, lambda: dict(table)), table


def test_what_was_carried_before_the_drafter_was_placed_is_counted_and_everything_once() -> None:
    meter, table = made(Head(edge=FIRST, lab=SECOND))
    table[TcpConnection(OWN, FIRST)] = Carried(100, 50, 3, 1)
    table[TcpConnection(OWN, ELSEWHERE)] = Carried(7, 7, 7, 7)
    meter.note_lease(EDGE, "edge")
    assert meter.look() == {}
    meter.place()
    assert meter.look() == {"edge": Carried(100, 50, 3, 1)}
    assert meter.look() == {"edge": Carried()}
    table[TcpConnection(OWN, FIRST)] = Carried(130, 60, 4, 2)
    table[TcpConnection(OWN, SECOND)] = Carried(5, 6, 1, 0)
    meter.note_lease(LAB, "lab")
    meter.place()
    assert meter.look() == {"edge": Carried(30, 10, 1, 1), "lab": Carried(5, 6, 1, 0)}


def test_a_drafters_stream_is_counted_beside_what_ray_carries_to_it() -> None:
    meter, table = made(Head(edge=FIRST))
    table |= {TcpConnection(OWN, FIRST): Carried(100, 10, 3, 0), TcpConnection(OWN, SECOND): Carried(1, 2, 3, 4)}
    meter.note_lease(EDGE, "edge")
    meter.place()
    meter.note_stream(EDGE, SECOND)
    assert meter.look() == {"edge": Carried(101, 12, 6, 4)}
    meter.note_stream(EDGE, ELSEWHERE)
    table[TcpConnection(OWN, ELSEWHERE)] = Carried(5, 5, 5, 5)
    assert meter.look() == {"edge": Carried(5, 5, 5, 5)}


def test_the_head_is_not_asked_again_while_a_drafters_stream_is_open() -> None:
    """Ray closes a connection over which nothing goes."""
    head = Head(edge=FIRST)
    meter, table = made(head)
    meter.note_lease(EDGE, "edge")
    meter.place()
    meter.note_stream(EDGE, SECOND)
    table[TcpConnection(OWN, SECOND)] = Carried(1, 2, 3, 4)
    for _ in range(3):
        meter.look()
        meter.note_lease(EDGE, "edge")
        meter.place()
    assert len(head.asked) == 1
    meter.note_stream(EDGE, ELSEWHERE)  # it was restarted
    table[TcpConnection(OWN, ELSEWHERE)] = Carried(1, 2, 3, 4)
    meter.look()
    meter.note_lease(EDGE, "edge")
    meter.place()
    assert len(head.asked) == 2


def test_a_port_is_counted_for_the_drafter_that_listens_there_now() -> None:
    meter, table = made(Head())
    for drafter in (EDGE, LAB, EDGE):
        meter.note_stream(drafter, FIRST)
    table[TcpConnection(OWN, FIRST)] = Carried(1, 2, 3, 4)
    assert meter.look() == {"edge": Carried(1, 2, 3, 4)}


def test_two_connections_add_up_and_one_that_was_opened_anew_counts_from_its_beginning() -> None:
    meter, table = made(Head(edge=FIRST))
    again = TcpConnection(("10.0.0.1", 50_000), FIRST)
    table |= {TcpConnection(OWN, FIRST): Carried(100, 10, 3, 0), again: Carried(1, 2, 3, 4)}
    meter.note_lease(EDGE, "edge")
    meter.place()
    assert meter.look() == {"edge": Carried(101, 12, 6, 4)}
    table[again] = Carried(1, 1, 1, 0)
    del table[TcpConnection(OWN, FIRST)]
    assert meter.look() == {"edge": Carried(1, 1, 1, 0)}
    table[again] = Carried(3, 1, 1, 0)
    assert meter.look() == {"edge": Carried(2)}


def test_the_head_is_asked_for_what_is_not_known_and_not_again_and_again() -> None:
    head = Head(edge=FIRST)
    meter, table = made(head)
    for _ in range(3):
        meter.note_lease(EDGE, "edge")
        meter.look()
        meter.place()
    assert head.asked == ["edge"] * 3, "no connection is there yet"
    table[TcpConnection(OWN, FIRST)] = Carried(1, 1, 1, 0)
    meter.look()
    meter.note_lease(EDGE, "edge")
    meter.place()
    meter.place()
    assert len(head.asked) == 3
    head.places["edge"] = SECOND  # it was restarted
    table.clear()
    meter.look()
    meter.place()
    assert len(head.asked) == 3, "nobody calls it"
    meter.note_lease(EDGE, "edge")
    meter.place()
    table[TcpConnection(OWN, SECOND)] = Carried(9, 9, 9, 0)
    assert meter.look() == {"edge": Carried(9, 9, 9, 0)}


def test_many_that_are_new_do_not_keep_the_head_busy() -> None:
    head = Head()
    meter, _ = made(head)
    for index in range(20):
        meter.note_lease(DrafterId("edge", index), str(index))
    meter.place()
    assert len(head.asked) == 8
    for _ in range(5):
        meter.place()
    assert sorted(head.asked, key=int) == [str(index) for index in range(20)], "each is asked for once"


def test_a_head_that_is_away_keeps_nothing_from_being_counted() -> None:
    answers: list[ConnectionError | Address] = [ConnectionError("away"), FIRST]

    def head(_: Any) -> Address | None:
        answer = answers.pop(0)
        if isinstance(answer, ConnectionError):
            raise answer
        return answer

    meter = WireMeter(head, lambda: {TcpConnection(OWN, FIRST): Carried(1, 1, 1, 0)})
    meter.note_lease(EDGE, "edge")
    with pytest.raises(ConnectionError):
        meter.place()
    assert meter.look() == {}
    meter.place()
    assert meter.look() == {"edge": Carried(1, 1, 1, 0)}


def test_of_this_process_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        meter = WireMeter(lambda _: server.getsockname(), connections)
        with socket.create_connection(server.getsockname()) as caller, server.accept()[0] as called:
            meter.note_lease(EDGE, "edge")
            meter.place()
            before = meter.look()["edge"]
            caller.sendall(bytes(1_000))
            assert called.recv(2_000) == bytes(1_000)
            grown = meter.look()["edge"]
    assert before.sent_bytes > 0, "its opening"
    assert (grown.sent_segments, grown.resent_segments) == (1, 0)
    assert 1_000 + 40 <= grown.sent_bytes <= 1_000 + 3 * 60
