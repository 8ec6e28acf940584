"""What happens when."""

from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.agenda import Agenda


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]), max_size=20))
def test_it_happens_in_time_and_of_one_moment_in_order(times_s: list[float]) -> None:
    agenda, happened = Agenda(), list[tuple[float, int]]()
    for number, at_s in enumerate(times_s):
        agenda.at(at_s, lambda subject, now_s: happened.append((now_s, subject)), number)
    agenda.run(2.0)
    assert happened == sorted((at_s, number) for number, at_s in enumerate(times_s) if at_s <= 2.0)
    assert agenda.now_s == (2.0 if 3.0 in times_s else max(times_s, default=0.0))


def test_what_happens_may_have_more_happen() -> None:
    agenda, seen = Agenda(), list[float]()

    def again(left: int, now_s: float) -> None:
        seen.append(now_s)
        if left:
            agenda.at(now_s + 1.0, again, left - 1)

    agenda.at(0.0, again, 3)
    agenda.run(10.0)
    assert seen == [0.0, 1.0, 2.0, 3.0]
