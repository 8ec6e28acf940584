"""Who is drained for long enough is left, where another of its target has room."""

from outrider.routing.drains import Drains, Place

A, B, C = Place("big", up=True, taken=0.5), Place("big", up=True, taken=0.5), Place("small", up=True, taken=0.0)
ALL = {"a": A, "b": B, "c": C}


def left(there: dict[str, Place], after_s: float = 10.0, now_s: float = 10.0) -> list[str]:
    """Who may be left once these alone are told of, at 0, as somebody else was before."""
    drains = Drains()
    drains.told(ALL, -5.0)
    drains.told(there, 0.0)
    drains.told(there, now_s)
    return [name for name in (*ALL, "nobody") if drains.may_leave(name, after_s, now_s)]


def test_who_is_not_told_of_any_more_is_left_after_a_while() -> None:
    assert left({"b": B, "c": C}) == ["a"]
    assert left({"b": B, "c": C}, now_s=9.9) == []
    assert left({"b": B, "c": C}, after_s=0.0, now_s=0.0) == ["a"]
    assert left(ALL) == []


def test_who_has_nobody_to_go_on_with_what_it_makes_is_not_left() -> None:
    assert left({"c": C}) == [], "of its target"
    assert left({}) == []
    assert left({"b": Place("big", up=False, taken=0.0)}) == [], "with a verifier"
    assert left({"b": Place("big", up=True, taken=0.95)}) == [], "with room"


def test_who_is_back_is_not_left_and_is_drained_anew_when_it_goes_again() -> None:
    drains = Drains()
    for there, now_s in ((ALL, 0.0), ({"b": B}, 1.0), (ALL, 2.0), ({"b": B}, 50.0)):
        drains.told(there, now_s)
    assert not drains.may_leave("a", 10.0, 59.0)
    assert drains.may_leave("a", 10.0, 60.0)
    drains.told({"b": B}, 5_000.0)
    assert not drains.may_leave("a", 10.0, 5_000.0), "whoever it was is gone"
