"""Accounts take turns, and none can keep another one out."""

from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from outrider.fair_queueing.queue import FairQueue


def test_accounts_take_turns() -> None:
    queue: FairQueue[str] = FairQueue(8, 20, 100)
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        assert queue.put(item[0], item)
    taken = [queue.take() for _ in range(7)]
    assert [each and each[1] for each in taken] == ["a1", "b1", "c1", "a2", "b2", "a3", None]


def test_an_account_has_so_many_taken_at_a_time() -> None:
    queue: FairQueue[str] = FairQueue(8, 20, 1)
    assert queue.put("a", "a1")
    assert queue.put("a", "a2")
    assert queue.take() == ("a", "a1")
    assert queue.take() is None
    assert queue.put("b", "b1")
    assert queue.take() == ("b", "b1")
    queue.release("a")
    assert queue.take() == ("a", "a2")


def test_a_full_queue_has_room_for_whoever_has_little_in_it() -> None:
    queue: FairQueue[int] = FairQueue(64, 100, 1)
    kept = {account: sum(queue.put(account, i) for i in range(1000)) for account in "ab"}
    assert kept == {"a": 64, "b": 50}
    assert queue.put("c", 1)
    assert not queue.put("a", -1)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["put", "take", "release", "remove"]))))
def test_nothing_is_lost_twice_or_out_of_order(steps: list[tuple[str, str]]) -> None:
    queue: FairQueue[int] = FairQueue(3, 6, 2)
    waiting = {account: deque[int]() for account in "abcd"}
    taken = Counter[str]()
    for number, (account, step) in enumerate(steps):
        if step == "put" and queue.put(account, number):
            waiting[account].append(number)
        elif step == "take":
            found = queue.take()
            eligible = [each for each, items in waiting.items() if items and taken[each] < 2]
            assert (found is None) == (not eligible)
            if found is not None:
                assert found[1] == waiting[found[0]].popleft()
                taken[found[0]] += 1
        elif step == "release" and taken[account]:
            queue.release(account)
            taken[account] -= 1
        elif step == "remove" and waiting[account]:
            queue.remove(account, waiting[account].pop())
        assert len(queue) == sum(map(len, waiting.values()))
        assert max(taken.values(), default=0) <= 2
        assert all(len(items) <= 3 for items in waiting.values())
