from hypothesis import given
from hypothesis import strategies as st

from actors.messages import VerifyCall
from actors.verifier.call_reorder_buffer import CallReorderBuffer


@given(order=st.permutations(range(8)), taken=st.sets(st.integers(0, 7)))
def test_calls_come_in_the_order_in_which_they_were_made(order: list[int], taken: set[int]) -> None:
    inbox, came = CallReorderBuffer(), list[int]()
    for place, number in enumerate(order):
        inbox.put(VerifyCall(number=number))
        if place in taken:
            came += [call.number for call in inbox.take()]
            assert came == list(range(len(came)))
    came += [call.number for call in inbox.take()]
    assert came == list(range(8))


def test_a_new_session_gives_up_what_is_missing_of_the_one_before() -> None:
    inbox = CallReorderBuffer()
    for session, number in ((0, 0), (0, 2), (2, 1), (0, 1), (1, 0), (2, 0)):
        inbox.put(VerifyCall(session=session, number=number))
    assert [(call.session, call.number) for call in inbox.take()] == [(0, 0), (2, 0), (2, 1)]
    assert inbox.take() == []
