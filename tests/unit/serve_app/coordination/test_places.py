"""Places of one coordinator: what its heartbeats say is what it holds, whoever uses it."""

from actors.messages import CoordinatorReport, DrafterId, FleetNews, FleetSettings, Heartbeat
from serve_app.coordination.places import Places

FIRST, SECOND = DrafterId("edge", 0), DrafterId("edge", 1)
SETTINGS = FleetSettings((), "target", "tokens", 1.0)


def beat(places: Places) -> Heartbeat:
    return places.heartbeat(CoordinatorReport(places.owner, "ready", 1.0), SETTINGS)


def news(heartbeat: Heartbeat, most_spare: int | None, *given: DrafterId) -> FleetNews:
    places = tuple((name, drafter, None) for name, drafter in zip(heartbeat.wanted, given, strict=False))
    return FleetNews(1, None, 1.0, most_spare, places)


def with_two_at_hand() -> Places:
    places = Places("c")
    for name in "gh":
        assert places.take(name, (), None) is None
    places.heard(news(beat(places), 4))
    places.heard(news(beat(places), 4, FIRST, SECOND))
    assert (places.at_hand, places.in_use) == (2, 0)
    return places


def test_without_leave_every_generation_asks_and_is_given_back() -> None:
    places = Places("c")
    assert places.take("g", (), None) is None
    assert places.asks("g", None)
    assert beat(places).held == {"g": None}, "no heartbeat ends it meanwhile"
    places.answered("g", None, None)
    assert places.asks("g", None), "and again, as often as it likes"
    places.answered("g", None, (FIRST, None))
    heartbeat = beat(places)
    assert (heartbeat.held, heartbeat.wanted, heartbeat.spare) == ({"g": FIRST}, (), frozenset())
    assert places.release("g")
    assert beat(places).held == {}


def test_as_many_are_wanted_as_were_taken_and_are_allowed() -> None:
    places = Places("c")
    for name in "ghi":
        places.take(name, (), None)
    places.heard(news(beat(places), 2))
    heartbeat = beat(places)
    assert len(heartbeat.wanted) == 2
    places.heard(news(heartbeat, 2, FIRST))
    later = beat(places)
    assert len(later.wanted) == 1
    assert not set(later.wanted) & set(heartbeat.wanted), "no name is used twice"
    assert (later.held, later.spare) == (dict.fromkeys(later.spare, FIRST), frozenset(heartbeat.wanted[:1]))
    for _ in range(20):
        places.heard(news(beat(places), 2))
    assert (beat(places).held, places.at_hand) == ({}, 0), "nobody has come for long"


def test_who_has_asked_in_vain_waits_for_the_next_heartbeat() -> None:
    places = with_two_at_hand()
    assert places.take("i", (FIRST, SECOND), None) is None
    assert places.asks("i", None)
    places.answered("i", None, None)
    assert not places.asks("i", None)
    assert places.asks("i", frozenset({"edge"})), "of other groups nobody knows"
    places.answered("i", frozenset({"edge"}), None)
    beat(places)
    assert places.asks("i", None)


def test_a_generation_that_parts_with_its_drafter_leaves_no_place_behind() -> None:
    places = with_two_at_hand()
    assert places.take("i", (), None) == (FIRST, None)
    places.lost(FIRST)
    assert places.take("i", (FIRST,), None) == (SECOND, None)
    assert beat(places).held == {"i": SECOND}
    assert not places.release("i")
    assert (beat(places).held, places.at_hand) == ({"i": SECOND}, 1)
    assert places.take("k", (), None) == (SECOND, None), "whatever its name was"
    assert (beat(places).held, places.in_use) == ({"k": SECOND}, 1)


def test_surplus_is_given_back_once_less_is_allowed() -> None:
    places = with_two_at_hand()
    places.heard(news(beat(places), 1))
    assert len(beat(places).held) == 1
    places.heard(news(beat(places), None))
    assert beat(places).held == {}
