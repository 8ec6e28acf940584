"""Who is drained for long enough is left, where another of its target has room."""

from outrider.routing.draining import DrainWatch, RoutedCoordinator
from outrider.routing.load_units import CoordinatorLoad


def place(target: str = "big", *, up: bool = True, taken: float = 0.5, responses: float = 5.0) -> RoutedCoordinator:
    """Of one that is half full with five responses."""
    return RoutedCoordinator(target, up, CoordinatorLoad(taken, responses))


ALL = {"a": place(), "b": place(), "c": place("small", taken=0.0, responses=0.0)}


def left(there: dict[str, RoutedCoordinator], after_s: float = 10.0, now_s: float = 10.0) -> list[str]:
    """Who is left once these alone are told of, at 0, as somebody else was before."""
    drains = DrainWatch()
    drains.update(ALL, -5.0)
    drains.update(there, 0.0)
    drains.update(there, now_s)
    return [name for name in (*ALL, "nobody") if drains.should_migrate(name, after_s, now_s)]


def test_who_is_not_told_of_any_more_is_left_after_a_while() -> None:
    others = {"b": place(), "c": place("small")}
    assert left(others) == ["a"]
    assert left(others, now_s=9.9) == []
    assert left(others, after_s=0.0, now_s=0.0) == ["a"]
    assert left(ALL) == []


def test_who_has_nobody_to_go_on_with_what_it_makes_is_not_left() -> None:
    assert left({"c": place("small")}) == [], "of its target"
    assert left({}) == []
    assert left({"b": place(up=False, taken=0.0)}) == [], "with a verifier"
    assert left({"b": place(taken=0.95)}) == [], "with room"


def test_no_more_leave_until_the_next_word_than_there_is_room_for() -> None:
    drains, others = DrainWatch(), {"b": place()}
    drains.update(ALL, 0.0)
    for now_s in (1.0, 20.0):
        drains.update(others, now_s)
        assert [drains.should_migrate("a", 0.0, now_s) for _ in range(6)] == [True] * 4 + [False] * 2, (
            "0.1 each, up to 0.9"
        )
    drains.died("b")
    drains.update({"c": place("small")}, 30.0)
    assert not drains.should_migrate("a", 0.0, 30.0)


def test_one_that_has_died_takes_nothing_over() -> None:
    drains = DrainWatch()
    drains.update(ALL, 0.0)
    drains.update({"b": place()}, 1.0)
    drains.died("b")
    assert not drains.should_migrate("a", 0.0, 1.0)


def test_who_says_nothing_for_a_moment_has_the_target_that_it_had() -> None:
    drains, silent = DrainWatch(), {name: place("", up=False, taken=0.0) for name in ALL}
    for now_s, there in enumerate((ALL, silent, {"b": place()})):
        drains.update(there, float(now_s))
    assert drains.should_migrate("a", 0.0, 2.0)


def test_who_is_back_is_not_left_and_is_drained_anew_when_it_goes_again() -> None:
    drains, one = DrainWatch(), {"b": place()}
    for there, now_s in ((ALL, 0.0), (one, 1.0), (ALL, 2.0), (one, 50.0)):
        drains.update(there, now_s)
    assert not drains.should_migrate("a", 10.0, 59.0)
    assert drains.should_migrate("a", 10.0, 60.0)
    drains.update(one, 5_000.0)
    assert not drains.should_migrate("a", 10.0, 5_000.0), "whoever it was is gone"
