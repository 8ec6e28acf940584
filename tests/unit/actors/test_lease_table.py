"""Which drafter serves which generation."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from actors.lease_table import LeaseTable
from actors.messages import DrafterId

A0, A1, B0 = DrafterId("a", 0), DrafterId("a", 1), DrafterId("b", 0)
CAPACITY = {A0: 2, A1: 2, B0: 4}


def table(*ready: DrafterId) -> LeaseTable:
    made = LeaseTable()
    for drafter, capacity in CAPACITY.items():
        made.add(drafter, capacity)
    for drafter in ready:
        made.mark_ready(drafter)
    return made


def test_the_least_loaded_share_comes_first() -> None:
    leases = table(A0, A1, B0)
    assert [leases.lease(f"g{i}") for i in range(8)] == [A0, A1, B0, B0, A0, A1, B0, B0]
    assert leases.lease("g8") is None
    leases.release("g1")
    assert leases.lease("g8") == A1


def test_drafters_that_are_not_ready_get_no_leases() -> None:
    leases = table()
    assert leases.lease("g") is None
    leases.mark_ready(B0)
    assert leases.lease("g") == B0


def test_a_lease_is_kept_until_its_drafter_is_excluded() -> None:
    leases = table(A0, A1)
    assert leases.lease("g") == leases.lease("g") == A0
    assert leases.lease("g", exclude=[A0]) == A1
    assert leases.loads() == {A0: 0, A1: 1}


class LeaseMachine(RuleBasedStateMachine):
    """Any order of leases, releases, losses and recoveries."""

    def __init__(self) -> None:
        super().__init__()
        self.table = table()
        self.ready: set[DrafterId] = set()
        self.held: dict[str, DrafterId] = {}

    @rule(drafter=st.sampled_from(sorted(CAPACITY)))
    def come_up(self, drafter: DrafterId) -> None:
        self.table.mark_ready(drafter)
        self.ready.add(drafter)

    @rule(drafter=st.sampled_from(sorted(CAPACITY)))
    def lose(self, drafter: DrafterId) -> None:
        orphans = {name for name, holder in self.held.items() if holder == drafter}
        assert self.table.mark_lost(drafter) == orphans
        self.ready.discard(drafter)
        for name in orphans:
            del self.held[name]

    @rule(name=st.sampled_from("abcdefghij"), exclude=st.sets(st.sampled_from(sorted(CAPACITY))))
    def lease(self, name: str, exclude: set[DrafterId]) -> None:
        given = self.table.lease(name, exclude)
        if given is None:
            self.held.pop(name, None)
            loads = self.table.loads()
            assert all(loads[d] == CAPACITY[d] for d in self.ready - exclude)
        else:
            assert given in self.ready - exclude
            self.held[name] = given

    @rule(name=st.sampled_from("abcdefghij"))
    def release(self, name: str) -> None:
        self.table.release(name)
        self.held.pop(name, None)

    @invariant()
    def loads_are_what_is_held(self) -> None:
        holders = list(self.held.values())
        assert self.table.loads() == {drafter: holders.count(drafter) for drafter in self.ready}
        assert all(load <= CAPACITY[drafter] for drafter, load in self.table.loads().items())


LeaseMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLeases = LeaseMachine.TestCase
