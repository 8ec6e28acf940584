"""Which classes are behind, by refusals and by the time that they were given."""

from outrider.admission.fairness import Fairness


def decided(*classes: tuple[str, float, int, int]) -> Fairness:
    """Class, time factor, and how many of it were let in and refused in turns."""
    fairness = Fairness()
    for _ in range(200):
        for name, time_factor, admitted, refused in classes:
            for _ in range(admitted):
                fairness.decided(name, refused=False, time_factor=time_factor)
            for _ in range(refused):
                fairness.decided(name, refused=True, time_factor=time_factor)
    return fairness


def test_of_equal_time_factors_the_class_that_is_refused_more_often_is_behind() -> None:
    fairness = decided(("a", 1.0, 3, 1), ("b", 1.0, 1, 3))
    assert (fairness.is_behind("a"), fairness.is_behind("b")) == (False, True)
    assert (fairness.is_ahead("a"), fairness.is_ahead("b")) == (True, False)


def test_a_dear_class_is_not_behind_once_it_was_given_as_much_time() -> None:
    fairness = decided(("cheap", 1.0, 3, 1), ("dear", 5.0, 1, 3))
    assert not fairness.is_behind("dear"), "1.25 for each that asked, where the other was given 0.75"
    assert fairness.is_ahead("dear")
    assert decided(("cheap", 1.0, 3, 1), ("dear", 2.0, 1, 3)).is_behind("dear"), "0.5 for each that asked"


def test_a_class_that_nobody_was_refused_of_is_never_behind() -> None:
    fairness = decided(("cheap", 1.0, 4, 0), ("dear", 9.0, 2, 2))
    assert not fairness.is_behind("cheap")
    assert not fairness.is_behind("unknown")
    assert not Fairness().is_ahead("unknown")
