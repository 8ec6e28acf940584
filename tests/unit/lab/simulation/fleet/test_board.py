"""The best of many, without looking at all of them."""

from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.fleet.routes import LoadBoard
from outrider.routing.lazy_heap import LazyHeap
from outrider.routing.load_units import NOTHING_REPORTED, CoordinatorLoad
from outrider.routing.prefix_index import PrefixIndex
from outrider.routing.scores import ranked

CAPACITY = 4
happenings = st.lists(
    st.tuples(
        st.sampled_from(["send", "end", "add", "drop", "tell"]),
        st.integers(0, 5),
        st.dictionaries(st.integers(0, 5), st.sampled_from([16, 64, 128, 1024]), max_size=3),
    ),
    max_size=60,
)


@given(happenings)
def test_the_best_is_the_first_of_all_ranked(happened: list[tuple[str, int, dict[int, int]]]) -> None:
    board = LoadBoard[int](CAPACITY)
    ongoing, dispatched, told = dict[int, int](), dict[int, int](), dict[int, CoordinatorLoad]()
    for what, name, cached in happened:
        if what == "add" and name not in ongoing:
            board.add(name)
            ongoing[name] = dispatched[name] = 0
            told[name] = NOTHING_REPORTED
        elif what == "drop" and name in ongoing:
            board.drop(name)
            del ongoing[name], dispatched[name], told[name]
        elif what == "end" and ongoing.get(name):
            board.ended(name)
            ongoing[name] -= 1
        elif what == "tell" and ongoing:
            for one in sorted(ongoing):  # all of them, as each counts by what the others told
                told[one] = CoordinatorLoad(0.125 * cached.get(one, 16) / 16, 1.0 + one)
            for one in 2 * sorted(ongoing):
                board.report(one, told[one])
        elif what == "send":
            capacity = dict.fromkeys(ongoing, CAPACITY)
            order = ranked(sorted(ongoing), cached, ongoing, dispatched, capacity, told)
            free = [one for one in order if ongoing[one] < CAPACITY]
            best = board.best(cached)
            assert best == (free[0] if free else None)
            if best is not None:
                board.sent(best)
                ongoing[best] += 1
                dispatched[best] += 1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3) | st.none()), max_size=100), st.sets(st.integers(0, 4)))
def test_the_first_is_the_least(changes: list[tuple[int, int | None]], skip: set[int]) -> None:
    standing, ranks = LazyHeap[int](), dict[int, int]()
    for name, rank in changes:
        if rank is None:
            standing.drop(name)
            ranks.pop(name, None)
        else:
            standing.set(name, rank)
            ranks[name] = rank
        order = sorted(ranks, key=lambda one: (ranks[one], one))
        assert standing.first(skip) == next((one for one in order if one not in skip), None)
        assert standing.first() == next(iter(order), None)
        assert {one: standing.rank(one) for one in order} == ranks
        assert len(standing) == len(ranks)
        assert (name in standing) is (name in ranks)


def test_of_a_block_that_everybody_has_the_latest_are_remembered() -> None:
    index: PrefixIndex[int] = PrefixIndex(100, max_holders=3)
    for holder in range(10):
        index.insert(["system", f"own of {holder}"], holder)
    assert index.matches(["system"]) == {7: 1, 8: 1, 9: 1}
    assert index.matches(["system", "own of 2"]) == {2: 2, 7: 1, 8: 1, 9: 1}, "what is behind it has all before it"
