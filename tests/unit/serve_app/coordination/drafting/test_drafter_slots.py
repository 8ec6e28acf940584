"""Places of one coordinator: what its heartbeats say is what it holds, whoever uses it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from actors.fleet.coordinators import Coordinators, Held
from actors.heartbeats import FleetNews, Heartbeat
from actors.messages import CoordinatorReport, DrafterId, FleetSettings
from serve_app.coordination.drafting.drafter_slots import DrafterSlots

FIRST, SECOND = DrafterId("edge", 0), DrafterId("edge", 1)
SETTINGS = FleetSettings((), "target", "tokens")


class Heard:
    """A coordinator's places, and what the fleet makes of its heartbeats."""

    def __init__(self) -> None:
        self.places, self.fleet = DrafterSlots("c"), Coordinators(1e9, 0)
        self.held: Held | None = None

    def beat(self) -> Heartbeat:
        """One more, which the fleet takes in."""
        heartbeat = self.places.heartbeat(CoordinatorReport("c", "ready", 1.0), SETTINGS)
        word = self.fleet.hear(heartbeat, 0.0)
        self.held = None if word is None else dict(word.held)
        return heartbeat

    def says(self) -> Held | None:
        """All that it holds, as the fleet understands its next heartbeat."""
        self.beat()
        return self.held


def news(heartbeat: Heartbeat, most_spare: int | None, *given: DrafterId) -> FleetNews:
    places = tuple((name, drafter, None) for name, drafter in zip(heartbeat.wanted, given, strict=False))
    return FleetNews((1, 1), 1.0, most_spare=most_spare, places=places)


def with_two_at_hand() -> Heard:
    heard = Heard()
    places = heard.places
    for name in "gh":
        assert places.take(name, (), None) is None
    places.heard(news(heard.beat(), 4))
    places.heard(news(heard.beat(), 4, FIRST, SECOND))
    assert (places.at_hand, places.in_use) == (2, 0)
    return heard


def test_without_leave_every_generation_asks_and_is_given_back() -> None:
    heard = Heard()
    places = heard.places
    assert places.take("g", (), None) is None
    assert places.begin_lease("g", None)
    assert heard.says() == {"g": None}, "no heartbeat ends it meanwhile"
    places.answered("g", None, None)
    assert places.begin_lease("g", None), "and again, as often as it likes"
    places.answered("g", None, (FIRST, None))
    heartbeat = heard.beat()
    assert (heard.held, heartbeat.wanted, heartbeat.spare) == ({"g": FIRST}, (), frozenset())
    assert places.release("g")
    assert heard.says() == {}


def test_as_many_are_wanted_as_were_taken_and_are_allowed() -> None:
    heard = Heard()
    places = heard.places
    for name in "ghi":
        places.take(name, (), None)
    places.heard(news(heard.beat(), 2))
    heartbeat = heard.beat()
    assert len(heartbeat.wanted) == 2
    places.heard(news(heartbeat, 2, FIRST))
    later = heard.beat()
    assert len(later.wanted) == 1
    assert not set(later.wanted) & set(heartbeat.wanted), "no name is used twice"
    assert (later.held, later.spare) == (dict.fromkeys(later.spare, FIRST), frozenset(heartbeat.wanted[:1]))
    for _ in range(20):
        places.heard(news(heard.beat(), 2))
    assert (heard.says(), places.at_hand) == ({}, 0), "nobody has come for long"


def test_who_has_asked_in_vain_waits_for_the_next_heartbeat() -> None:
    heard = with_two_at_hand()
    places = heard.places
    assert places.take("i", (FIRST, SECOND), None) is None
    assert places.begin_lease("i", None)
    places.answered("i", None, None)
    assert not places.begin_lease("i", None)
    assert places.begin_lease("i", frozenset({"edge"})), "of other groups nobody knows"
    places.answered("i", frozenset({"edge"}), None)
    heard.beat()
    assert places.begin_lease("i", None)


def test_a_generation_that_parts_with_its_drafter_leaves_no_place_behind() -> None:
    heard = with_two_at_hand()
    places = heard.places
    assert places.take("i", (), None) == (FIRST, None)
    places.lost(FIRST)
    assert places.take("i", (FIRST,), None) == (SECOND, None)
    assert heard.says() == {"i": SECOND}
    assert not places.release("i")
    assert (heard.says(), places.at_hand) == ({"i": SECOND}, 1)
    assert places.take("k", (), None) == (SECOND, None), "whatever its name was"
    assert (heard.says(), places.in_use) == ({"k": SECOND}, 1)


def test_surplus_is_given_back_once_less_is_allowed() -> None:
    heard = with_two_at_hand()
    places = heard.places
    places.heard(news(heard.beat(), 1))
    assert len(heard.says() or ()) == 1
    places.heard(news(heard.beat(), None))
    assert heard.says() == {}


def test_what_has_not_changed_is_not_said_again() -> None:
    heard = with_two_at_hand()
    places = heard.places
    places.heard(news(heard.beat(), 4))
    quiet = heard.beat()
    assert (quiet.held, quiet.ended, quiet.settings) == ({}, (), None)
    places.heard(news(quiet, 4))
    assert places.take("i", (), None) == (FIRST, None)
    sent = heard.beat()
    assert (sent.held, len(sent.ended)) == ({"i": FIRST}, 1)
    again = heard.beat()
    assert (again.held, again.ended) == (sent.held, sent.ended), "until it is answered"
    places.heard(news(again, 4))
    often = list[Heartbeat]()
    for _ in range(60):
        often.append(heard.beat())
        places.heard(news(often[-1], 4))
    assert [one.since for one in often].count(None) == 1, "everything now and then"


def test_a_fleet_that_knows_nothing_asks_for_everything() -> None:
    heard = with_two_at_hand()
    places = heard.places
    places.heard(news(heard.beat(), 4))
    heard.fleet = Coordinators(1e9, 0)
    assert heard.says() is None
    places.heard(replace(news(heard.beat(), 4), tell_all=True))
    everything = heard.beat()
    assert (everything.since, everything.settings) == (None, SETTINGS)
    assert sorted((heard.held or {}).values(), key=str) == [FIRST, SECOND]


HELD = st.tuples(st.sampled_from(["take", "ask", "release", "lost"]), st.sampled_from("ghijk"))
BEATS = st.tuples(st.just("beat"), st.sampled_from(["answered", "unanswered", "lost", "late", "restarted"]))


def uses(places: DrafterSlots, what: str, name: str, drafter: DrafterId) -> None:
    if what == "take":
        places.take(name, (), None)
    elif what == "ask" and places.begin_lease(name, None):
        places.answered(name, None, (drafter, None))
    elif what == "release":
        places.release(name)
    elif what == "lost":
        places.lost(replace(drafter, index=drafter.index // 2))


def beats(heard: Heard, how: str, late: list[Heartbeat], drafter: DrafterId) -> None:
    """One more heartbeat; ``late``: those that have not arrived yet, if they ever do."""
    if how == "restarted":
        heard.fleet = Coordinators(1e9, 0)
    if how in ("lost", "late"):
        late.append(heard.places.heartbeat(CoordinatorReport("c", "ready", 1.0), SETTINGS))
        return
    heartbeat = heard.beat()
    for one in late if how == "answered" else ():
        heard.fleet.hear(one, 0.0)
    if how != "unanswered":
        heard.places.heard(replace(news(heartbeat, 4, drafter), tell_all=heard.held is None))


@given(steps=st.lists(HELD | BEATS, max_size=40))
def test_however_heartbeats_and_answers_are_lost_the_fleet_knows_what_is_held(steps: list[tuple[str, str]]) -> None:
    heard, late = Heard(), list[Heartbeat]()
    for number, (what, which) in enumerate(steps):
        if what == "beat":
            beats(heard, which, late, DrafterId("edge", number))
        else:
            uses(heard.places, what, which, DrafterId("edge", number))
    places = heard.places
    heartbeat = heard.beat()
    places.heard(replace(news(heartbeat, 4), tell_all=heard.held is None))
    assert heard.says() == places.held


def test_what_comes_behind_a_later_heartbeat_is_not_taken_in() -> None:
    heard = with_two_at_hand()
    places = heard.places
    late = places.heartbeat(CoordinatorReport("c", "ready", 1.0), SETTINGS)
    places.take("i", (), None)
    said = heard.says()
    word = heard.fleet.hear(late, 0.0)
    assert word is not None
    assert (word.held, word.changed) == (said, ())
